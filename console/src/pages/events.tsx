/** Events: stores, queries, live events, consumer groups, projections. */
import { useEffect, useMemo, useRef, useState } from 'preact/hooks'

import { json, path as encoded, problemOf } from '../api/client'
import type { Problem } from '../api/client'
import { countEvents, listStores, readEvents, subscribeUrl } from '../api/events'
import type { StoredEvent } from '../api/events'
import { follow, useLoaded, usePages } from '../api/resource'
import type { StreamState } from '../api/resource'
import { may } from '../api/session'
import { condition, formatQuery, parseQuery, snippets, withItem } from '../base/event-query'
import type { EventQuery, Item } from '../base/event-query'
import { formatCount } from '../base/format'
import { formatJson, parseJson } from '../base/json'
import { oneLine, plural } from '../base/text'
import { change, go, link, parameter } from '../route'
import { useAction } from '../ui/action'
import { Form, Submit } from '../ui/form'
import type { Texts } from '../ui/form'
import { NameList } from '../ui/list'
import { Busy, Card, Code, Confirm, Empty, Field, objectName, ProblemNotice, SeqLink, serverUrl, Tabs, Text, Time, Title } from '../ui/parts'
import { Tree } from '../ui/tree'
import { VirtualList } from '../ui/virtual'
import { Groups, Projections } from './consumers'

const PAGE = 200
/** Live events that stay on the screen. */
const LIVE_MAX = 2_000
/** Newest events that the lists of types and tags are made of. */
const SAMPLE = 1_000

const APPEND = (store: string) => `curl -s ${serverUrl()}/v1/stores/${encodeURIComponent(store)}/events -H 'Content-Type: application/json' -d '{
  "events": [{"type": "CourseDefined", "tags": ["course:c1"], "data": {"capacity": 2}}]
}'`

const StoreList = () => {
  const stores = usePages('stores', listStores, 5_000)
  const action = useAction(stores.reload)
  const create = may('admin') && (
    <form
      class="row"
      onSubmit={(event) => {
        event.preventDefault()
        const name = new FormData(event.currentTarget).get('name')
        if (typeof name === 'string' && name !== '') action.run(() => json(encoded`/v1/stores/${name}`, { method: 'PUT' }))
      }}
    >
      <input name="name" aria-label="Name of the new store" placeholder="new store" required />
      <button disabled={action.busy}>Create a store</button>
    </form>
  )
  return (
    <NameList list={stores} noun="store" name={(store) => store.name} search actions={create}>
      {(found) => (
        <>
          <ProblemNotice problem={action.problem} />
          <div class="tiles">
            {found.map((store) => (
              <a class="tile" key={store.name} href={link(['events', store.name])}>
                <span>
                  <Text text={store.name} />
                </span>
                <span class="value">{formatCount(store.events)}</span>
                <span class="soft small">events</span>
              </a>
            ))}
          </div>
          {!stores.hasMore && stores.data?.every((store) => store.events === 0) && (
            <Empty title="No events yet" command={APPEND('courses')}>
              <p>This appends the first one, and creates its store:</p>
            </Empty>
          )}
        </>
      )}
    </NameList>
  )
}

const QueryBuilder = ({ query, set }: { query: EventQuery; set: (query: EventQuery) => void }) => {
  const items: Item[] = query.items.length === 0 ? [{ types: [], tags: [] }] : query.items
  const word = (index: number, kind: keyof Item, label: string) => (
    <Form
      layout="row"
      submit={(text, _fields, form) => {
        const added = text('word')
        if (added === '') return
        form.reset()
        set(withItem(query, index, (item) => (item[kind].includes(added) ? item : { ...item, [kind]: [...item[kind], added] })))
      }}
    >
      {(items[index]?.[kind] ?? []).map((value) => (
        <span class="pill" key={value}>
          <Text text={value} max={120} />
          <button
            type="button"
            class="quiet small"
            aria-label={`Remove ${value}`}
            onClick={() => set(withItem(query, index, (item) => ({ ...item, [kind]: item[kind].filter((other) => other !== value) })))}
          >
            ✕
          </button>
        </span>
      ))}
      <input name="word" data-search={index === 0 && kind === 'tags' ? true : undefined} aria-label={label} placeholder={label} size={18} />
    </Form>
  )
  return (
    <div class="stack">
      {items.map((_item, index) => (
        <div key={index} class="row" role="group" aria-label={`Item ${index + 1} of the query`}>
          {index > 0 && <b>or</b>}
          <span class="soft">any of the types</span>
          {word(index, 'types', 'add a type')}
          <span class="soft">and all tags</span>
          {word(index, 'tags', 'add a tag')}
        </div>
      ))}
      {query.items.length > 0 && (
        <div class="row">
          <Form
            layout="row"
            submit={(text) => {
              if (text('tag') !== '') set({ items: [...query.items, { types: [], tags: [text('tag')] }] })
            }}
          >
            <span class="soft">or events with the tag</span>
            <input name="tag" aria-label="Tag of another item" placeholder="tag" size={18} />
            <button class="small">Add an item</button>
          </Form>
          <button class="small quiet" onClick={() => set({ items: [] })}>
            Clear
          </button>
        </div>
      )}
    </div>
  )
}

