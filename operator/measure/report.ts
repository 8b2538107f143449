import { inAscii } from '../in-ascii.ts'

/** One fact of this account, measured. */
export interface Finding {
  readonly check: string
  /** `fault`: users cannot work; `warning`: they notice it, or a setting is to be changed. */
  readonly verdict: 'ok' | 'warning' | 'fault'
  /** What was measured, for programs. */
  readonly value: string | number | boolean | null
  /** The same in words, with the consequence. */
  readonly message: string
  /** A line for the environment, or null. */
  readonly setting: string | null
}

/** A finding before it is cleaned: `ok`, without value and setting, unless it says otherwise. */
export type Draft = Partial<Omit<Finding, 'check'>> & Pick<Finding, 'message'>

/** What the operator sees. Everything passes the list of secrets, and only printable ASCII is printed. */
export interface Report {
  add(check: string, finding: Draft): void
  /** Text for a person: with `--json` it goes to stderr. */
  say(text: string): void
  /** An address for the operator's browser, secrets included. */
  show(check: string, address: string, message: string): void
  /** From now on this text is replaced wherever it would be printed. */
  hide(secret: string): void
  /** At most 200 characters of the platform's text, to be part of a message. */
  quote(text: string): string
  readonly findings: readonly Finding[]
}

const QUOTED = 200
const HIDDEN = '***'
const WORDS = { ok: 'ok', warning: 'warn', fault: 'FAULT' } as const

export function createReport(options: {
  json: boolean
  out: (line: string) => void
  error: (line: string) => void
}): Report {
  const { json, out, error } = options
  const forms = new Set<string>()
  const findings: Finding[] = []

  const clean = (text: string): string => {
    // Long ones first: one may be part of another.
    const longest = [...forms].sort((one, other) => other.length - one.length)
    return inAscii(longest.reduce((left, form) => left.replaceAll(form, HIDDEN), text))
  }

  return {
    findings,
    add(check, { verdict = 'ok', value = null, message, setting = null }) {
      const cleaned = typeof value === 'string' ? clean(value).slice(0, QUOTED) : value
      const line = setting === null ? null : clean(setting)
      const finding = { check, verdict, value: cleaned, message: clean(message), setting: line }
      findings.push(finding)
      if (json) return out(JSON.stringify(finding))
      out(`${WORDS[verdict].padEnd(6)}${check.padEnd(22)}${finding.message}`)
      if (line !== null) out(`${' '.repeat(28)}${line}`)
    },
    show(check, address, message) {
      if (json) out(JSON.stringify({ check, verdict: 'ok', value: address, message, setting: null }))
      else out(`${message}:\n\n  ${address}\n`)
    },
    say: (text) => (json ? error : out)(clean(text)),
    hide(secret) {
      if (secret.length < 4) return
      for (const form of formsOf(secret)) forms.add(form)
    },
    quote: (text) => clean(text.replace(/\s+/g, ' ').trim()).slice(0, QUOTED),
  }
}

/** A text as it is, percent-encoded, and in base64 at each of the three places where it may begin. */
function formsOf(text: string): string[] {
  const encoded = encodeURIComponent(text)
  const form = new URLSearchParams({ x: text }).toString().slice(2)
  const bytes = Buffer.from(text)
  const base64 = [0, 1, 2].map((before) => {
    const whole = Buffer.concat([Buffer.alloc(before), bytes]).toString('base64')
    // The first and the last characters also hold bits of what stands beside the text.
    const from = Math.ceil((before * 4) / 3)
    const to = Math.floor(((before + bytes.length) * 4) / 3)
    return whole.slice(from, to)
  })
  const lower = (value: string): string => value.replace(/%[0-9A-F]{2}/g, (code) => code.toLowerCase())
  return [text, encoded, lower(encoded), form, lower(form), ...base64, ...base64.map(toUrl)].filter(
    (each) => each.length >= 4,
  )
}

function toUrl(base64: string): string {
  return base64.replaceAll('+', '-').replaceAll('/', '_')
}
