import { runTogether } from '../helpers/together.ts'

// The files of this folder that .taprc does not name.
runTogether(
  'repository/commands.test.ts',
  'repository/first-start.test.ts',
  'repository/imports.test.ts',
  'repository/log-events.test.ts',
  'repository/project.test.ts',
  'repository/questions.test.ts',
  'repository/regular-expressions.test.ts',
  'repository/verification.test.ts',
)
