import { formsOf, hideForms } from '../src/oauth/foreign-text.ts'
import { asciiJson, inAscii, printable } from './in-ascii.ts'

/** The result of one check or measurement. */
export interface Finding {
  readonly check: string
  /** `fault`: users cannot work; `warning`: they can, but look at it, or change a setting. */
  readonly verdict: 'ok' | 'warning' | 'fault'
  /** What was found, for programs. */
  readonly value: string | number | boolean | null
  /** The same in words and, unless it is ok, what to do. Holds no secret, and nothing that controls a terminal. */
  readonly message: string
  /** A line for the environment, or null. */
  readonly setting: string | null
}

/** A finding before it is cleaned: `ok`, without value and setting, unless it says otherwise. */
export type Draft = Partial<Omit<Finding, 'check'>> & Pick<Finding, 'message'>

/** The check found what the server needs. */
export function ok(check: string, message: string): Finding {
  return found(check, { message })
}

/** The check found something to look at. */
export function warning(check: string, message: string): Finding {
  return found(check, { verdict: 'warning', message })
}

/** The check found why sign-in or calls fail. */
export function fault(check: string, message: string, setting: string | null = null): Finding {
  return found(check, { verdict: 'fault', message, setting })
}

/** The draft of a measurement without a result. */
export function notMeasured(why: string): Draft {
  return { verdict: 'warning', value: 'not measured', message: `not measured: ${why}` }
}

/** A finding about the environment or a file of the operator, in their own words. */
export function ofEnvironment(verdict: 'warning' | 'fault', text: string): Finding {
  return { check: 'configuration', verdict, value: null, message: printable(text), setting: null }
}

function found(check: string, { verdict = 'ok', value = null, message, setting = null }: Draft): Finding {
  return { check, verdict, value, message: inAscii(message), setting }
}

const WORDS = { ok: 'ok', warning: 'warn', fault: 'FAULT' } as const
const CHECK_WIDTH = 20

/** The finding as text: one line, and a second one for its setting. */
export function toText({ check, verdict, message, setting }: Finding): string {
  const line = `${WORDS[verdict].padEnd(6)}${`${check} `.padEnd(CHECK_WIDTH)}${message}`
  return setting === null ? line : `${line}\n${' '.repeat(6 + CHECK_WIDTH)}${setting}`
}

/** What the operator sees. Everything passes the list of secrets, and only printable ASCII is printed. */
export interface Report {
  add(check: string, finding: Draft): void
  /** Text for a person: with `--json` it goes to stderr. */
  say(text: string): void
  /** A text of many lines in ASCII, to be copied. Returns what is printed: the text without secrets. */
  document(check: string, text: string, message: string): string
  /** An address for the operator's browser, secrets included. */
  show(check: string, address: string, message: string): void
  /** From now on this text is replaced wherever it would be printed. */
  hide(secret: string): void
  /** At most 200 characters of the platform's text, to be part of a message. */
  quote(text: string): string
  readonly findings: readonly Finding[]
}

const QUOTED = 200

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
      const finding = {
        check,
        verdict,
        value: typeof value === 'string' ? clean(value).slice(0, QUOTED) : value,
        message: clean(message),
        setting: setting === null ? null : clean(setting),
      }
      findings.push(finding)
      out(json ? JSON.stringify(finding) : toText(finding))
    },
    show(check, address, message) {
      if (json) out(JSON.stringify({ check, verdict: 'ok', value: address, message, setting: null }))
      else out(`${message}:\n\n  ${address}\n`)
    },
    document(check, text, message) {
      const value = hideForms(text, forms)
      if (json) out(JSON.stringify({ check, verdict: 'ok', value, message, setting: null }))
      else out(`${message}:\n\n${value}\n`)
      return value
    },
    say: (text) => (json ? error : out)(clean(text)),
    hide(secret) {
      const known = formsOf(secret)
      // A document is JSON, which writes some characters otherwise.
      if (known.length > 0) known.push(asciiJson(secret).slice(1, -1))
      for (const form of known) forms.add(form)
    },
    quote: (text) => clean(text.replace(/\s+/g, ' ').trim()).slice(0, QUOTED),
  }
}
