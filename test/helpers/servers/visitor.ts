// A person at the pages of an authorization server: cookies, redirects and forms, without scripts.

/** A page on which the visitor stays, or the address outside the server that it was sent to. */
export interface Page {
  readonly url: string
  readonly status: number
  readonly text: string
  /** Sent back to the application. */
  readonly isBack: boolean
}

/** How to fill in a form. */
export interface Filling {
  /** Which form of the page, by its HTML. Default: the first. */
  readonly form?: RegExp
  /** Which button, by its tag. Default: the first. */
  readonly button?: RegExp
  readonly values?: Readonly<Record<string, string>>
}

export type Visitor = ReturnType<typeof createVisitor>

const MOST_REDIRECTS = 15

/** A person with an empty browser. Nothing is sent to `publicUrl`: a redirect there ends a walk. */
export function createVisitor(publicUrl: string) {
  const jar = new Map<string, { host: string; path: string; pair: string }>()

  async function send(method: string, url: string, body?: string, type = 'application/json') {
    const { hostname, pathname, origin } = new URL(url)
    const cookies = [...jar.values()].filter(
      ({ host, path }) => host === hostname && pathname.startsWith(path),
    )
    const response = await fetch(url, {
      method,
      redirect: 'manual',
      headers: {
        accept: 'text/html,*/*;q=0.8',
        'accept-language': 'en',
        ...(cookies.length === 0 ? {} : { cookie: cookies.map(({ pair }) => pair).join('; ') }),
        ...(body === undefined ? {} : { 'content-type': type, origin, referer: url }),
      },
      ...(body === undefined ? {} : { body }),
    })
    for (const line of response.headers.getSetCookie()) keep(hostname, line)
    return response
  }

  function keep(host: string, line: string): void {
    const [pair = '', ...attributes] = line.split(/; */)
    const path = /(?:^|;) *path=([^;]+)/i.exec(attributes.join(';'))?.[1] ?? '/'
    const key = `${host} ${path} ${pair.slice(0, pair.indexOf('='))}`
    const isOver = /max-age=0|expires=Thu, 01[ -]Jan[ -]1970/i.test(line)
    if (isOver) jar.delete(key)
    else jar.set(key, { host, path, pair })
  }

  async function walk(method: string, start: string, body?: string): Promise<Page> {
    let response: Response | null = null
    let url = start
    for (let redirects = 0; redirects <= MOST_REDIRECTS; redirects += 1) {
      if (url.startsWith(`${publicUrl}/`)) return { url, status: 0, text: '', isBack: true }
      response =
        response === null
          ? await send(method, url, body, 'application/x-www-form-urlencoded')
          : await send('GET', url)
      const text = await response.text()
      const location = response.headers.get('location')
      if (location === null) return { url, status: response.status, text, isBack: false }
      url = new URL(location, url).href
    }
    throw new Error(`more than ${MOST_REDIRECTS} redirects, the last to ${url}`)
  }

  return {
    /** One request with the cookies, as a script of the page would send it. */
    send,
    /** Follows redirects from this address. */
    go: (url: string) => walk('GET', url),
    /** Submits a form of the page. */
    submit(page: Page, { form = /(?:)/, button = /(?:)/, values = {} }: Filling = {}): Promise<Page> {
      const found = formsOf(page).find(({ html }) => form.test(html))
      if (found === undefined)
        throw new Error(`no such form on ${page.url}: ${page.status} ${page.text.slice(0, 2_000)}`)
      const pressed = found.buttons.find(({ tag }) => button.test(tag))
      const fields = new URLSearchParams(found.fields)
      if (pressed?.name !== undefined) fields.set(pressed.name, pressed.value ?? '')
      for (const [name, value] of Object.entries(values)) fields.set(name, value)
      const { action } = found
      return found.isGet
        ? walk('GET', `${action.split('?')[0]}?${fields}`)
        : walk('POST', action, fields.toString())
    },
  }
}

function formsOf({ url, text }: Page) {
  return [...text.matchAll(/<form\b([^>]*)>(.*?)<\/form>/gis)].map(([html, tag = '', inside = '']) => {
    const controls = [...inside.matchAll(/<(input|button|textarea)\b([^>]*)>/gis)].map(
      ([control, kind = '', attributes = '']) => {
        const type = attributeOf(attributes, 'type') ?? (kind.toLowerCase() === 'button' ? 'submit' : 'text')
        const isOff = /^(?:checkbox|radio)$/i.test(type) && !/\bchecked\b/i.test(attributes)
        const [name, value] = [attributeOf(attributes, 'name'), attributeOf(attributes, 'value')]
        return { tag: control, isButton: /^(?:submit|image)$/i.test(type), isOff, name, value }
      },
    )
    return {
      html,
      action: new URL(attributeOf(tag, 'action') || url, url).href,
      isGet: (attributeOf(tag, 'method') ?? 'get').toLowerCase() === 'get',
      buttons: controls.filter(({ isButton }) => isButton),
      fields: controls.flatMap(({ isButton, isOff, name, value }): [string, string][] =>
        isButton || isOff || name === undefined ? [] : [[name, value ?? '']],
      ),
    }
  })
}

const ENTITIES: Readonly<Record<string, string>> = { amp: '&', quot: '"', lt: '<', gt: '>', apos: "'" }

function attributeOf(tag: string, name: string): string | undefined {
  const [, double, single, bare] =
    new RegExp(`(?:^|\\s)${name}\\s*=\\s*(?:"([^"]*)"|'([^']*)'|([^\\s"'>]+))`, 'i').exec(tag) ?? []
  return (double ?? single ?? bare)?.replace(/&(?:#x([\da-f]+)|#(\d+)|(\w+));/gi, (text, hex, code, word) =>
    hex !== undefined || code !== undefined
      ? String.fromCodePoint(Number.parseInt(hex ?? code, hex === undefined ? 10 : 16))
      : (ENTITIES[word] ?? text),
  )
}