const preview = (event: StoredEvent): string =>
  event.data !== undefined ? oneLine(formatJson(event.data, 0), 160) : event.data_base64 !== undefined ? `${plural(event.data_base64.length, 'character')} of base64` : ''

const Detail = ({ event, store, close }: { event: StoredEvent; store: string; close: () => void }) => (
  <Card
    title={
      <>
        {formatCount(event.position)} <Text text={event.type} max={120} />
      </>
    }
    actions={
      <button class="quiet" aria-label="Close the event" onClick={close}>
        ✕
      </button>
    }
  >
    <dl class="facts">
      <dt>Recorded</dt>
      <dd>
        <Time at={event.recorded_at} />
      </dd>
      <dt>Commit</dt>
      <dd>
        <SeqLink seq={event.seq} />
      </dd>
      {event.id !== undefined && (
        <>
          <dt>Id</dt>
          <dd class="mono">{event.id}</dd>
        </>
      )}
      <dt>What else happened to</dt>
      <dd class="row">
        {event.tags.map((tag) => (
          <a class="pill" key={tag} href={link(['events', store], { q: formatQuery({ items: [{ types: [], tags: [tag] }] }) })}>
            <Text text={tag} max={120} />
          </a>
        ))}
        {event.tags.length === 0 && <span class="soft">no tags</span>}
      </dd>
      {event.tracking && (
        <>
          <dt>Source</dt>
          <dd>
            <Text text={event.tracking.source} /> at {formatCount(event.tracking.position)}
          </dd>
        </>
      )}
    </dl>
    {event.metadata && (
      <>
        <h3>Metadata</h3>
        <Tree value={event.metadata} />
      </>
    )}
    <h3>Data</h3>
    {event.data !== undefined ? <Tree value={event.data} /> : event.data_base64 !== undefined ? <pre><Text text={event.data_base64} /></pre> : <p class="soft">empty</p>}
  </Card>
)

/** Events of a query, newest first, in pages. */
const useEvents = (store: string, query: EventQuery) => {
  const key = `${store}\u0000${formatQuery(query)}`
  const first = useLoaded(key, (signal) => readEvents(store, query, { backwards: true, limit: PAGE }, signal))
  const [older, setOlder] = useState<{ key: string; events: StoredEvent[] }>({ key, events: [] })
  const [problem, setProblem] = useState<Problem>()
  const mine = older.key === key ? older.events : []
  const events = useMemo(() => [...(first.data?.events ?? []), ...mine], [first.data, mine])
  const last = events.at(-1)
  const more = last && last.position > 1 && events.length % PAGE === 0
  const loadOlder = () => {
    if (!last) return
    readEvents(store, query, { backwards: true, before: last.position, limit: PAGE }).then(
      (read) => setOlder({ key, events: [...mine, ...read.events] }),
      (error: unknown) => setProblem(problemOf(error)),
    )
  }
  return { ...first, problem: first.problem ?? problem, events, more: more === true, loadOlder, head: first.data?.head ?? 0 }
}

const STATES: Record<StreamState, string> = { connecting: 'connecting', live: 'live', waiting: 'interrupted, trying again', ended: 'ended' }

