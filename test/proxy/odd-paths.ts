const LONG = 'a'.repeat(128)
const WIDE = 'W'.repeat(64)

const words = (text: string): string[] => text.trim().split(/\s+/)

export const GOOD: readonly (readonly [target: string, upstream: string])[] = [
  ['/flux/a', '/DEMO/flux/a?format=JSON'],
  ['/flux/A-b_9/x', '/A-b_9/flux/x?format=JSON'],
  ['/flux/a.b~c-d_e', '/DEMO/flux/a.b~c-d_e?format=JSON'],
  ['/flux/...', '/DEMO/flux/...?format=JSON'],
  ['/flux/a..b', '/DEMO/flux/a..b?format=JSON'],
  ['/flux/%61%2Db', '/DEMO/flux/a-b?format=JSON'],
  ['/flux/0', '/DEMO/flux/0?format=JSON'],
  [`/flux/${LONG}`, `/DEMO/flux/${LONG}?format=JSON`],
  [`/flux/${WIDE}/a`, `/${WIDE}/flux/a?format=JSON`],
  ['/flux/my.account~2/a', '/my.account~2/flux/a?format=JSON'],
  ['/flux/.../a', '/.../flux/a?format=JSON'],
  ['/flux/flux/flux', '/flux/flux/flux?format=JSON'],
]

/** Each is 400 and never leaves this server. */
export const BAD_FLUX = [
  ...words(`. .. %2e %2e%2e .%2e %2E%2E a%2fb a%2Fb %2f %2f%2f ..%2f.. ..%2fInfrastructure%2fSite%2f1 %2e%2e%2fx
    a%5cb %5c..%5c a\\b a%00 %00 a%0d%0ab a%0a a%09b a%20b %20 a%20 a+b a;b a;x=1 a%3bb a:b a@b a,b a=b a&b a!b
    a$b a'b a(b) a* a%25b a%252fb %252e%252e a%3fb a%3Fformat=XML a%23b a"b a<b> a|b a^b a\`b a{b} a[b] é
    %c3%a9 %c0%ae%c0%ae %e2%80%ae %ef%bc%8f`),
  `${LONG}a`,
  'a'.repeat(4_000),
]

export const BAD_WAC = [
  ...words('. .. %2e%2e %2e .%2E a%2fb %2f a%5cb a%20b a%00 a%0d%0a a;b a:b a@b %c3%a9 a%25 a+b'),
  `${WIDE}W`,
]

export const BAD_SITE =
  words(`a 1a -1 +1 1.0 1.5 1e3 0x1 1_000 %31%2f 1%2f2 .. %2e%2e %20 1%20 1%00 1;2 ١ %d9%a1
  9007199254740992 9007199254740993 99999999999999999 10000000000000000 00000000000000001
  1.json.json .json 1.JSON 1.xml 1.jsonx NaN Infinity null`)
