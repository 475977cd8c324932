/** A proxy in front of a server, which adds commits that no server on a test machine could write as fast. */
import { createServer, request } from 'node:http'
import type { Server, ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'

/** Batches of lines for each second. */
const BATCHES = 50

const commit = (seq: number) => {
  const recorded_at = new Date().toISOString()
  const event = { position: seq, seq, recorded_at, type: 'OrderPlaced', tags: [`order:o${seq}`, `customer:c${seq % 97}`], data: { order: `o${seq}`, item: 'rope', n: seq % 9, address: { city: 'Oslo', zip: '0150' } } }
  return `${JSON.stringify({ seq, recorded_at, appends: [{ store: 'shop', events: [event] }], writes: [{ keyspace: 3, change: 'put', key_base64: 'AAAABG8xMgA=' }], others: [{ model: 'documents', bytes: 96 }, { model: 'time series', bytes: 24 }] })}\n`
}

/** Streams commits at a rate until the client leaves. */
const stream = (response: ServerResponse, from: number, perSecond: number) => {
  response.writeHead(200, { 'Content-Type': 'application/x-ndjson' })
  let seq = from
  const timer = setInterval(() => {
    let lines = ''
    for (let index = 0; index < perSecond / BATCHES; index += 1) lines += commit(seq++)
    response.write(lines)
  }, 1_000 / BATCHES)
  response.on('close', () => clearInterval(timer))
}

/** Serves `origin`, with a change feed that gets `perSecond` commits a second. */
export const startProxy = async (origin: string, perSecond: number): Promise<{ url: string; stop: () => void }> => {
  const { hostname, port } = new URL(origin)
  const server: Server = createServer((incoming, response) => {
    const url = new URL(incoming.url ?? '/', origin)
    if (url.pathname === '/v1/changes' && url.searchParams.has('follow')) {
      stream(response, Number(url.searchParams.get('from')), perSecond)
      return
    }
    const headers = { ...incoming.headers, host: `${hostname}:${port}` }
    delete headers.origin
    const outgoing = request({ hostname, port, path: incoming.url, method: incoming.method, headers }, (answer) => {
      response.writeHead(answer.statusCode ?? 502, answer.headers)
      answer.pipe(response)
    })
    outgoing.on('error', () => response.destroy())
    response.on('close', () => outgoing.destroy())
    incoming.pipe(outgoing)
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    stop: () => {
      server.closeAllConnections()
      server.close()
    },
  }
}