/** New events of a query, in the order of their commits. Rendered four times a second, whatever their rate. */
const useLive = (store: string, query: EventQuery, from: number | undefined) => {
  const [state, setState] = useState<{ stream: StreamState; problem?: Problem; events: StoredEvent[]; count: number }>({ stream: 'connecting', events: [], count: 0 })
  const key = from === undefined ? undefined : `${store}\u0000${formatQuery(query)}\u0000${from}`
  useEffect(() => {
    if (from === undefined) return
    let next = from
    let fresh: StoredEvent[] = []
    setState({ stream: 'connecting', events: [], count: 0 })
    const flush = setInterval(() => {
      if (fresh.length === 0) return
      const added = fresh.reverse()
      fresh = []
      setState((old) => ({ ...old, events: [...added, ...old.events].slice(0, LIVE_MAX), count: old.count + added.length }))
    }, 250)
    const stop = follow(
      () => subscribeUrl(store, query, next),
      (line) => {
        const value = parseJson(line) as unknown as StoredEvent & { control?: string }
        if (value.control !== undefined) return
        next = value.position
        fresh.push(value)
        if (fresh.length > LIVE_MAX) fresh.shift()
      },
      (stream, problem) => setState((old) => ({ events: old.events, count: old.count, stream, ...(problem && { problem }) })),
    )
    return () => {
      clearInterval(flush)
      stop()
    }
  }, [key])
  return state
}

/** Types and tags with their numbers in a sample. */
export const tally = (events: readonly StoredEvent[], words: (event: StoredEvent) => readonly string[], max = 40): [string, number][] => {
  const counts = new Map<string, number>()
  for (const event of events) for (const word of words(event)) counts.set(word, (counts.get(word) ?? 0) + 1)
  return [...counts].sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1)).slice(0, max)
}

const Words = ({ title, words, pick }: { title: string; words: [string, number][]; pick: (word: string) => void }) => (
  <Card title={title}>
    <ul class="list small scroll" style={{ maxHeight: '34vh' }}>
      {words.map(([word, count]) => (
        <li key={word}>
          <button onClick={() => pick(word)} title="Add to the query">
            <Text text={word} max={80} />
            <span class="soft">{formatCount(count)}</span>
          </button>
        </li>
      ))}
      {words.length === 0 && <li class="soft">none</li>}
    </ul>
  </Card>
)

const LANGUAGES = ['curl', 'python', 'typescript', 'rust'] as const

const CopyAs = ({ store, query, head }: { store: string; query: EventQuery; head: number }) => {
  const [language, setLanguage] = useState<(typeof LANGUAGES)[number]>('curl')
  const texts = snippets(serverUrl(), store, query)
  return (
    <details>
      <summary>Read this in a program, or append on its condition</summary>
      <div class="stack">
        <div class="row" role="group" aria-label="Language">
          {LANGUAGES.map((name) => (
            <button key={name} class="small" aria-pressed={name === language} onClick={() => setLanguage(name)}>
              {name}
            </button>
          ))}
        </div>
        <Code text={texts[language]} />
        <p class="soft">An append that decided by these events is rejected if a later one matches:</p>
        <Code text={formatJson(condition(query, head))} />
      </div>
    </details>
  )
}

const Browse = ({ store }: { store: string }) => {
  const query = useMemo(() => parseQuery(parameter('q')), [parameter('q')])
  const isLive = parameter('live') === '1'
  const set = (next: EventQuery) => change({ q: formatQuery(next), position: undefined })
  const page = useEvents(store, query)
  const count = useLoaded(`${store}\u0000${formatQuery(query)}\u0000${page.head}`, (signal) => countEvents(store, query, signal))
  const sample = useLoaded(store, (signal) => readEvents(store, { items: [] }, { backwards: true, limit: SAMPLE }, signal))
  const start = useRef<number | undefined>(undefined)
  if (!isLive) start.current = undefined
  else if (start.current === undefined && page.data) start.current = page.head
  const live = useLive(store, query, isLive ? start.current : undefined)
  const shown = isLive ? [...live.events, ...page.events] : page.events
  const position = Number(parameter('position'))
  const picked = shown.find((event) => event.position === position)
  const addType = (type: string) => set(withItem(query, 0, (item) => ({ ...item, types: [...new Set([...item.types, type])] })))
  const addTag = (tag: string) => set(withItem(query, 0, (item) => ({ ...item, tags: [...new Set([...item.tags, tag])] })))
  const events = sample.data?.events ?? []
  return (
    <div class={`split ${picked ? 'picked' : ''}`}>
      <div class="stack">
        <Words title="Types" words={tally(events, (event) => [event.type])} pick={addType} />
        <Words title="Tags" words={tally(events, (event) => event.tags)} pick={addTag} />
        <p class="soft small">of the newest {formatCount(events.length)} events</p>
      </div>
      <div class="stack">
        <Card>
          <QueryBuilder query={query} set={set} />
          <div class="row between">
            <span class="soft" role="status">
              {count.data === undefined ? '' : `${plural(count.data, 'event')} match`}
              {isLive ? `, ${STATES[live.stream]}, ${plural(live.count, 'new event')}` : ''}
            </span>
            <div class="row">
              <button aria-pressed={isLive} onClick={() => change({ live: isLive ? undefined : '1' })}>
                Live
              </button>
              <button onClick={page.reload}>Reload</button>
            </div>
          </div>
          <ProblemNotice problem={page.problem ?? live.problem} retry={page.reload} />
        </Card>
        {page.loading && !page.data && <Busy />}
        {page.data && shown.length === 0 && (
          <Empty title={query.items.length === 0 ? 'No events yet' : 'No event matches'} {...(query.items.length === 0 && { command: APPEND(store) })} />
        )}
        {shown.length > 0 && (
          <div class={picked ? 'beside' : 'stack'}>
            <div class="stack">
              <VirtualList
                items={shown}
                label="Events, newest first"
                columns="event"
                current={(event) => event.position === position}
                pick={(event) => change({ position: event.position }, true)}
                row={(event) => (
                  <>
                    <span class="number soft mono">{formatCount(event.position)}</span>
                    <Time at={event.recorded_at} age />
                    <b>
                      <bdi>{oneLine(event.type, 60)}</bdi>
                    </b>
                    <span class="mono small">
                      <bdi>{event.tags.map((tag) => oneLine(tag, 40)).join('  ')}</bdi>
                    </span>
                    <span class="soft mono small">
                      <bdi>{preview(event)}</bdi>
                    </span>
                  </>
                )}
              />
              {page.more && <button onClick={page.loadOlder}>Load older events</button>}
            </div>
            {picked && <Detail event={picked} store={store} close={() => change({ position: undefined }, true)} />}
          </div>
        )}
        <CopyAs store={store} query={query} head={page.head} />
      </div>
    </div>
  )
}

