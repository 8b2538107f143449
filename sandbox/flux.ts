import { createHash } from 'node:crypto'
import { csvText, type Format, jsvText } from './formats.ts'
import { escapeMarkup } from './html.ts'

/**
 * The document does not show the body of a Flux. This one is invented: a named series of numbers with
 * timestamps, one every five seconds up to now. It contains values that a careless client corrupts:
 * an integer beyond 2^53, times with seven fractional digits, decimals that end in zero.
 */
interface Flux {
  id: bigint
  fluxId: string
  wac: string
  name: string
  unit: string
  updateDate: string
  values: readonly { date: string; value: string }[]
}

const STEP_MS = 5_000

const NAMED: Readonly<Record<string, { name: string; unit: string; middle: number; swing: number }>> = {
  temperature: { name: 'Outdoor temperature', unit: '°C', middle: 12, swing: 8 },
  power: { name: 'Electric power', unit: 'kW', middle: 140, swing: 60 },
  water: { name: 'Cold water', unit: 'm³/h', middle: 3, swing: 2 },
}

/** The series at `now`. It changes every five seconds and depends only on the time. */
export function fluxAt({
  wac,
  fluxId,
  count,
  now,
}: {
  wac: string
  fluxId: string
  count: number
  /** Epoch milliseconds. */
  now: number
}): Flux {
  const seed = createHash('sha256').update(`${wac}/${fluxId}`).digest()
  const series = (Object.hasOwn(NAMED, fluxId) ? NAMED[fluxId] : undefined) ?? {
    name: `Series ${fluxId}`,
    unit: '1',
    middle: 50,
    swing: 50,
  }
  const last = Math.floor(now / STEP_MS)
  const phase = seed.readUInt16BE(0)
  const values = Array.from({ length: count }, (_, index) => {
    const step = last - count + 1 + index
    const value = series.middle + series.swing * Math.sin((step + phase) / 30)
    return { date: sevenDigits(step * STEP_MS, 1234567 + (step % 1000)), value: value.toFixed(2) }
  })
  return {
    id: 9_007_199_254_740_993n + BigInt(seed.readUInt32BE(2)) * 2n,
    fluxId,
    wac,
    name: series.name,
    unit: series.unit,
    updateDate: sevenDigits(last * STEP_MS, 1234567),
    values,
  }
}

/** ISO 8601 UTC with seven fractional digits and `Z` (document section 2.1), the digits given. */
function sevenDigits(epochMs: number, digits: number): string {
  return new Date(epochMs)
    .toISOString()
    .replace(/\.\d+Z$/, `.${String(digits % 10_000_000).padStart(7, '0')}Z`)
}

/** The series in one of the four formats. */
export function renderFlux(flux: Flux, format: Format): string {
  switch (format) {
    case 'JSON':
      return renderJson(flux)
    case 'XML':
      return renderXml(flux)
    case 'CSV':
      return renderCsv(flux)
    case 'JSV':
      return renderJsv(flux)
  }
}

// Written by hand: JSON.stringify has no 64-bit integers and drops the zeros at the end of 21.50.
function renderJson(flux: Flux): string {
  const text = (value: string) => JSON.stringify(value)
  const values = flux.values.map(({ date, value }) => `{"date":${text(date)},"value":${value}}`)
  return (
    `{"wType":"Flux","id":${flux.id},"fluxID":${text(flux.fluxId)},"wac":${text(flux.wac)},` +
    `"name":${text(flux.name)},"unit":${text(flux.unit)},"updateDate":${text(flux.updateDate)},` +
    `"values":[${values.join(',')}]}`
  )
}

function renderXml(flux: Flux): string {
  const values = flux.values.map(({ date, value }) => `<Value date="${date}">${value}</Value>`)
  return (
    `<?xml version="1.0" encoding="utf-8"?>\n<Flux id="${flux.id}" fluxID="${escapeMarkup(flux.fluxId)}" ` +
    `wac="${escapeMarkup(flux.wac)}" name="${escapeMarkup(flux.name)}" unit="${escapeMarkup(flux.unit)}" ` +
    `updateDate="${flux.updateDate}">${values.join('')}</Flux>\n`
  )
}

function renderCsv(flux: Flux): string {
  const front = [String(flux.id), flux.fluxId, flux.name, flux.unit].map(csvText).join(',')
  const lines = flux.values.map(({ date, value }) => `${front},${date},${value}`)
  return `${['id,fluxID,name,unit,date,value', ...lines].join('\r\n')}\r\n`
}

function renderJsv(flux: Flux): string {
  const values = flux.values.map(({ date, value }) => `{date:${date},value:${value}}`)
  return (
    `{wType:Flux,id:${flux.id},fluxID:${jsvText(flux.fluxId)},wac:${jsvText(flux.wac)},name:${jsvText(flux.name)},` +
    `unit:${jsvText(flux.unit)},updateDate:${flux.updateDate},values:[${values.join(',')}]}`
  )
}
