import t from 'tap'
import { cacheControlFor } from '../../src/spa/files.ts'

const HASHED = [
  'app-3f9c2b1a.js',
  'static/js/main.3f9c2b1a.chunk.js',
  'main.3f9c2b1a.chunk.js.map',
  'styles.0123456789abcdef0123.css',
  'chunk-KZ3JQ2A7.js',
  'assets/index-DiwrgTd4.js',
  'assets/vendor-D_x-3fAb.css',
  'nested/assets/logo-B1a2C3d4.svg',
]

const PLAIN = [
  'index.html',
  'main.js',
  'my-document.pdf',
  'report-20240101.pdf',
  'hero-iPhone15.png',
  'apple-touch-icon.png',
  'polyfill-facedeed.js',
  'assets/background.png',
  'assets/hero-background.png',
  'app-3f9c2b1.js',
  'font-v12-latin-regular.woff2',
  '3f9c2b1a',
]

t.test('browsers keep a file with a content hash in its name for a year', async (t) => {
  for (const path of HASHED) t.equal(cacheControlFor(path), 'public, max-age=31536000, immutable', path)
})

t.test('browsers revalidate a file without a content hash on each use', async (t) => {
  for (const path of PLAIN) t.equal(cacheControlFor(path), 'no-cache', path)
})
