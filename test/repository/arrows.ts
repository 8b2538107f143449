import { posix } from 'node:path'
import ts from 'typescript'

/** Path below src/ (with forward slashes) to the text of the file. */
export type Tree = ReadonlyMap<string, string>

type Room = string

// Files at the top of src, and folders that belong to one of them, that everybody may import and that
// import nothing but each other.
const GROUND = ['clock', 'config', 'errors', 'keyring', 'log', 'paths', 'secret']

const EDGES = ['oauth', 'store']
const STATE = ['session', 'tokens']
const ROUTES = ['login', 'ops', 'proxy', 'spa']

/** Which rooms a room may import, besides itself. Nothing may import what is in no list. */
const MAY_IMPORT: Readonly<Record<Room, readonly Room[]>> = {
  main: ['process', ...GROUND],
  process: ['app', 'ops', ...GROUND],
  sessions: ['operator', 'store', ...GROUND],
  operator: [...STATE, ...EDGES, ...GROUND],
  app: ['http', ...ROUTES, ...STATE, ...EDGES, ...GROUND],
  ...each(ROUTES, ['http', ...STATE, ...EDGES, ...GROUND]),
  http: GROUND,
  ...each(STATE, [...STATE, ...EDGES, ...GROUND]),
  ...each(EDGES, GROUND),
  ...each(GROUND, GROUND),
  // The launcher starts processes, the sandbox is another server, the demo page runs in the browser.
  demo: [],
  sandbox: [],
  'spa/demo': [],
}

const ONLY_IN: Readonly<Record<string, Room>> = { 'openid-client': 'oauth', ioredis: 'store' }

/** Every import in the tree that the house does not allow, each as one sentence; empty when it stands. */
export function findBadArrows(tree: Tree): string[] {
  const faults: string[] = []
  const edges = new Map<string, string[]>()
  for (const [file, text] of tree) {
    const room = roomOf(file)
    const allowed = MAY_IMPORT[room]
    if (allowed === undefined)
      faults.push(`src/${file} is in no known room: give "${room}" its place among the arrows.`)
    if (posix.basename(file) === 'index.ts')
      faults.push(`src/${file} is a barrel: import the file that is meant.`)

    const targets: string[] = []
    for (const specifier of importsOf(text)) {
      if (!specifier.startsWith('.')) {
        faults.push(...packageFaults(file, room, specifier))
        continue
      }
      const target = posix.join(posix.dirname(file), specifier)
      if (target.startsWith('../')) {
        faults.push(`src/${file} imports ${specifier}, which is outside of src.`)
      } else if (!tree.has(target)) {
        faults.push(`src/${file} imports ${specifier}, which does not exist.`)
      } else {
        targets.push(target)
        const into = roomOf(target)
        if (into !== room && allowed !== undefined && !allowed.includes(into)) {
          faults.push(`src/${file} imports src/${target}: ${room} must not import ${into}.`)
        }
      }
    }
    edges.set(file, targets)
  }
  const cycle = findCycle(edges)
  if (cycle !== null) faults.push(`Imports go in a circle: ${cycle.join(' -> ')}.`)
  return faults
}

function packageFaults(file: string, room: Room, specifier: string): string[] {
  const name = packageOf(specifier)
  const only = ONLY_IN[name]
  if (only === undefined || only === room) return []
  return [`src/${file} imports ${name}: only ${only} may import it.`]
}

function roomOf(file: string): Room {
  const [first = '', second, third] = file.split('/')
  if (second === undefined) return first.replace(/\.ts$/, '')
  return first === 'spa' && second === 'demo' && third !== undefined ? 'spa/demo' : first
}

function packageOf(specifier: string): string {
  const parts = specifier.split('/')
  return parts.slice(0, specifier.startsWith('@') ? 2 : 1).join('/')
}

// The compiler's own scan: static, dynamic, type-only and re-exporting imports, and no text that only looks like one.
function importsOf(text: string): string[] {
  return ts.preProcessFile(text, true, true).importedFiles.map((found) => found.fileName)
}

function findCycle(edges: ReadonlyMap<string, readonly string[]>): string[] | null {
  const done = new Set<string>()
  const path: string[] = []
  const visit = (file: string): string[] | null => {
    const seenAt = path.indexOf(file)
    if (seenAt >= 0) return [...path.slice(seenAt), file]
    if (done.has(file)) return null
    path.push(file)
    for (const target of edges.get(file) ?? []) {
      const cycle = visit(target)
      if (cycle !== null) return cycle
    }
    path.pop()
    done.add(file)
    return null
  }
  for (const file of edges.keys()) {
    const cycle = visit(file)
    if (cycle !== null) return cycle
  }
  return null
}

function each(rooms: readonly Room[], allowed: readonly Room[]): Record<Room, readonly Room[]> {
  return Object.fromEntries(rooms.map((room) => [room, allowed]))
}
