// The core of every table: candidates take turns in rounds of new processes, and each figure is a median of the rounds.
import { say } from './page.mjs'

/** Most candidates beside the reference. With more, each would wait so long for its turn that it is slow again. */
const GROUP = 3

/**
 * Compares candidates in groups of up to three, with the reference in each. The groups are the same in every round; every
 * second round is in reverse order. Each round starts new processes, since the compiler of Node decides again in each. The
 * processes of a group are warmed up and then loaded in turns, so that they have the same age, and other work on the
 * machine, which comes and goes, slows all of them alike.
 *
 * `start(candidate)` resolves with `{ warmUp, load, stop }`; the first two get seconds. `figuresOf(loads)` returns numbers
 * by name. Resolves with `{ rows, noise }`. Rows are the candidates with the medians of their rounds: `figures`, and
 * `times`, divided by the reference beside it; each `{ middle, least, most }` by name. `noise`: which difference of the
 * figures `judgedBy` a run can resolve, in percent; null: unknown.
 */
export async function compare({ candidates, reference, options, start, figuresOf, judgedBy }) {
  const { rounds, seconds, warmup, turnSeconds = 1 } = options
  const others = candidates.filter((candidate) => candidate !== reference)
  const groups = groupsOf(others)
  const reversed = groups.map((group) => group.toReversed()).toReversed()
  const beside = candidates.includes(reference) ? [reference] : []
  const results = new Map(candidates.map(({ name }) => [name, []]))
  for (let round = 1; round <= rounds; round += 1) {
    const add = ({ name }, loads, besideLoads) => {
      const figures = figuresOf(loads)
      say(`round ${round}: ${name} ${JSON.stringify(figures)}`)
      results.get(name).push({ figures, times: timesOf(figures, figuresOf(besideLoads)) })
    }
    const ofReference = []
    for (const group of round % 2 === 1 ? groups : reversed) {
      const running = []
      for (const candidate of [...group, ...beside])
        running.push({ candidate, loads: [], ...(await start(candidate)) })
      await takeTurns(warmup, turnSeconds, async (part) => {
        for (const { warmUp } of running) await warmUp(part)
      })
      await takeTurns(seconds, turnSeconds, async (part) => {
        for (const { load, loads } of running) loads.push(await load(part))
      })
      for (const { stop } of running) await stop()
      const besideLoads = running.at(-1).loads
      for (const { candidate, loads } of running.slice(0, group.length)) add(candidate, loads, besideLoads)
      if (beside.length > 0) ofReference.push(...besideLoads)
    }
    if (beside.length > 0) add(reference, ofReference, ofReference)
  }
  const noises = judgedBy.map((key) => noiseOf(results, key))
  return { rows: mediansOf(candidates, results), noise: noises.includes(null) ? null : Math.max(...noises) }
}

async function takeTurns(seconds, turnSeconds, turn) {
  const turns = Math.max(1, Math.round(seconds / turnSeconds))
  for (let each = 0; each < turns; each += 1) await turn(seconds / turns)
}

/** Groups of nearly equal size: a candidate that is alone with the reference waits for fewer turns than the others. */
function groupsOf(candidates) {
  const count = Math.max(1, Math.ceil(candidates.length / GROUP))
  const from = (at) => Math.round((at * candidates.length) / count)
  return Array.from({ length: count }, (_, at) => candidates.slice(from(at), from(at + 1)))
}

function timesOf(figures, beside) {
  return Object.fromEntries(Object.entries(figures).map(([key, value]) => [key, value / beside[key]]))
}

/** The sum of one figure of some loads. */
export function total(loads, key) {
  return loads.reduce((sum, load) => sum + load[key], 0)
}

function mediansOf(candidates, results) {
  return candidates.map((candidate) => {
    const rounds = results.get(candidate.name)
    const spreads = (kind) =>
      Object.fromEntries(
        Object.keys(rounds[0][kind]).map((key) => [key, spreadOf(rounds.map((round) => round[kind][key]))]),
      )
    return { ...candidate, figures: spreads('figures'), times: spreads('times') }
  })
}

function spreadOf(values) {
  return { least: Math.min(...values), middle: median(values), most: Math.max(...values) }
}

function median(values) {
  const sorted = values.toSorted((a, b) => a - b)
  const middle = sorted.length >> 1
  return sorted.length % 2 === 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2
}

/**
 * By two equal candidates, `name` and `name-again`: how far their medians are apart, or twice the standard error of the
 * median, which is 1.25 times that of the mean. null: too few rounds.
 */
function noiseOf(results, key) {
  const name = [...results.keys()].find((each) => results.has(`${each}-again`))
  const [first, second] = [name, `${name}-again`].map((each) => results.get(each) ?? [])
  if (first.length < 3) return null
  const ratios = second.map(({ times }, round) => times[key] / first[round].times[key])
  const mean = ratios.reduce((sum, ratio) => sum + ratio, 0) / ratios.length
  const variance = ratios.reduce((sum, ratio) => sum + (ratio - mean) ** 2, 0) / (ratios.length - 1)
  const middle = median(ratios)
  return 100 * Math.max(Math.abs(middle - 1), (2 * 1.2533 * Math.sqrt(variance / ratios.length)) / middle)
}
