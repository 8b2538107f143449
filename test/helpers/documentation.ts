// The code blocks and tables of a documentation page, for tests that run them or compare them with the code.

import { readFileSync } from 'node:fs'

export interface CodeBlock {
  /** The heading above it, without `#`. */
  readonly heading: string
  /** What follows the three backticks, perhaps nothing. */
  readonly language: string
  readonly code: string
}

/** The code blocks of a page such as `docs/spa.md`, in order. Blocks inside a list lose its indentation. */
export function codeBlocks(page: string): CodeBlock[] {
  const text = readPage(page)
  let heading = ''
  const pieces = text.matchAll(/^#+ ([^\n]+)$|^( *)```(\w*)\n(.*?)^ *```$/gms)
  return [...pieces].flatMap(([, title, indentation = '', language, code = '']) => {
    if (title !== undefined) heading = title
    if (language === undefined) return []
    return [{ heading, language, code: code.replaceAll(new RegExp(`^${indentation}`, 'gm'), '') }]
  })
}

/** The one block of this language below a heading. */
export function codeBlock(page: string, heading: string, language: string): string {
  const found = codeBlocks(page).filter((block) => block.heading === heading && block.language === language)
  if (found.length !== 1)
    throw new Error(`${page} has ${found.length} blocks of ${language} below "${heading}"`)
  return found[0]!.code
}

/** The rows of the tables below a heading, without their heads: the cells without the blanks around them. */
export function tableRows(page: string, heading: string): string[][] {
  const section = readPage(page)
    .split(/^#+ /m)
    .find((text) => text.startsWith(`${heading}\n`))
  if (section === undefined) throw new Error(`${page} has no heading "${heading}"`)
  return [...section.matchAll(/^(?!.*\n\|[-|: ]+\|$)\|(?![-|: ]+\|$)(.*)\|$/gm)].map(([, cells]) =>
    cells!.split('|').map((cell) => cell.trim()),
  )
}

function readPage(page: string): string {
  return readFileSync(new URL(`../../${page}`, import.meta.url), 'utf8')
}
