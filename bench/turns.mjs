// Measures candidates in turns with a reference.

/** Shorter loads would be mostly the opening of connections; wrk knows whole seconds only. */
const TURN_SECONDS = 1
/** The warm-up before a further kind of load, as a share of the first: most of the code is the same. */
const FURTHER_WARMUP = 1 / 3

/** How many turns a load of so many seconds has. */
export function turnsOf(seconds) {
  return Math.max(1, Math.round(seconds / TURN_SECONDS))
}

/**
 * Starts every candidate anew in each round, since the compiler of Node decides again in each process; the order is
 * reversed in every second round. After a warm-up a candidate and the reference are loaded in turns of a second, so
 * that other work on the machine, which comes and goes, slows both alike. The other candidates do not run meanwhile:
 * a process that waits ten seconds for its turn is slow again.
 *
 * `reference` is one of the candidates, or undefined. `start(candidate)` resolves with `{warmUp, takeTurn, stop}`; the
 * first two get a kind of load and seconds, and `takeTurn` resolves with what the load cost. `add` receives
 * `{round, kind, candidate, loads, besideLoads}` once for each round, kind and candidate: its loads, and those of the
 * reference in the same turns.
 */
export async function compareInTurns({ candidates, reference, kinds, options, start, add }) {
  const { rounds, seconds, warmupSeconds } = options
  const others = candidates.filter((candidate) => candidate !== reference)
  const turns = turnsOf(seconds)
  const turnSeconds = seconds / turns

  async function warmUp(running) {
    for (const [at, kind] of kinds.entries())
      await running.warmUp(kind, warmupSeconds * (at === 0 ? 1 : FURTHER_WARMUP))
  }

  for (let round = 1; round <= rounds; round += 1) {
    const beside = reference === undefined ? null : await start(reference)
    if (beside !== null) await warmUp(beside)
    const allBeside = new Map(kinds.map((kind) => [kind, []]))
    for (const candidate of round % 2 === 1 ? others : others.toReversed()) {
      const running = await start(candidate)
      await warmUp(running)
      for (const kind of kinds) {
        const loads = []
        const besideLoads = []
        // The reference has waited since the last candidate, and this kind of load comes first again for both.
        await beside?.warmUp(kind, turnSeconds)
        if (kinds.length > 1) await running.warmUp(kind, turnSeconds)
        for (let turn = 1; turn <= turns; turn += 1) {
          loads.push(await running.takeTurn(kind, turnSeconds))
          if (beside !== null) besideLoads.push(await beside.takeTurn(kind, turnSeconds))
        }
        add({ round, kind, candidate, loads, besideLoads })
        allBeside.get(kind).push(...besideLoads)
      }
      await running.stop()
    }
    if (beside === null) continue
    for (const [kind, loads] of allBeside)
      add({ round, kind, candidate: reference, loads, besideLoads: loads })
    await beside.stop()
  }
}
