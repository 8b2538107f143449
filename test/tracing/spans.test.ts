import t from 'tap'
import { createLog } from '../../src/log.ts'
import { startTracing } from '../../src/tracing/spans.ts'
import type { LiveSession } from '../../src/vault/session.ts'
import { StoreUnavailable } from '../../src/vault/store/store.ts'
import { configOf } from '../config/environment.ts'
import { startCollector } from '../flows/collector.ts'

t.test('the span of a refresh that throws tells a store that is away from a defect', async (t) => {
  for (const [thrown, errorType] of [
    [new StoreUnavailable('no connection'), 'store_unavailable'],
    [new TypeError('a defect'), 'internal_error'],
  ] as const) {
    const collector = await startCollector(t)
    const config = configOf({
      OTEL_EXPORTER_OTLP_ENDPOINT: collector.url,
      OTEL_EXPORTER_OTLP_PROTOCOL: 'http/json',
    })
    const tracing = startTracing(config, config.tracing!, createLog('silent', process.stdout))
    const { refresh } = tracing.wrapRefresh({
      refresh: () => Promise.reject(thrown),
      closeAt: () => {},
      settled: async () => {},
    })
    const session = { key: '0'.repeat(64) } as unknown as LiveSession
    await t.rejects(refresh(session, 'schedule'), thrown)
    await tracing.close()
    t.match(collector.spans(), [{ name: 'refresh', attributes: { 'error.type': errorType } }])
  }
})
