import { readFileSync } from 'node:fs'

/** An operation that a file declares; the server checks the rest of it. */
export interface DeclaredOperation {
  name: string
  method: string
  /** As a route pattern. */
  url: string
}

/** The operations of the file that the server reads as `OPERATIONS_FILE`. Throws if it is no such file. */
export function readDeclaredOperations(path: string): DeclaredOperation[] {
  const { operations } = JSON.parse(readFileSync(path, 'utf8')) as {
    operations: Record<string, { method: string; path: string }>
  }
  return Object.entries(operations).map(([name, { method, path }]) => ({
    name,
    method,
    url: path.replace(/\{(\w+)\}/g, ':$1'),
  }))
}
