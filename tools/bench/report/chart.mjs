// A bar chart as SVG, readable on light and dark pages and by screen readers.

const WIDTH = 840
const LABEL_WIDTH = 400
const ROW_HEIGHT = 34
const BAR_HEIGHT = 18
const TOP = 52

/** `bars`: `{label, value, text, own}`, in order; `own` bars are highlighted. */
export function barChart({ title, bars }) {
  const height = TOP + bars.length * ROW_HEIGHT + 10
  const room = WIDTH - LABEL_WIDTH - 115
  const most = Math.max(...bars.map(({ value }) => value))
  const rows = bars.map(({ label, value, text, own }, at) => {
    const top = TOP + at * ROW_HEIGHT
    const middle = top + ROW_HEIGHT / 2 + 4
    const length = Math.max(2, (value / most) * room)
    return [
      `  <text class="label" x="${LABEL_WIDTH - 12}" y="${middle}">${escaped(label)}</text>`,
      `  <rect class="${own ? 'own' : 'other'}" x="${LABEL_WIDTH}" y="${top + (ROW_HEIGHT - BAR_HEIGHT) / 2}" width="${length.toFixed(1)}" height="${BAR_HEIGHT}" rx="3"/>`,
      `  <text x="${(LABEL_WIDTH + length + 8).toFixed(1)}" y="${middle}">${escaped(text)}</text>`,
    ].join('\n')
  })
  const spoken = bars.map(({ label, text }) => `${label}: ${text}`).join('; ')
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${height}" width="${WIDTH}" height="${height}" role="img" aria-labelledby="title desc">
  <title id="title">${escaped(title)}</title>
  <desc id="desc">${escaped(spoken)}</desc>
  <style>
    text { font: 13px system-ui, sans-serif; fill: #1f2328 }
    .heading { font-size: 16px; font-weight: 600 }
    .label { text-anchor: end }
    .own { fill: #0969da }
    .other { fill: #8c959f }
    .ground { fill: #ffffff }
    @media (prefers-color-scheme: dark) {
      text { fill: #e6edf3 }
      .own { fill: #4493f8 }
      .other { fill: #6e7681 }
      .ground { fill: #0d1117 }
    }
  </style>
  <rect class="ground" width="${WIDTH}" height="${height}" rx="6"/>
  <text class="heading" x="20" y="32">${escaped(title)}</text>
${rows.join('\n')}
</svg>
`
}

function escaped(text) {
  return text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;')
}
