import { AsyncLocalStorage } from 'node:async_hooks'
import { randomUUID } from 'node:crypto'
import { Agent as HttpAgent } from 'node:http'
import { Agent as HttpsAgent } from 'node:https'
import {
  type Attributes,
  type Context,
  type DiagLogFunction,
  DiagLogLevel,
  diag,
  type Link,
  type Span as OtelSpan,
  ROOT_CONTEXT,
  type SpanKind,
  SpanStatusCode,
  TraceFlags,
  trace,
} from '@opentelemetry/api'
import { ExportResultCode, parseTraceParent } from '@opentelemetry/core'
import { OTLPTraceExporter as JsonExporter } from '@opentelemetry/exporter-trace-otlp-http'
import { OTLPTraceExporter as ProtobufExporter } from '@opentelemetry/exporter-trace-otlp-proto'
import {
  defaultResource,
  detectResources,
  envDetector,
  resourceFromAttributes,
} from '@opentelemetry/resources'
import { BasicTracerProvider, BatchSpanProcessor, type SpanExporter } from '@opentelemetry/sdk-trace-base'
import type { Config } from '../config/config.ts'
import { namedValues } from '../config/kinds.ts'
import { type Logger, logLibraryMessage } from '../log.ts'
import { messageOf } from '../log-text.ts'
import { VERSION } from '../version.ts'

/** A step of the work, from `start` to `end`. */
export interface Span {
  /** 32 hex digits, the same for all spans of one trace. */
  readonly traceId: string
  /** The header value that makes the receiver's span a child of this one (W3C Trace Context). */
  readonly traceparent: string
  /** `error` names in one word why the step failed. */
  end(attributes: Attributes, error?: string): void
}

interface SpanStart {
  kind: SpanKind
  attributes: Attributes
  /** A `traceparent` that was received, or null for a trace of its own. Without it: the current span. */
  parent?: string | null | undefined
}

/** Starts spans and knows the current one. */
export interface Tracer {
  start(name: string, options: SpanStart): Span
  /** Adds a step that has just ended as a child of the current span; nothing where that is absent or has ended. */
  add(name: string, options: SpanStart & { seconds: number; error: string | undefined }): void
  /** Runs `work` and all that follows from it with `span` as the current one. */
  within<T>(span: Span, work: () => T): T
  /** A callback that runs with the present current span, whoever calls it. */
  keep<T>(callback: (value: T) => void): (value: T) => void
  /** Exports what is left, for at most `flushMs`. */
  close(flushMs: number): Promise<void>
}

/** The SDK's span, with the form in which the rest of the server sees it. */
class RunningSpan implements Span {
  readonly otel: OtelSpan

  constructor(otel: OtelSpan) {
    this.otel = otel
  }

  get traceId(): string {
    return this.otel.spanContext().traceId
  }

  get traceparent(): string {
    const { traceId, spanId, traceFlags } = this.otel.spanContext()
    return `00-${traceId}-${spanId}-0${traceFlags & TraceFlags.SAMPLED}`
  }

  end(attributes: Attributes, error?: string): void {
    endSpan(this.otel, attributes, error)
  }
}

/** Spans by OpenTelemetry's SDK, exported in the background; a collector that is away costs the newest spans. */
export function createTracer(config: NonNullable<Config['tracing']>, log: Logger): Tracer {
  const exporter = reportFailures(createExporter(config), log)
  reportMessages(log)
  const provider = new BasicTracerProvider({
    resource: describeProcess(),
    spanProcessors: [new BatchSpanProcessor(exporter)],
  })
  const tracer = provider.getTracer('token-handler-bff', VERSION)
  // Ours and not OpenTelemetry's global one: nothing else in this process starts spans.
  const current = new AsyncLocalStorage<RunningSpan>()

  function start(name: string, { kind, attributes, parent }: SpanStart): RunningSpan {
    const common = { kind, attributes }
    if (typeof parent === 'string') return new RunningSpan(tracer.startSpan(name, common, received(parent)))
    const above = parent === null ? undefined : current.getStore()?.otel
    if (above === undefined) return new RunningSpan(tracer.startSpan(name, common, ROOT_CONTEXT))
    // Timers inherit the span of the request that set them, long after its end.
    if (hasEnded(above)) {
      const links: Link[] = [{ context: above.spanContext() }]
      return new RunningSpan(tracer.startSpan(name, { ...common, links }, ROOT_CONTEXT))
    }
    return new RunningSpan(tracer.startSpan(name, common, trace.setSpan(ROOT_CONTEXT, above)))
  }

  return {
    start,
    add(name, { kind, attributes, seconds, error }) {
      const above = current.getStore()?.otel
      if (above?.isRecording() !== true) return
      const startTime = Date.now() - seconds * 1_000
      const options = { kind, attributes, startTime }
      endSpan(tracer.startSpan(name, options, trace.setSpan(ROOT_CONTEXT, above)), {}, error)
    },
    within: (span, work) => current.run(span as RunningSpan, work),
    keep(callback) {
      const kept = current.getStore()
      return kept === undefined ? callback : (value) => current.run(kept, callback, value)
    },
    async close(flushMs) {
      let timer: NodeJS.Timeout | undefined
      const enough = new Promise<void>((resolve) => {
        timer = setTimeout(resolve, flushMs)
      })
      await Promise.race([provider.shutdown().catch(() => {}), enough])
      clearTimeout(timer)
    },
  }
}

