import { createHash } from 'node:crypto'

/** Text escaped for an element or a quoted attribute of HTML or XML. */
export function escapeMarkup(text: string): string {
  return text.replace(/[&<>"']/g, (character) => `&#${character.charCodeAt(0)};`)
}

// 16 px and more in the inputs: phones zoom into a form whose text is smaller.
const STYLE = `
:root { color-scheme: light dark; --ink: #1a2233; --soft: #56617a; --paper: #fff; --ground: #f4f6fa;
  --line: #8791a6; --accent: #2f4bdc; --on-accent: #fff; --alarm: #b3202c; --token: #8b2fa8; }
@media (prefers-color-scheme: dark) { :root { --ink: #e8ecf5; --soft: #a3aec4; --paper: #181e29;
  --ground: #0f131b; --line: #66728a; --accent: #8fa2ff; --on-accent: #0d1330; --alarm: #ff9da4; --token: #e3a0f5; } }
* { box-sizing: border-box; }
body { margin: 0; min-height: 100vh; display: grid; place-items: center; padding: 1rem;
  background: var(--ground); color: var(--ink); font: 1.0625rem/1.5 system-ui, sans-serif; }
main { width: 100%; max-width: 26rem; padding: 1.5rem; border-radius: .875rem; background: var(--paper);
  border-top: .375rem solid var(--token); }
h1 { margin: 0 0 .75rem; font-size: 1.375rem; line-height: 1.25; }
p { margin: 0 0 1rem; overflow-wrap: anywhere; }
form { margin-bottom: 1.25rem; }
form + form { margin-top: -.75rem; }
.soft { color: var(--soft); font-size: .9375rem; }
.alarm { color: var(--alarm); font-weight: 600; }
label { display: block; margin-bottom: .25rem; font-weight: 600; }
input { width: 100%; min-height: 3rem; margin-bottom: 1rem; padding: .5rem .75rem; font: inherit;
  color: inherit; background: transparent; border: 1px solid var(--line); border-radius: .5rem; }
button { width: 100%; min-height: 3rem; margin-top: .5rem; font: inherit; font-weight: 600; cursor: pointer;
  color: var(--accent); background: transparent; border: 1px solid var(--line); border-radius: .5rem; }
a { display: inline-block; color: var(--accent); }
.or { margin: 0 0 .25rem; }
#accept { color: var(--on-accent); background: var(--accent); border-color: var(--accent); }
:focus-visible { outline: 3px solid var(--accent); outline-offset: 2px; }
`

const STYLE_HASH = createHash('sha256').update(STYLE).digest('base64')

/**
 * Header fields of every page. No `form-action` directive: Chromium applies it to the redirect that
 * answers the form, and that redirect leads to the client.
 */
export const PAGE_HEADERS: Readonly<Record<string, string>> = {
  'content-type': 'text/html; charset=utf-8',
  'content-security-policy': `default-src 'none'; style-src 'sha256-${STYLE_HASH}'; base-uri 'none'; frame-ancestors 'none'`,
  'x-content-type-options': 'nosniff',
  'referrer-policy': 'no-referrer',
}

/** A whole page around a body that is HTML already. */
export function page(title: string, body: string): string {
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>${escapeMarkup(title)}</title>
<style>${STYLE}</style>
</head>
<body>
<main>
${body}
</main>
</body>
</html>
`
}
