/** A server on a free port, with data of every model, for the tests of the console. */
import { spawn } from 'node:child_process'
import type { ChildProcess } from 'node:child_process'
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

const BINARY = process.env['ROPEWALK_BIN'] ?? join(import.meta.dirname, '../../target/debug/ropewalk')

/** Texts that must be shown as they are, wherever a page shows user data. */
export const HOSTILE = ['<script>window.hacked = 1</script>', '<img src=x onerror="window.hacked = 1">', '‮right to left', '🧵', `quotes ' "  $(x)`]

/** Rules of the server: one recording rule, an alert that is silent, and one that fires. */
const RULES = `groups:
  - name: shop
    interval: 5s
    rules:
      - record: shop:ropes_sold:sum
        expr: sum(ropes_sold)
      - alert: NothingSold
        expr: shop:ropes_sold:sum == 0
      - alert: ShopIsOpen
        expr: sum(ropes_sold) > 0
        annotations: { summary: ropes are sold }
`

const ITEMS = ['rope', 'hook', 'pulley', 'carabiner', 'sling', 'winch', 'shackle', 'thimble']
const PEOPLE = ['ann', 'ben', 'cleo', 'dan', 'eve', 'finn']
const CITIES = ['Oslo', 'Lyon', 'Gdańsk', 'Porto']
/** Rows of the table visits, which has no index apart from its key. */
const VISITS = 20_000

export class Server {
  private process: ChildProcess | undefined
  private dir = ''
  url = ''
  /** The number of a commit with a part in every model. */
  seq = 0
  private port = 0

