import { readFileSync } from 'node:fs'
import type { Config } from '../../src/config/config.ts'
import { type Operation, pathOfOperation } from '../../src/config/operation.ts'
import { isObject, jsonObject } from '../../src/json.ts'
import type { Secret } from '../../src/secret.ts'
import { asciiJson } from '../in-ascii.ts'
import { type Draft, notMeasured, type Report } from '../report.ts'
import { readOf } from './measure.ts'
import type { Operator } from './operator.ts'
import type { Platform } from './platform.ts'

/** The members of a site that UpdateSite changes (service document, section 4.3). */
interface Members {
  name: string | null
  description: string | null
  code: string | null
  parentInfrastructureID: number | string | null
}

const NAMES = ['name', 'description', 'code', 'parentInfrastructureID'] as const

const ABSENT = 'site absent member'

/** The outcome of an update that has changed nothing. */
const REFUSED = /^status 4\d\d:/

/** An answer that is about the update, and not about the token, the rate or a failure of the server. */
const IS_ABOUT_IT = /^status 4(?!01|29)/

/** What is asked of UpdateSite, one update each. Only the first one leaves members out. */
const QUESTIONS: readonly {
  check: string
  sent: Partial<Members>
  /** The member that shows the result. */
  member: (typeof NAMES)[number]
  kept: string
  cleared: string
}[] = [
  {
    check: ABSENT,
    sent: { name: 'doctor name 2' },
    member: 'description',
    kept: 'an absent member keeps its value',
    cleared: 'an absent member loses its value: pages must send all four (changesOf of the client does)',
  },
  {
    check: 'site null',
    sent: { description: null },
    member: 'description',
    kept: 'null keeps the value: a page cannot clear a text with null',
    cleared: 'null clears the value',
  },
  {
    check: 'site empty text',
    sent: { description: '' },
    member: 'description',
    kept: '"" keeps the value: a page cannot clear a text with it',
    cleared: '"" clears the value',
  },
  {
    check: 'site empty parent',
    sent: { parentInfrastructureID: '' },
    member: 'parentInfrastructureID',
    kept: '"" keeps the parent: a page cannot take a site out of its parent with it',
    cleared: '"" takes the site out of its parent',
  },
]

/** A site that is changed, and put back as it was. */
export interface SiteTest {
  /** Changes the site. */
  run(): Promise<void>
  /** Puts the site back if it was changed, and says what it could not. */
  restore(): Promise<void>
}

/** The members that a file of `--restore` holds; a string says what is wrong with it. */
export function readRestoreFile(path: string): Members | string {
  let value: Record<string, unknown>
  try {
    value = JSON.parse(readFileSync(path, 'utf8')) as Record<string, unknown>
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    return `--restore: the file ${code === undefined ? 'is no JSON' : `cannot be read (${code})`}`
  }
  return (
    membersIn(value) ??
    `--restore: the file must have ${NAMES.join(', ')}: texts or null, the last one a number or null`
  )
}

function membersIn(value: unknown): Members | null {
  if (!isObject(value)) return null
  const { name, description, code, parentInfrastructureID: parent } = value
  const areTexts = [name, description, code].every((text) => typeof text === 'string' || text === null)
  const isParent = parent === null || parent === '' || Number.isSafeInteger(parent)
  if (!areTexts || !isParent) return null
  return { name, description, code, parentInfrastructureID: parent === '' ? null : parent } as Members
}

/** The declared GET of a site. */
export function readOfSite({ operations }: Pick<Config, 'operations'>): Operation | undefined {
  return operations.find(
    (operation) =>
      operation.method === 'GET' &&
      /^\/\{wac\}\/Infrastructure\/Site\/\{\w+\}$/.test(pathOfOperation(operation)),
  )
}

/** The site as a declared GET shows it; null where there is none, or it does not show the four members. */
export async function readSite(
  { platform, config, token }: { platform: Platform; config: Config; token: Secret },
  [wac, id]: readonly [string, string],
): Promise<Members | null> {
  const path = `/${wac}/Infrastructure/Site/${id}`
  const declared = readOfSite(config)
  if (declared === undefined) return null
  const answer = await platform.call(token, { ...readOf(declared), path })
  return typeof answer === 'string' || answer.status !== 200 ? null : membersIn(jsonObject(answer.body))
}