const AppendForm = ({ store, done }: { store: string; done: () => void }) => {
  const action = useAction(done)
  const submit = (text: Texts) => {
    action.run(async () => {
      const data = text('data').trim()
      const tags = text('tags').split(/\s+/).filter((tag) => tag !== '')
      const parsed: unknown = data === '' ? undefined : JSON.parse(data)
      await json(encoded`/v1/stores/${store}/events`, { method: 'POST', body: { events: [{ type: text('type'), tags, ...(parsed !== undefined && { data: parsed }) }] } })
    })
  }
  return (
    <Form submit={submit}>
      <div class="row end">
        <Field label="Type" name="type" placeholder="CourseDefined" required />
        <Field label="Tags, with spaces between them" name="tags" placeholder="course:c1 teacher:t1" class="grow" />
      </div>
      <label class="field">
        Data, as JSON
        <textarea name="data" rows={5} placeholder={'{"capacity": 2}'} spellcheck={false} />
      </label>
      <ProblemNotice problem={action.problem} />
      <Submit busy={action.busy}>Append</Submit>
    </Form>
  )
}

const StorePage = ({ store }: { store: string }) => {
  const tab = parameter('tab', 'events')
  const [turn, setTurn] = useState(0)
  const dropped = useAction(() => go(link(['events'])))
  const tabs = [
    ['events', 'Events', link(['events', store])],
    ['groups', 'Consumer groups', link(['events', store], { tab: 'groups' })],
    ['projections', 'Projections', link(['events', store], { tab: 'projections' })],
    ...(may('append', store) ? [['append', 'Append', link(['events', store], { tab: 'append' })] as const] : []),
  ] as const
  return (
    <>
      <div class="row between">
        <Title above={[['Events', link(['events'])]]}>
          <Text text={store} />
        </Title>
        {may('admin', store) && (
          <Confirm
            label="Delete the store"
            question={`All events of ${store} are deleted, with its consumer groups and checkpoints.`}
            disabled={dropped.busy}
            run={() => dropped.run(() => json(encoded`/v1/stores/${store}`, { method: 'DELETE' }))}
          />
        )}
      </div>
      <ProblemNotice problem={dropped.problem} />
      <Tabs label="Parts of the store" tabs={tabs} current={tab} />
      {tab === 'groups' ? (
        <Groups store={store} />
      ) : tab === 'projections' ? (
        <Projections store={store} />
      ) : tab === 'append' ? (
        <Card title="Append an event" narrow>
          <AppendForm
            key={turn}
            store={store}
            done={() => {
              setTurn(turn + 1)
              go(link(['events', store]))
            }}
          />
        </Card>
      ) : (
        <Browse store={store} />
      )}
    </>
  )
}

export const Events = () => {
  const store = objectName()
  if (store !== '') return <StorePage store={store} />
  return (
    <>
      <h1>Events</h1>
      <StoreList />
    </>
  )
}