function endSpan(span: OtelSpan, attributes: Attributes, error: string | undefined): void {
  span.setAttributes(attributes)
  if (error !== undefined) {
    span.setAttribute('error.type', error)
    span.setStatus({ code: SpanStatusCode.ERROR })
  }
  span.end()
}

/** A span that is not sampled never records, but goes on as the parent of others that are not. */
function hasEnded(span: OtelSpan): boolean {
  return !span.isRecording() && (span.spanContext().traceFlags & TraceFlags.SAMPLED) !== 0
}

function received(traceparent: string): Context {
  const context = parseTraceParent(traceparent)
  return context === null ? ROOT_CONTEXT : trace.setSpanContext(ROOT_CONTEXT, { ...context, isRemote: true })
}

function describeProcess() {
  const own = resourceFromAttributes({
    'service.name': 'token-handler-bff',
    'service.version': VERSION,
    'service.instance.id': randomUUID(),
    'process.pid': process.pid,
  })
  return defaultResource()
    .merge(own)
    .merge(detectResources({ detectors: [envDetector] }))
}

function createExporter(config: NonNullable<Config['tracing']>): SpanExporter {
  const { url, protocol, headers, ca, clientCertificate, clientKey } = config
  const Exporter = protocol === 'http/json' ? JsonExporter : ProtobufExporter
  return new Exporter({
    url,
    headers: headers === null ? {} : Object.fromEntries(namedValues(headers.reveal()) ?? []),
    httpAgentOptions: (scheme) =>
      scheme === 'http:'
        ? new HttpAgent({ keepAlive: true })
        : new HttpsAgent({
            keepAlive: true,
            // Explicit, so that NODE_TLS_REJECT_UNAUTHORIZED cannot switch the check off.
            rejectUnauthorized: true,
            ...(ca === null ? {} : { ca }),
            ...(clientCertificate === null || clientKey === null
              ? {}
              : { cert: clientCertificate, key: clientKey.reveal() }),
          }),
  })
}

/** Reports the first failure of a row, and its end. The span processor would print each one as raw text. */
function reportFailures(exporter: SpanExporter, log: Logger): SpanExporter {
  let failing = false
  return {
    export(spans, done) {
      exporter.export(spans, ({ code, error }) => {
        const failed = code !== ExportResultCode.SUCCESS
        if (failed && !failing) {
          log.warn(
            { event: 'tracing.failed', reason: error === undefined ? undefined : messageOf(error) },
            'traces cannot be exported and are dropped: check OTEL_EXPORTER_OTLP_ENDPOINT and the collector',
          )
        } else if (!failed && failing) log.info({ event: 'tracing.works' }, 'traces are exported again')
        failing = failed
        done({ code: ExportResultCode.SUCCESS })
      })
    },
    shutdown: () => exporter.shutdown(),
    forceFlush: async () => await exporter.forceFlush?.(),
  }
}

const MESSAGE_EVERY_MS = 60_000

/** Warnings of the SDK go to the log, one a minute at most: while spans are dropped it has one for each batch. */
function reportMessages(log: Logger): void {
  let quietUntil = 0
  const report: DiagLogFunction = (text) => {
    if (performance.now() < quietUntil) return
    quietUntil = performance.now() + MESSAGE_EVERY_MS
    logLibraryMessage(log, text)
  }
  const ignore: DiagLogFunction = () => {}
  diag.setLogger(
    { error: report, warn: report, info: ignore, debug: ignore, verbose: ignore },
    { logLevel: DiagLogLevel.WARN, suppressOverrideMessage: true },
  )
}
