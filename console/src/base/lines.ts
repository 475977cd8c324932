/** Streams of lines: NDJSON and server-sent events. */

/** The lines of a body as they arrive. A line that is not complete at the end is not delivered. */
export async function* lines(body: ReadableStream<Uint8Array>): AsyncGenerator<string> {
  const reader = body.getReader()
  const decoder = new TextDecoder()
  let rest = ''
  try {
    for (;;) {
      const { done, value } = await reader.read()
      if (done) return
      rest += decoder.decode(value, { stream: true })
      const complete = rest.split('\n')
      rest = complete.pop() ?? ''
      for (const line of complete) yield line.endsWith('\r') ? line.slice(0, -1) : line
    }
  } finally {
    void reader.cancel().catch(() => undefined)
  }
}

/** A server-sent event. */
export interface ServerEvent {
  id: string
  event: string
  data: string
}

/** Collects the lines of server-sent events. Comments and fields that are not known are skipped. */
export class EventReader {
  private id = ''
  private event = ''
  private data: string[] = []

  /** Takes a line; returns the event that it ends. */
  push(line: string): ServerEvent | undefined {
    if (line === '') {
      const found = { id: this.id, event: this.event || 'message', data: this.data.join('\n') }
      const has = this.data.length > 0
      this.event = ''
      this.data = []
      return has ? found : undefined
    }
    const colon = line.indexOf(':')
    const name = colon < 0 ? line : line.slice(0, colon)
    const value = colon < 0 ? '' : line.slice(colon + 1).replace(/^ /, '')
    if (name === 'id') this.id = value
    if (name === 'event') this.event = value
    if (name === 'data') this.data.push(value)
    return undefined
  }
}

/** Pauses between attempts to connect again: from a quarter of a second, doubled, at most ten seconds. */
export const backoffMs = (attempt: number, random: () => number = Math.random): number =>
  Math.min(10_000, 250 * 2 ** Math.min(attempt, 6)) * (0.75 + random() / 2)
