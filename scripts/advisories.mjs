// Fails if a published advisory names a package that the image contains. A registry that serves no advisories, or no
// network, is said in one line and is no failure: the check then runs where CI reaches the registry.
import { spawnSync } from 'node:child_process'

// A shell, because npm is a script without a suffix that spawn finds everywhere.
const { stdout } = spawnSync('npm audit --omit=dev --json', { shell: true, encoding: 'utf8' })
let report
try {
  report = JSON.parse(stdout)
} catch {
  report = {}
}
if (report.metadata?.vulnerabilities === undefined) {
  console.log(`Advisories were not checked: ${report.message ?? 'the registry could not be asked.'}`)
  process.exit(0)
}
const { total } = report.metadata.vulnerabilities
for (const { name, severity, range } of Object.values(report.vulnerabilities)) {
  console.error(`${name} ${range}: ${severity}`)
}
console.log(`${total} advisories name a package of the image.`)
process.exit(total === 0 ? 0 : 1)