/** `original`: as it is put back. `token`: that of the moment. */
export function createSiteTest({
  platform,
  report,
  operator,
  token,
  place: [wac, id],
  original,
}: {
  platform: Platform
  report: Report
  operator: Pick<Operator, 'check'>
  token: () => Secret
  place: readonly [string, string]
  original: Members
}): SiteTest {
  const path = `/${wac}/Infrastructure/Site/${id}`
  const known = { wType: 'UpdateSite', siteID: Number(id), wac }
  // Each differs from nothing and from the original, so that keeping and clearing can be told apart.
  const marked: Members = {
    name: 'doctor name',
    description: 'doctor description',
    code: 'doctor-code',
    parentInfrastructureID: original.parentInfrastructureID,
  }
  let isChanged = false

  async function update(members: Partial<Members>): Promise<Record<string, unknown> | string> {
    const answer = await platform.call(token(), { method: 'PUT', path, body: { ...members, ...known } })
    if (typeof answer === 'string') return answer
    const site = jsonObject(answer.body)
    if (answer.status === 200 && site !== null) return site
    return `status ${answer.status}: ${report.quote(answer.body) || 'no body'}`
  }

  /** As `update`, unless the operator has stopped the command. */
  async function change(members: Partial<Members>): Promise<Record<string, unknown> | string> {
    operator.check()
    const isFirst = !isChanged
    isChanged = true
    const site = await update(members)
    if (isFirst && typeof site === 'string' && REFUSED.test(site)) isChanged = false
    return site
  }

  async function run(): Promise<void> {
    const before = await change(marked)
    if (typeof before === 'string') {
      const message = `an update with all four members fails (${before})`
      return report.add('site', { verdict: 'fault', message })
    }
    report.add('site', { value: 200, message: 'an update with all four members succeeds' })
    for (const { check, sent, member, ...words } of QUESTIONS) {
      if (marked[member] === null) {
        const message = 'the site has no parent, so an empty parentInfrastructureID shows nothing'
        report.add(check, { value: 'unknown', message })
        continue
      }
      const begun = await change(marked)
      if (typeof begun === 'string') {
        report.add(check, notMeasured(`the update before it failed (${begun})`))
        continue
      }
      if (begun[member] !== marked[member]) {
        report.add(check, notMeasured(`the response to the update before it does not show its ${member}`))
        continue
      }
      const site = await change(check === ABSENT ? sent : { ...marked, ...sent })
      report.add(check, describe(site, member, words))
    }
  }

  function describe(
    site: Record<string, unknown> | string,
    member: (typeof NAMES)[number],
    words: { kept: string; cleared: string },
  ): Draft {
    if (typeof site === 'string')
      return IS_ABOUT_IT.test(site)
        ? { verdict: 'warning', value: 'refused', message: `is refused (${site})` }
        : notMeasured(`the update failed (${site})`)
    const value = site[member]
    if (value === marked[member]) return { value: 'kept', message: words.kept }
    if (value === null || value === undefined || value === '')
      return { value: 'cleared', message: words.cleared }
    return { verdict: 'warning', value: 'other', message: `${member} is now ${report.quote(String(value))}` }
  }

  return {
    run,
    async restore() {
      if (!isChanged) return
      isChanged = false
      const sent = { ...original, ...known }
      const site = await update(original)
      const line = `PUT ${path} ${asciiJson(sent)}`
      if (typeof site === 'string')
        return report.add('site restored', {
          verdict: 'fault',
          value: false,
          message: `NOT restored (${site}). Send it yourself: ${line}`,
        })
      const wrong = NAMES.filter(
        (name) => (site[name] ?? null) !== original[name] && !(original[name] === null && site[name] === ''),
      )
      report.add(
        'site restored',
        wrong.length === 0
          ? { value: true, message: `restored by ${line}` }
          : {
              verdict: 'fault',
              value: false,
              message: `${wrong.join(', ')} could not be restored by ${line}`,
            },
      )
    },
  }
}
