// Loaded into the profiled process by `--import`. SIGUSR2 starts the recording, and the next one ends it: the
// process then writes the time and the allocations of each place in its sources to BENCH_PROFILE, as JSON.
import { writeFileSync } from 'node:fs'
import { Session } from 'node:inspector/promises'
import { findSourceMap } from 'node:module'

const ALLOCATION_BYTES = 16_384
const SAMPLE_MICROSECONDS = 500

// A bundle holds files of `src/` and of packages.
process.setSourceMapsEnabled(true)

let session = null

process.on('SIGUSR2', async () => {
  if (session === null) {
    session = new Session()
    session.connect()
    await session.post('Profiler.enable')
    await session.post('Profiler.setSamplingInterval', { interval: SAMPLE_MICROSECONDS })
    await session.post('HeapProfiler.startSampling', {
      samplingInterval: ALLOCATION_BYTES,
      includeObjectsCollectedByMajorGC: true,
      includeObjectsCollectedByMinorGC: true,
    })
    await session.post('Profiler.start')
    return
  }
  const { profile: time } = await session.post('Profiler.stop')
  const { profile: allocations } = await session.post('HeapProfiler.stopSampling')
  for (const node of time.nodes) node.callFrame = sourceOf(node.callFrame)
  nameSources(allocations.head)
  writeFileSync(process.env.BENCH_PROFILE, JSON.stringify({ time, allocations }))
})

function nameSources(node) {
  node.callFrame = sourceOf(node.callFrame)
  for (const child of node.children) nameSources(child)
}

/** The function before it was bundled. */
function sourceOf(frame) {
  const entry = findSourceMap(frame.url)?.findEntry(frame.lineNumber, frame.columnNumber)
  if (entry?.originalSource === undefined) return frame
  return { ...frame, url: entry.originalSource, lineNumber: entry.originalLine }
}
