import type { Fault } from './faults.ts'
import { type SimulationResult, simulate } from './simulate.ts'

/**
 * The faults of a failing history that matter: without any one of them the same rule holds. Leaves out halves,
 * then quarters, and so on down to single faults.
 */
export async function shrink(failed: SimulationResult): Promise<SimulationResult> {
  const { seed, violation } = failed
  let smallest = failed
  for (let parts = 2; smallest.faults.length > 0; ) {
    const { faults } = smallest
    const size = Math.max(1, Math.ceil(faults.length / parts))
    let smaller: SimulationResult | null = null
    for (let at = 0; at < faults.length && smaller === null; at += size) {
      const kept: Fault[] = [...faults.slice(0, at), ...faults.slice(at + size)]
      const result = await simulate(seed, { faults: kept })
      if (result.violation?.rule === violation!.rule) smaller = result
    }
    if (smaller !== null) {
      smallest = smaller
      parts = Math.max(2, parts - 1)
    } else if (size === 1) break
    else parts = Math.min(faults.length, parts * 2)
  }
  return await simulate(seed, { faults: smallest.faults, trace: true })
}
