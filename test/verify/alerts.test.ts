import { spawnSync } from 'node:child_process'
import t from 'tap'
import { parse } from 'yaml'
import { metricsOf, startBff, startSandbox } from '../helpers/system.ts'
import { ROOT, read } from '../repository/files.ts'
import { findTool } from '../setup/tools.mjs'

interface Rule {
  readonly alert: string
  readonly expr: string
  readonly labels: { readonly severity: string }
  readonly annotations: { readonly summary: string; readonly runbook_url: string }
}

interface RuleTest {
  readonly alert_rule_test: readonly { alertname: string; exp_alerts: readonly unknown[] }[]
}

interface Panel {
  readonly targets?: readonly { readonly expr: string }[]
}

const { groups } = parse(read('deploy/prometheus/rules.yml')) as { groups: readonly { rules: Rule[] }[] }
const rules = groups.flatMap((group) => group.rules)
const alerts = rules.map((rule) => rule.alert)
const { panels } = JSON.parse(read('deploy/grafana/dashboard.json')) as { panels: readonly Panel[] }
const queries = panels.flatMap(({ targets = [] }) => targets.map((target) => target.expr))

/** The metrics of docs/metrics.md with their labels. */
function readDocumented(): Map<string, string[]> {
  const documented = new Map<string, string[]>()
  for (const [, name = '', kind, labels = ''] of read('docs/metrics.md').matchAll(
    /^\| `(bff_\w+)` \| (\w+)[^|]* \| ([^|]*) \|/gm,
  )) {
    const like = /as `(bff_\w+)`/.exec(labels)?.[1]
    const own = [...labels.replace(/\([^)]*\)/g, '').matchAll(/`(\w+)`/g)].map(([, label]) => label!)
    const all = [...(like === undefined ? own : (documented.get(like) ?? [])), 'job', 'instance']
    if (kind === 'histogram') {
      documented.set(`${name}_bucket`, [...all, 'le'])
      documented.set(`${name}_count`, all)
      documented.set(`${name}_sum`, all)
    }
    documented.set(name, all)
  }
  return documented
}

/** What an expression selects: each metric, with the labels of its matchers and of the whole grouping. */
function selected(expression: string): { metric: string; labels: string[] }[] {
  const grouped = [...expression.matchAll(/\bby \(([^)]*)\)/g)].flatMap(([, names]) => names!.split(/, */))
  return [...expression.matchAll(/\b((?:bff|process|nodejs)_\w+|up)\{([^}]*)\}/g)].map(
    ([, metric = '', matchers = '']) => ({
      metric,
      labels: [...[...matchers.matchAll(/(\w+)(?==)/g)].map(([, label]) => label!), ...grouped],
    }),
  )
}

