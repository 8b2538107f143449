import t from 'tap'
import { readHistory, runCampaign } from './campaign.ts'
import { compileWorker, replaced } from './compile.ts'
import { FAULT_KINDS, type Fault, PROTOCOL_STEPS } from './faults.ts'
import { findMutation, MUTATIONS } from './mutations.ts'
import { simulate } from './simulate.ts'

const FIXED_SEEDS = 60

t.test('fixed seeds keep every rule while every kind of fault occurs', async (t) => {
  const compiled = await compileWorker()
  t.teardown(compiled.remove)
  // In one process: each further one compiles all of it again, while other tests need the processor.
  const options = { compiled, from: 1, seeds: FIXED_SEEDS, untilFailure: false, workers: 1 }
  const campaign = await runCampaign(options)
  t.strictSame(campaign.failures, [])
  t.equal(campaign.seeds, FIXED_SEEDS)
  const { presentations, calls, injected } = campaign.tally
  t.ok(presentations > FIXED_SEEDS && calls > FIXED_SEEDS)
  t.strictSame([...injected.keys()].sort(), [...FAULT_KINDS].sort())
})

t.test('the same seed gives the same history, and another seed another one', async (t) => {
  const first = await simulate(7)
  const again = await simulate(7, { trace: true })
  t.equal(again.hash, first.hash)
  t.ok(again.lines.length > 10)
  t.not((await simulate(8)).hash, first.hash)
})

t.test('an aimed fault occurs at its step of the protocol', async (t) => {
  const common = { at: 0, delayMs: 0, replica: 0, actor: true, master: 0, change: { kind: 'reset' } } as const
  const faults: Fault[] = PROTOCOL_STEPS.map((aim, id) => ({ ...common, id, aim }))
  const { lines } = await simulate(7, { trace: true, faults })
  for (const aim of PROTOCOL_STEPS)
    t.ok(
      lines.some((line) => line.includes(`reset`) && line.includes(aim)),
      aim,
    )
})

t.test('a bug in the code is found, and its history is reduced to the relevant faults', async (t) => {
  // One that the first seeds find, since reducing a history runs it many times.
  const compiled = await compileWorker(findMutation('cache-never-asks'))
  t.teardown(compiled.remove)
  const { failures } = await runCampaign({ compiled, from: 1, seeds: 60, untilFailure: true, workers: 1 })
  const [first] = failures
  t.ok(first, 'found')
  const whole = await readHistory(compiled, { kind: 'replay', seed: first!.seed, faults: null })
  const smallest = await readHistory(compiled, { kind: 'shrink', seed: first!.seed })
  t.strictSame(whole.violation, first!.violation, 'the replay fails in the same way')
  t.equal(smallest.violation?.rule, first!.violation.rule)
  t.ok(
    smallest.faults.length < whole.faults.length,
    `${smallest.faults.length} of ${whole.faults.length} faults`,
  )
  t.ok(smallest.lines.some((line) => line.includes('VIOLATION')))
})

t.test('every mutation applies to the code as it is', async (t) => {
  for (const mutation of MUTATIONS) t.doesNotThrow(() => replaced(mutation), mutation.name)
})

t.test('a mutation whose text is not in the code is an error', async (t) => {
  const missing = { file: 'src/vault/refresh/refresh.ts', find: 'no such text', put: '' }
  await t.rejects(compileWorker(missing), /must occur once/)
  await t.rejects(compileWorker({ file: 'src/main.ts', find: 'parseConfig }', put: '' }), /no simulated code/)
})
