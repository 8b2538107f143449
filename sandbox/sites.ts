import { createHash } from 'node:crypto'

/** The Site of document section 2.1; the wire's own spelling. */
export interface SiteWire {
  wType: 'Site'
  id: number
  name: string
  description: string
  code: string
  parentInfrastructureID: number | null
  creationDate: string
  updateDate: string
  picture: string
}

/** What an UpdateSite request changes. */
export type SiteChange = Partial<Pick<SiteWire, 'name' | 'description' | 'code' | 'parentInfrastructureID'>>

/** The site that does not exist, for tests of that case. */
const MISSING_SITE = 404

const EXAMPLES: Readonly<Record<number, { name: string; description: string; code: string }>> = {
  1: { name: 'Head office', description: 'Main building with canteen', code: 'HQ-01' },
  2: { name: 'North warehouse', description: 'Cold store and loading bays', code: 'WH-02' },
  42: { name: 'Test bench', description: 'Laboratory', code: 'LAB-42' },
}

const EMPTY: Required<SiteChange> = { name: '', description: '', code: '', parentInfrastructureID: null }

export type Sites = ReturnType<typeof createSites>

/**
 * The sites of all accounts, in memory. The document does not say what an unknown id leads to: here
 * every id but 404 exists as soon as it is named, so that a visitor can use any.
 */
export function createSites({ now }: { now: () => number }) {
  const sites = new Map<string, SiteWire>()

  function find(wac: string, id: number): SiteWire | null {
    if (id === MISSING_SITE) return null
    const known = sites.get(`${wac}/${id}`)
    if (known !== undefined) return known
    const created = '2019-03-04T05:06:07.1234567Z'
    return {
      wType: 'Site',
      id,
      ...(EXAMPLES[id] ?? { name: `Site ${id}`, description: '', code: '' }),
      parentInfrastructureID: null,
      creationDate: created,
      updateDate: created,
      picture: createHash('md5').update(`${wac}/${id}`).digest('hex'),
    }
  }

  return {
    /** The site as it is; null where there is none. */
    find,

    /** The site after the change; null where there is none to change. */
    update(wac: string, id: number, change: SiteChange, absent: 'keep' | 'clear'): SiteWire | null {
      const before = find(wac, id)
      if (before === null) return null
      const updateDate = new Date(now()).toISOString().replace('Z', '4567Z')
      const site = { ...before, ...(absent === 'clear' ? EMPTY : {}), ...change, updateDate }
      sites.set(`${wac}/${id}`, site)
      return site
    },
  }
}
