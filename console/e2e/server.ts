/** A server on a free port, with data of every model, for the tests of the console. */
import { spawn } from 'node:child_process'
import type { ChildProcess } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

const BINARY = process.env['ROPEWALK_BIN'] ?? join(import.meta.dirname, '../../target/debug/ropewalk')

/** Texts that must be shown as they are, wherever a page shows user data. */
export const HOSTILE = ['<script>window.hacked = 1</script>', '<img src=x onerror="window.hacked = 1">', '‮right to left', '🧵', `quotes ' " \` $(x)`]

export class Server {
  private process: ChildProcess | undefined
  readonly dir = mkdtempSync(join(tmpdir(), 'ropewalk-console-'))
  url = ''
  private port = 0

  /** Starts the server; a second call uses the port of the first. */
  async start(...options: string[]): Promise<void> {
    const listen = `127.0.0.1:${this.port}`
    const all = ['serve', join(this.dir, 'db'), '--http-listen', listen, '--grpc-listen', 'off', '--backups', join(this.dir, 'backups'), '--prometheus-self-scrape', '1s', ...options]
    const child = spawn(BINARY, all, { stdio: ['ignore', 'pipe', 'ignore'] })
    this.process = child
    const address = await new Promise<string>((resolve, reject) => {
      let text = ''
      child.stdout.on('data', (chunk: Buffer) => {
        text += chunk.toString()
        const found = /^listening http (\S+)$/m.exec(text)
        if (found?.[1] !== undefined) resolve(found[1])
      })
      child.on('exit', (code) => reject(new Error(`the server ended with ${code}`)))
    })
    this.url = `http://${address}`
    this.port = Number(address.split(':').at(-1))
  }

  async stop(): Promise<void> {
    const child = this.process
    if (!child || child.exitCode !== null) return
    const ended = new Promise((resolve) => child.once('exit', resolve))
    child.kill('SIGTERM')
    await ended
  }

  async remove(): Promise<void> {
    await this.stop()
    rmSync(this.dir, { recursive: true, force: true })
  }

  async request(method: string, path: string, body?: unknown, headers: Record<string, string> = {}): Promise<Response> {
    const response = await fetch(this.url + path, {
      method,
      headers: { ...(body !== undefined && { 'Content-Type': 'application/json' }), ...headers },
      ...(body !== undefined && { body: JSON.stringify(body) }),
    })
    if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${await response.text()}`)
    return response
  }

  async sql(sql: string): Promise<void> {
    await this.request('POST', '/v1/sql', { sql })
  }

  /** Events, documents, rows and samples in one commit; returns its number. */
  async order(order: string, n: number): Promise<number> {
    const response = await this.request('POST', '/v1/transactions', {
      operations: [
        { append: { store: 'shop', events: [{ type: 'OrderPlaced', tags: [`order:${order}`, 'customer:ann'], data: { n } }] } },
        { sql: { sql: `INSERT INTO stock VALUES ('${order}', ${n}) ON CONFLICT (sku) DO UPDATE SET n = ${n}` } },
        { documents: { collection: 'orders', update: { filter: { _id: order }, update: { $set: { n } }, upsert: true } } },
        { samples: { series: [{ labels: { __name__: 'ropes_sold' }, samples: [[Date.now(), n]] }] } },
      ],
    })
    return ((await response.json()) as { seq: number }).seq
  }

  async fill(): Promise<void> {
    await this.sql('CREATE TABLE stock (sku text PRIMARY KEY, n int NOT NULL)')
    for (const [index, order] of ['o1', 'o2', 'o3'].entries()) await this.order(order, index + 1)
    const events = HOSTILE.map((text) => ({ type: text, tags: [text], data: { [text]: [text] } }))
    await this.request('POST', '/v1/stores/hostile/events', { events })
    const documents = HOSTILE.map((text, index) => ({ _id: text, [text.replace(/[$.]/g, '')]: text, index }))
    await this.request('POST', '/v1/databases/default/collections/hostile/documents', { documents })
  }

  async createUser(name: string, roles: Record<string, string[]>): Promise<void> {
    await this.request('PUT', `/v1/users/${name}`, { password: 'correct horse', roles })
  }
}
