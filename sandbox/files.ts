import { createHash } from 'node:crypto'
import { crc32, deflateSync } from 'node:zlib'

/** A file of an account, as it was uploaded. */
export interface SandboxFile {
  id: string
  type: string
  bytes: Buffer
}

export type Files = ReturnType<typeof createFiles>

const KEPT = 20

/** Files in memory: those that were uploaded last, and a picture and a PDF that every account has. */
export function createFiles() {
  const uploaded = new Map<string, SandboxFile>()
  const given = [
    { id: 'picture.png', type: 'image/png', bytes: picture() },
    { id: 'report.pdf', type: 'application/pdf', bytes: pdf('Report of the sandbox') },
  ]
  return {
    given,

    /** null where there is none. */
    find: (wac: string, id: string): SandboxFile | null =>
      uploaded.get(`${wac}/${id}`) ?? given.find((file) => file.id === id) ?? null,

    /** The same bytes have the same id. */
    add(wac: string, type: string, bytes: Buffer): SandboxFile {
      const id = createHash('md5').update(bytes).digest('hex')
      const file = { id, type, bytes }
      uploaded.set(`${wac}/${id}`, file)
      for (const [oldest] of uploaded) if (uploaded.size > KEPT) uploaded.delete(oldest)
      return file
    },
  }
}

const SIDE = 64

/** A square of colours, as PNG (W3C PNG section 5). */
function picture(): Buffer {
  const row = (y: number): Buffer =>
    Buffer.from([0, ...Array.from({ length: SIDE }, (_, x) => [x * 4, y * 4, 160]).flat()])
  const header = Buffer.alloc(13)
  header.writeUInt32BE(SIDE, 0)
  header.writeUInt32BE(SIDE, 4)
  // Eight bits for each of three colours.
  header.set([8, 2], 8)
  const signature = Buffer.from([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a])
  const rows = Buffer.concat(Array.from({ length: SIDE }, (_, y) => row(y)))
  const chunks = [chunk('IHDR', header), chunk('IDAT', deflateSync(rows)), chunk('IEND', Buffer.alloc(0))]
  return Buffer.concat([signature, ...chunks])
}

function chunk(type: string, data: Buffer): Buffer {
  const named = Buffer.concat([Buffer.from(type), data])
  const ends = Buffer.alloc(8)
  ends.writeUInt32BE(data.length, 0)
  ends.writeUInt32BE(crc32(named), 4)
  return Buffer.concat([ends.subarray(0, 4), named, ends.subarray(4)])
}

/** One page with this line (PDF 1.4). */
function pdf(line: string): Buffer {
  const content = `BT /F1 24 Tf 72 720 Td (${line}) Tj ET`
  const objects = [
    '<< /Type /Catalog /Pages 2 0 R >>',
    '<< /Type /Pages /Kids [3 0 R] /Count 1 >>',
    '<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Contents 4 0 R /Resources << /Font << /F1 5 0 R >> >> >>',
    `<< /Length ${content.length} >>\nstream\n${content}\nendstream`,
    '<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>',
  ]
  let text = '%PDF-1.4\n'
  const places = objects.map((object, at) => {
    const place = text.length
    text += `${at + 1} 0 obj\n${object}\nendobj\n`
    return `${String(place).padStart(10, '0')} 00000 n \n`
  })
  const table = `xref\n0 6\n0000000000 65535 f \n${places.join('')}`
  return Buffer.from(`${text}${table}trailer\n<< /Size 6 /Root 1 0 R >>\nstartxref\n${text.length}\n%%EOF\n`)
}
