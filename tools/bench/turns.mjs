// Measures candidates in turns with a reference.

/** Shorter loads would be mostly the opening of connections; wrk knows whole seconds only. */
const TURN_SECONDS = 1
/** Most candidates beside the reference. With more, each would wait so long for its turn that it is slow again. */
const GROUP = 3
/** The warm-up before a further kind of load, as a share of the first: most of the code is the same. */
const FURTHER_WARMUP = 1 / 3

/** How many turns a load of so many seconds has. */
function turnsOf(seconds) {
  return Math.max(1, Math.round(seconds / TURN_SECONDS))
}

/**
 * Compares candidates in groups of up to three, with the reference in each. The groups are the same in every round; every
 * second round is in reverse order. Each round starts new processes, since the compiler of Node decides again in each. The
 * processes of a group are warmed up and then loaded in turns of a second, so that they have the same age, and other work
 * on the machine, which comes and goes, slows all of them alike.
 *
 * `reference` is one of the candidates, or undefined. `start(candidate)` resolves with `{warmUp, takeTurn, stop}`; the
 * first two get a kind of load and seconds, and `takeTurn` resolves with what the load cost. `add` receives
 * `{round, kind, candidate, loads, besideLoads}` once for each round, kind and candidate: its loads, and those of the
 * reference in the same turns.
 */
export async function compareInTurns({ candidates, reference, kinds, options, start, add }) {
  const others = candidates.filter((candidate) => candidate !== reference)
  const groups = groupsOf(others)
  const reversed = groups.map((group) => group.toReversed()).toReversed()
  const beside = reference === undefined ? [] : [reference]
  for (let round = 1; round <= options.rounds; round += 1) {
    const ofReference = new Map(kinds.map((kind) => [kind, []]))
    for (const group of round % 2 === 1 ? groups : reversed) {
      const running = []
      for (const candidate of [...group, ...beside])
        running.push({ candidate, loads: [], ...(await start(candidate)) })
      for (const kind of kinds) {
        const warmupShare = kind === kinds[0] ? 1 : FURTHER_WARMUP
        await takeTurns(running, kind, options.seconds, options.warmupSeconds * warmupShare)
        const besideLoads = beside.length === 0 ? [] : running.at(-1).loads
        for (const { candidate, loads } of running.slice(0, group.length))
          add({ round, kind, candidate, loads, besideLoads })
        ofReference.get(kind).push(...besideLoads)
      }
      for (const { stop } of running) await stop()
    }
    for (const [kind, loads] of ofReference)
      if (loads.length > 0) add({ round, kind, candidate: reference, loads, besideLoads: loads })
  }
}

/** Warms all of a group up, then measures them; their `loads` are new. */
async function takeTurns(running, kind, seconds, warmupSeconds) {
  const turns = turnsOf(seconds)
  const warmupTurns = turnsOf(warmupSeconds)
  for (let turn = 0; turn < warmupTurns; turn += 1)
    for (const { warmUp } of running) await warmUp(kind, warmupSeconds / warmupTurns)
  for (const each of running) each.loads = []
  for (let turn = 0; turn < turns; turn += 1)
    for (const each of running) each.loads.push(await each.takeTurn(kind, seconds / turns))
}

/** Groups of nearly equal size: a candidate that is alone with the reference waits for fewer turns than the others. */
function groupsOf(candidates) {
  const count = Math.ceil(candidates.length / GROUP)
  const from = (at) => Math.round((at * candidates.length) / count)
  return Array.from({ length: count }, (_, at) => candidates.slice(from(at), from(at + 1)))
}
