/** The history of one simulation: a hash of everything that happened, and lines for a reader where they are wanted. */
export class Trace {
  readonly lines: string[] = []
  readonly recording: boolean
  #high = 0x811c9dc5 | 0
  #low = 0x1b873593 | 0

  constructor(recording: boolean) {
    this.recording = recording
  }

  mix(a: number, b: number): void {
    this.#high = Math.imul(this.#high ^ a, 0x9e3779b1)
    this.#low = Math.imul((this.#low ^ b ^ (this.#high >>> 15)) | 0, 0x85ebca6b)
    this.#high ^= this.#low >>> 13
  }

  /** `text` must not hold anything that differs from run to run. */
  note(now: number, who: string, text: string): void {
    for (let at = 0; at < text.length; at += 1) this.mix(text.charCodeAt(at), at)
    if (this.recording) this.lines.push(`${(now / 1_000).toFixed(3).padStart(9)}  ${who.padEnd(10)} ${text}`)
  }

  hash(): string {
    const part = (value: number): string => (value >>> 0).toString(16).padStart(8, '0')
    return part(this.#high) + part(this.#low)
  }
}
