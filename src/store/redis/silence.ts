import { Cluster, type Redis } from 'ioredis'

export const LOOK_EVERY_MS = 400
/** Silent looks in a row before a connection is closed: a little more than two seconds. */
export const SILENT_LOOKS = 6

/**
 * Closes each connection of the client that owes a reply and receives nothing for two seconds: its peer may have
 * vanished. It counts looks, while ioredis' `socketTimeout` measures time: a process that was held up, or its whole
 * machine, makes one look and then reads what came meanwhile.
 */
export function watchSilence(client: Redis | Cluster): void {
  // A Cluster has no connection of its own.
  if (client instanceof Cluster) client.on('+node', watchOne)
  else watchOne(client)
}

function watchOne(client: Redis): void {
  let before = ''
  let silent = 0

  function look(): void {
    const { stream, commandQueue } = client
    const received = `${stream?.localPort} ${stream?.bytesRead}`
    silent = commandQueue.length > 0 && received === before ? silent + 1 : 0
    before = received
    if (silent < SILENT_LOOKS) return
    silent = 0
    stream.destroy(new Error('no reply for two seconds'))
  }

  const timer = setInterval(look, LOOK_EVERY_MS).unref()
  client.once('end', () => clearInterval(timer))
}
