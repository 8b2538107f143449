import { runTogether } from '../helpers/together.ts'

// The files of this folder that .taprc does not name.
runTogether(
  'repository/alerts.test.ts',
  'repository/chromium-helper.test.ts',
  'repository/commands.test.ts',
  'repository/compose.test.ts',
  'repository/deployment.test.ts',
  'repository/first-start.test.ts',
  'repository/imports.test.ts',
  'repository/kubernetes.test.ts',
  'repository/log-events.test.ts',
  'repository/ports.test.ts',
  'repository/project.test.ts',
  'repository/release.test.ts',
  'repository/troubleshooting.test.ts',
  'repository/verification.test.ts',
)