t.test('every query of an alert or a panel selects documented metrics by documented labels', async (t) => {
  const bff = await startBff(t, await startSandbox(t))
  const text = await metricsOf(bff)
  const builtIn = new Set([...text.matchAll(/^# TYPE ((?:process|nodejs)_\w+) /gm)].map(([, name]) => name!))
  const documented = readDocumented()
  t.ok(builtIn.size > 10 && documented.size > 20, 'both lists were read')
  for (const expression of [...rules.map((rule) => rule.expr), ...queries]) {
    const found = selected(expression)
    t.ok(found.length > 0, `${expression} selects a metric`)
    for (const { metric, labels } of found) {
      if (metric === 'up' || builtIn.has(metric)) continue
      const known = documented.get(metric)
      t.ok(known, `${metric} is documented`)
      for (const label of labels) t.ok(known?.includes(label), `${metric} has the label ${label}`)
    }
    const named = expression.match(/\b(bff|process|nodejs)_\w+/g) ?? []
    t.equal(named.length, found.filter(({ metric }) => metric !== 'up').length, `${expression} names its job`)
  }
  const shown = new Set(queries.flatMap(selected).map(({ metric }) => metric))
  for (const { alert, expr } of rules)
    for (const { metric } of selected(expr))
      t.ok(shown.has(metric), `the dashboard shows ${metric} of ${alert}`)
  t.ok(shown.has('bff_build_info'), 'the dashboard shows which versions run')
})

t.test('the runbook has one section for each alert, with what users see, checks and a remedy', async (t) => {
  const sections = read('docs/runbook.md').split(/^## /m).slice(1)
  t.strictSame(
    sections.map((section) => section.slice(0, section.indexOf('\n'))),
    alerts,
  )
  for (const section of sections) {
    t.match(section, /^\*\*Users see\*\* [\s\S]*^\*\*Check\*\*\n1\. [\s\S]*^\*\*Do\*\* /m)
  }
  for (const rule of rules) {
    t.ok(rule.annotations.runbook_url.endsWith(`docs/runbook.md{{ end }}#${rule.alert.toLowerCase()}`))
    t.match(rule.labels.severity, /^(page|ticket)$/)
  }
})

t.test('each share and each quantile needs a least number of events', async (t) => {
  const relative = rules.filter(({ expr }) => /\/\s*sum|histogram_quantile/.test(expr))
  t.ok(relative.length >= 5, 'they were found')
  for (const { alert, expr } of relative) t.match(expr, /\band\s+sum by [^>]*\bincrease\([^>]*>= \d+/, alert)
})

t.test('a unit test shows each alert silent and firing', async (t) => {
  const { tests } = parse(read('deploy/prometheus/rules.test.yml')) as { tests: readonly RuleTest[] }
  const cases = tests.flatMap((test) => test.alert_rule_test)
  for (const alert of alerts) {
    const fires = cases.flatMap((test) => (test.alertname === alert ? [test.exp_alerts.length > 0] : []))
    t.strictSame([...new Set(fires)].sort(), [false, true], alert)
  }
})

interface Inhibition {
  readonly source_matchers: readonly string[]
  readonly target_matchers: readonly string[]
  readonly equal: readonly string[]
}

/** The alerts that a list of Alertmanager's matchers selects. Alertmanager anchors its patterns. */
function matched(matchers: readonly string[]): string[] {
  return alerts.filter((alert) =>
    matchers.every((matcher) => {
      const [, operator, value = ''] = /^alertname (=~|!=|=) "?([^"]+)"?$/.exec(matcher) ?? []
      if (operator === '=~') return new RegExp(`^(?:${value})$`).test(alert)
      return (operator === '=') === (alert === value)
    }),
  )
}

t.test('one outage is one page', async (t) => {
  const { inhibit_rules: inhibitions } = parse(read('deploy/prometheus/alertmanager.yml')) as {
    inhibit_rules: readonly Inhibition[]
  }
  const inhibited = (alert: string, firing: readonly string[]) =>
    inhibitions.some(
      ({ source_matchers, target_matchers }) =>
        matched(target_matchers).includes(alert) &&
        matched(source_matchers).some((source) => source !== alert && firing.includes(source)),
    )
  const pages = new Set(rules.filter(({ labels }) => labels.severity === 'page').map(({ alert }) => alert))
  const outages = {
    BffDown: ['BffDown', 'BffReplicaDown', 'BffStoreDown', 'BffServerErrors'],
    BffStoreDown: [
      'BffStoreDown',
      'BffServerErrors',
      'BffSignInsFailing',
      'BffStoreRetries',
      'BffRefreshesLate',
    ],
    BffTokenEndpointFailing: [
      'BffTokenEndpointFailing',
      'BffRefreshesInDoubt',
      'BffSignInsFailing',
      'BffServerErrors',
      'BffUpstreamFailing',
    ],
    BffUpstreamFailing: ['BffUpstreamFailing', 'BffServerErrors', 'BffUpstreamSlow'],
  }
  for (const [page, firing] of Object.entries(outages)) {
    t.strictSame(
      firing.filter((alert) => pages.has(alert) && !inhibited(alert, firing)),
      [page],
    )
  }
  for (const { source_matchers, target_matchers, equal } of inhibitions) {
    t.equal(matched(source_matchers).length, 1)
    t.ok(matched(target_matchers).length > 1)
    t.strictSame(equal, ['job'])
  }
})

const promtool = findTool('promtool')
t.test(
  'promtool accepts the rules, and their unit tests pass',
  { skip: promtool === null && 'promtool is not installed (Debian: the package prometheus)' },
  async (t) => {
    const cwd = `${ROOT}/deploy/prometheus`
    for (const args of ['check rules rules.yml', 'test rules rules.test.yml']) {
      const { status, stdout, stderr } = spawnSync(promtool!, args.split(' '), { cwd, encoding: 'utf8' })
      t.equal(status, 0, `promtool ${args}\n${stdout}${stderr}`)
    }
  },
)
