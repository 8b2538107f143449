import { readFileSync } from 'node:fs'
import { readOperations } from '../src/config/operations-file.ts'

/** An operation that a file declares; the server checks the rest of it. */
export interface DeclaredOperation {
  name: string
  method: string
  /** As a route pattern. */
  url: string
}

/** The operations of the file that the server reads as `OPERATIONS_FILE`. Throws with every fault that the server would name. */
export function readDeclaredOperations(path: string): DeclaredOperation[] {
  const text = readFileSync(path, 'utf8')
  const { faults } = readOperations(text)
  if (faults.length > 0) throw new Error(faults.join('; '))
  const { operations } = JSON.parse(text) as {
    operations: Record<string, { method: string; path: string }>
  }
  return Object.entries(operations).map(([name, { method, path }]) => ({
    name,
    method,
    url: path.replace(/\{(\w+)\}/g, ':$1'),
  }))
}
