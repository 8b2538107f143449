import t from 'tap'
import { parse, parseAllDocuments } from 'yaml'
import { TABLE, type VariableName } from '../../src/config/variables.ts'
import { startBff, startSandbox } from '../helpers/system.ts'
import { filesBelow, read } from '../repository/files.ts'

interface Manifest {
  readonly apiVersion: string
  readonly kind: string
}

interface Port {
  readonly name: string
  readonly containerPort: number
}

const files = filesBelow('deploy/kubernetes', '.yaml').filter((path) => !path.endsWith('kustomization.yaml'))
// Their members have no types here: the schemas below check the shape of each kind.
const manifests = files.flatMap((name) => {
  const documents = parseAllDocuments(read(name), { version: '1.1' })
  for (const document of documents) t.strictSame([document.errors, document.warnings], [[], []], name)
  return documents.map((document) => document.toJS())
})

function find(kind: string, name = 'token-handler-bff') {
  const found = manifests.find((manifest) => manifest.kind === kind && manifest.metadata.name === name)
  if (found === undefined) throw new Error(`no ${kind} ${name}`)
  return found
}

const { spec: deployment } = find('Deployment')
const { spec: pod } = deployment.template
const [server] = pod.containers
const ports = server.ports as Port[]
const settings = find('ConfigMap').data as Readonly<Record<string, string>>
const secretFiles = server.env as { name: string; value: string }[]

/** Why the schema of its kind refuses a manifest; null if it does not. */
async function objection(manifest: Manifest): Promise<string | null> {
  const { apiVersion, kind } = manifest
  const schemas = apiVersion.startsWith('monitoring.')
    ? '@kubernetes-models/prometheus-operator'
    : 'kubernetes-models'
  const { [kind]: Model } = await import(`${schemas}/${apiVersion}/${kind}`)
  try {
    new Model(manifest).validate()
    return null
  } catch (error) {
    return (error as Error).message
  }
}

t.test('the schemas of Kubernetes and of the Prometheus operator accept each manifest', async (t) => {
  for (const manifest of manifests) t.equal(await objection(manifest), null, manifest.kind)
  const budget = find('PodDisruptionBudget')
  t.match(await objection({ ...budget, spec: { ...budget.spec, selector: 'pods' } }), /selector/)
})

t.test('the ingress of deploy/ingress-nginx suits its schema and leads to the public service', async (t) => {
  const ingress = parse(read('deploy/ingress-nginx/token-handler-bff.yaml'), { version: '1.1' })
  t.equal(await objection(ingress), null)
  const [{ host, http }] = ingress.spec.rules
  t.equal(`https://${host}`, settings.PUBLIC_URL)
  t.strictSame(ingress.spec.tls[0].hosts, [host])
  const { metadata, spec } = find('Service')
  t.strictSame(http.paths[0].backend.service, { name: metadata.name, port: { number: spec.ports[0].port } })
})

t.test('each environment variable is one that the server reads, secrets only by files', async (t) => {
  for (const name of Object.keys(settings)) {
    t.ok(name in TABLE, name)
    t.notOk(TABLE[name as VariableName].secret, `${name} is no secret`)
  }
  for (const { name, value } of secretFiles) {
    t.match(name, /_FILE$/)
    t.ok(TABLE[name.replace(/_FILE$/, '') as VariableName].secret, `${name} is the file of a secret`)
    t.ok(value.startsWith(`${server.volumeMounts[0].mountPath}/`), `${name} is below the mounted secrets`)
  }
})

t.test('probes and scrapes name paths that the server serves, on its ops port', async (t) => {
  const bff = await startBff(t, await startSandbox(t))
  const monitor = find('ServiceMonitor').spec
  const { livenessProbe, readinessProbe, startupProbe } = server
  t.equal(livenessProbe.httpGet.path, '/livez')
  t.equal(readinessProbe.httpGet.path, '/readyz')
  const probes = [livenessProbe, readinessProbe, startupProbe].map(({ httpGet }) => httpGet)
  for (const { path, port } of [...probes, monitor.endpoints[0]]) {
    t.equal(port, 'ops', path)
    t.equal((await fetch(`${bff.opsUrl}${path}`)).status, 200, path)
  }
  const numbers = Object.fromEntries(ports.map(({ name, containerPort }) => [name, String(containerPort)]))
  t.strictSame(numbers, { http: TABLE.PORT.default, ops: TABLE.OPS_PORT.default })
})

t.test('services, budget and autoscaler select the pods; scrapes have the job of the alerts', async (t) => {
  const labels = deployment.template.metadata.labels
  t.strictSame(deployment.selector.matchLabels, labels)
  for (const { spec } of [find('Service'), find('Service', 'token-handler-bff-ops')])
    t.strictSame(spec.selector, labels)
  t.strictSame(find('PodDisruptionBudget').spec.selector.matchLabels, labels)
  const scaled = find('HorizontalPodAutoscaler').spec.scaleTargetRef
  t.match(scaled, { kind: 'Deployment', name: 'token-handler-bff' })
  const monitored = find('ServiceMonitor').spec.selector.matchLabels
  t.match(find('Service', 'token-handler-bff-ops').metadata.labels, monitored)
  const [{ targetPort }] = find('Service').spec.ports
  t.equal(targetPort, 'http', 'the public service does not lead to the ops port')
  const label = find('ServiceMonitor').spec.jobLabel as string
  const job = find('Service', 'token-handler-bff-ops').metadata.labels[label]
  const rules = read('deploy/prometheus/rules.yml')
  t.strictSame([...new Set([...rules.matchAll(/job="([^"]*)"/g)].map(([, name]) => name))], [job])
})

t.test('two pods run at least, one at a time goes, and each drains before it is killed', async (t) => {
  t.equal(find('HorizontalPodAutoscaler').spec.minReplicas, 2)
  t.equal(find('PodDisruptionBudget').spec.maxUnavailable, 1)
  t.strictSame(deployment.strategy.rollingUpdate, { maxUnavailable: 0, maxSurge: 1 })
  const delay = Number(settings.SHUTDOWN_DELAY_SECONDS)
  t.ok(pod.terminationGracePeriodSeconds >= delay + Number(settings.SHUTDOWN_SECONDS) + 5)
})

t.test('Redis may be away for 15 seconds before all pods leave the service', async (t) => {
  const { periodSeconds, failureThreshold } = server.readinessProbe
  t.equal(periodSeconds * failureThreshold, 15)
})

t.test('the pod has no root, capabilities or account, and only two namespaces reach it', async (t) => {
  t.equal(pod.automountServiceAccountToken, false)
  t.match(pod.securityContext, { runAsNonRoot: true, runAsUser: 1000 })
  t.strictSame(server.securityContext, {
    allowPrivilegeEscalation: false,
    readOnlyRootFilesystem: true,
    capabilities: { drop: ['ALL'] },
  })
  t.equal(pod.volumes[0].secret.defaultMode, 0o440)
  // The server believes the X-Forwarded-For of every address in the cluster (TRUST_PROXY).
  const rule = (namespace: string, port: number) => ({
    from: [{ namespaceSelector: { matchLabels: { 'kubernetes.io/metadata.name': namespace } } }],
    ports: [{ protocol: 'TCP', port }],
  })
  const { podSelector, ...policy } = find('NetworkPolicy').spec
  t.strictSame(podSelector.matchLabels, deployment.template.metadata.labels)
  t.strictSame(policy, {
    policyTypes: ['Ingress'],
    ingress: [rule('ingress-nginx', 3000), rule('monitoring', 9464)],
  })
})
