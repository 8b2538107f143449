// Saves a Flux as a file.
import { flux } from './bff-client'

/** In React: `onClick={() => download('temperature').catch(explain)}`. */
export async function download(fluxId: string): Promise<void> {
  const link = document.createElement('a')
  const csv = await flux(fluxId, { format: 'CSV' })
  link.href = URL.createObjectURL(new Blob([csv], { type: 'text/csv' }))
  link.download = `${fluxId}.csv`
  link.click()
}
