// Writes the npm packages that the image holds to stdout, as a CycloneDX SBOM. `npm sbom --omit=dev` leaves out
// production packages that a development package needs too, so the whole list is filtered here.
import { execFileSync } from 'node:child_process'

const args = ['sbom', '--sbom-format=cyclonedx', '--sbom-type=application', '--package-lock-only']
const sbom = JSON.parse(
  execFileSync('npm', args, { maxBuffer: 2 ** 26, stdio: ['ignore', 'pipe', 'inherit'] }),
)

const isDevelopment = ({ properties = [] }) =>
  properties.some(({ name, value }) => name === 'cdx:npm:package:development' && value === 'true')
const left = new Set(sbom.components.filter(isDevelopment).map((component) => component['bom-ref']))

sbom.components = sbom.components.filter((component) => !left.has(component['bom-ref']))
sbom.dependencies = sbom.dependencies
  .filter(({ ref }) => !left.has(ref))
  .map(({ ref, dependsOn }) => ({ ref, dependsOn: dependsOn.filter((name) => !left.has(name)) }))
process.stdout.write(`${JSON.stringify(sbom, null, 2)}\n`)