  /** Starts the server; a second call uses the port of the first. */
  async start(...options: string[]): Promise<void> {
    const listen = `127.0.0.1:${this.port}`
    // Here, because Playwright loads the files of tests also in processes that run none of them.
    this.dir ||= mkdtempSync(join(tmpdir(), 'ropewalk-console-'))
    mkdirSync(join(this.dir, 'rules'), { recursive: true })
    writeFileSync(join(this.dir, 'rules/shop.yml'), RULES)
    writeFileSync(join(this.dir, 'prometheus.yml'), "rule_files: ['rules/*.yml']\nscrape_configs:\n  - job_name: gone\n    scrape_interval: 5s\n    static_configs: [{ targets: ['127.0.0.1:9'] }]\n")
    const fixed = ['--grpc-listen', 'off', '--backups', join(this.dir, 'backups'), '--prometheus-self-scrape', '1s', '--prometheus-config', join(this.dir, 'prometheus.yml')]
    const child = spawn(BINARY, ['serve', join(this.dir, 'db'), '--http-listen', listen, ...fixed, ...options], { stdio: ['ignore', 'pipe', 'ignore'] })
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
    if (this.dir !== '') rmSync(this.dir, { recursive: true, force: true })
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

  async sql(sql: string, params: unknown[] = []): Promise<void> {
    await this.request('POST', '/v1/sql', { sql, params })
  }

  async append(store: string, events: { type: string; tags: string[]; data?: unknown }[]): Promise<void> {
    await this.request('POST', `/v1/stores/${store}/events`, { events })
  }

  /** Events, documents, rows and samples in one commit; returns its number. */
  async order(order: string, n: number, customer = 'ann'): Promise<number> {
    const item = ITEMS[n % ITEMS.length] ?? 'rope'
    const response = await this.request('POST', '/v1/transactions', {
      operations: [
        { append: { store: 'shop', events: [{ type: 'OrderPlaced', tags: [`order:${order}`, `customer:${customer}`], data: { order, item, n, address: { city: CITIES[n % CITIES.length], zip: '0150' } } }] } },
        { sql: { sql: `INSERT INTO stock VALUES ('${order}', ${n}) ON CONFLICT (sku) DO UPDATE SET n = ${n}` } },
        { documents: { collection: 'orders', update: { filter: { _id: order }, update: { $set: { n, item, customer } }, upsert: true } } },
        { samples: { series: [{ labels: { __name__: 'ropes_sold', item }, samples: [[Date.now(), n]] }] } },
      ],
    })
    return ((await response.json()) as { seq: number }).seq
  }

  /** Leases events of a consumer group and parks them with a reason. */
  async park(group: string, events: number, reason: string): Promise<void> {
    const taken = (await (await this.request('POST', `/v1/stores/shop/groups/${group}/take`, { max: events })).json()) as { lease: number }
    await this.request('POST', `/v1/stores/shop/groups/${group}/park`, { lease: taken.lease, reason })
  }

  async fill(): Promise<void> {
    await this.sql('CREATE TABLE stock (sku text PRIMARY KEY, n int NOT NULL)')
    await this.sql("CREATE TABLE sales (item text PRIMARY KEY, orders bigint NOT NULL)")
    await this.sql(
      `CREATE PROJECTION sales FROM EVENTS shop INTO sales, COLLECTION shop.open_orders ON ERROR PARK
         ON 'OrderPlaced' DO (
           INSERT INTO sales VALUES (event.json->>'item', 1) ON CONFLICT (item) DO UPDATE SET orders = sales.orders + 1;
           INSERT INTO shop.open_orders (_id, doc) VALUES (event.json->>'order', event.json) ON CONFLICT (_id) DO UPDATE SET doc = excluded.doc)`,
    )
    for (let n = 1; n <= 40; n += 1) this.seq = await this.order(`o${n}`, n, PEOPLE[n % PEOPLE.length])
    await this.request('PUT', '/v1/stores/shop/groups/mailers', { tries: 3 })
    await this.courses()
    await this.hostile()
    const people = PEOPLE.map((name, index) => ({ _id: name, age: 20 + 7 * index, city: CITIES[index % CITIES.length], tags: ['customer', ...(index % 2 === 0 ? ['paid'] : [])], address: { street: `Quay ${index + 1}`, zip: '0150' } }))
    await this.request('POST', '/v1/databases/shop/collections/people/documents', { documents: people })
    await this.sql('CREATE TABLE visits (id int PRIMARY KEY, visitor int NOT NULL, page text NOT NULL, took_ms float8)')
    await this.sql(`INSERT INTO visits SELECT n, n % 500, '/item/' || (n % 37), (n * 7919 % 1000) / 10.0 FROM generate_series(1, ${VISITS}) AS t (n)`)
  }

  /** An hour of the metrics that a server stores about itself, as of one that was started before. */
  async hour(): Promise<void> {
    const now = Date.now()
    const times = Array.from({ length: 240 }, (_, index) => now - (240 - index) * 15_000)
    const labels = { job: 'ropewalk', instance: 'before' }
    const series = Object.entries({ ropewalk_commits_total: 90, ropewalk_log_written_bytes_total: 90_000, ropewalk_memtable_bytes: 5_000 }).map(([__name__, each]) => ({
      labels: { ...labels, __name__ },
      samples: times.map((time, index) => [time, each * index]),
    }))
    await this.request('POST', '/v1/transactions', { operations: [{ samples: { series } }] })
  }

  /** Who enrolled on which course. */
  private async courses(): Promise<void> {
    const enrolled = PEOPLE.flatMap((student, index) => {
      const courses = index < 2 ? ['c1', 'c2'] : index < 4 ? ['c1'] : ['c2', 'c3']
      return courses.map((course) => ({ type: 'StudentEnrolled', tags: [`course:${course}`, `student:${student}`], data: { paid: index % 2 === 0 } }))
    })
    const defined = ['c1', 'c2', 'c3'].map((course, index) => ({ type: 'CourseDefined', tags: [`course:${course}`], data: { title: ['Knots', 'Splices', 'Nets'][index], capacity: 4 } }))
    await this.append('courses', [...defined, ...enrolled])
  }

  /** Hostile texts as type, tag, payload, key, name of a collection, a table and a label. */
  private async hostile(): Promise<void> {
    const long = '🧵'.repeat(1 << 18) // 1 MiB of UTF-8
    await this.append('hostile', [...HOSTILE.map((text) => ({ type: text, tags: [text], data: { [text]: [text], nul: 'a\u0000b' } })), { type: 'Long', tags: ['long'], data: { long } }])
    const documents = HOSTILE.map((text, index) => ({ _id: text, [text.replace(/[$.]/g, '')]: text, index }))
    await this.request('POST', '/v1/databases/default/collections/hostile/documents', { documents: [...documents, { _id: 'long', long }] })
    const [script = '', image = ''] = HOSTILE
    await this.request('POST', `/v1/databases/default/collections/${encodeURIComponent('<b>bold</b>')}/documents`, { documents: [{ _id: 1, html: image }] })
    const quoted = `"${script}"`
    await this.sql(`CREATE TABLE ${quoted} (id int PRIMARY KEY, "${image.replaceAll('"', '""')}" text)`)
    await this.sql(`INSERT INTO ${quoted} VALUES (1, $1)`, [HOSTILE.join('\n')])
    await this.request('POST', '/v1/transactions', {
      operations: HOSTILE.map((text) => ({ samples: { series: [{ labels: { __name__: 'hostile', text }, samples: [[Date.now(), 1]] }] } })),
    })
  }

  /** Requests over HTTP in progress. */
  async running(operation: string): Promise<number> {
    const text = await (await this.request('GET', '/metrics')).text()
    return Number(new RegExp(`^ropewalk_requests_running\\{protocol="http",operation="${operation}"\\} (\\d+)$`, 'm').exec(text)?.[1] ?? 0)
  }

  async createUser(name: string, roles: Record<string, string[]>, headers: Record<string, string> = {}): Promise<void> {
    await this.request('PUT', `/v1/users/${name}`, { password: 'correct horse', roles }, headers)
  }
}
