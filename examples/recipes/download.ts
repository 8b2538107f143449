// Saves what <button type="button" id="download"> asks for.
import { flux } from './bff-client'
import { explain } from './explain'

async function download(): Promise<void> {
  const link = document.createElement('a')
  const csv = await flux('temperature', { format: 'CSV' })
  link.href = URL.createObjectURL(new Blob([csv], { type: 'text/csv' }))
  link.download = 'temperature.csv'
  link.click()
}

document.querySelector<HTMLButtonElement>('#download')!.onclick = () => {
  download().catch(explain)
}
