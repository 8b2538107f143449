import { formsOf, hideForms } from '../../src/oauth/foreign-text.ts'
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
const WORDS = { ok: 'ok', warning: 'warn', fault: 'FAULT' } as const

export function createReport(options: {
  json: boolean
  out: (line: string) => void
  error: (line: string) => void
}): Report {
  const { json, out, error } = options
  const forms = new Set<string>()
  const findings: Finding[] = []

  const clean = (text: string): string => inAscii(hideForms(text, forms))

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
      for (const form of formsOf(secret)) forms.add(form)
    },
    quote: (text) => clean(text.replace(/\s+/g, ' ').trim()).slice(0, QUOTED),
  }
}
