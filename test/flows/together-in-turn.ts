import { runTogether } from '../helpers/together.ts'

// One test at a time: none of these files sets `t.jobs`.
runTogether(
  'flows/behind-proxies.test.ts',
  'flows/command-line.test.ts',
  'flows/complaint.test.ts',
  'flows/damaged-records.test.ts',
  'flows/egress.test.ts',
  'flows/ended-while-waiting.test.ts',
  'flows/large-answers.test.ts',
  'flows/large-files.test.ts',
  'flows/redis-sni.test.ts',
  'flows/redis-tls-names.test.ts',
  'flows/refresh-forced.test.ts',
  'flows/refresh-single.test.ts',
  'flows/store-at-start.test.ts',
  'flows/switchover.test.ts',
  'flows/waiting-updates.test.ts',
  'flows/why-ended.test.ts',
)
