/** Consumer groups and projections of a store: lag, parked events, and what can be done about them. */
import { useState } from 'preact/hooks'

import { controlProjection, listGroups, listParked, listProjections, parkedOfProjection, settleParked } from '../api/events'
import type { Group, Projection } from '../api/events'
import { useLoaded, usePages } from '../api/resource'
import { may } from '../api/session'
import { identifiers, quoted } from '../api/sql'
import { formatQuery } from '../base/event-query'
import { formatCount, formatDuration } from '../base/format'
import { plural } from '../base/text'
import { link } from '../route'
import { useAction } from '../ui/action'
import { NameList } from '../ui/list'
import { Card, Code, Confirm, Empty, Pills, ProblemNotice, serverUrl, Text, Time } from '../ui/parts'
import { Tree } from '../ui/tree'

const EVERY_MS = 3_000

const Parked = ({ store, group, changed }: { store: string; group: string; changed: () => void }) => {
  const [after, setAfter] = useState(0)
  const parked = useLoaded(`${store} ${group} ${after}`, (signal) => listParked(store, group, after, signal))
  const action = useAction(() => {
    parked.reload()
    changed()
  })
  const settle = (how: 'replay' | 'discard', positions?: number[]) => action.run(() => settleParked(store, group, how, positions))
  const events = parked.data ?? []
  return (
    <div class="stack">
      <ProblemNotice problem={parked.problem ?? action.problem} />
      <div class="row">
        <button disabled={action.busy} onClick={() => settle('replay')}>
          Replay all
        </button>
        <Confirm label="Discard all" question={`Parked events of ${group} will not be delivered again. The events themselves stay in the store.`} disabled={action.busy} run={() => settle('discard')} />
      </div>
      {events.map(({ event, tries, reason, parked_at }) => (
        <details key={event.position} class="card">
          <summary>
            <a href={link(['events', store], { position: event.position })}>{formatCount(event.position)}</a> <Text text={event.type} max={80} />{' '}
            <span class="bad">
              <Text text={reason} max={200} />
            </span>
          </summary>
          <p class="soft">
            Parked <Time at={parked_at} age /> after {tries === 1 ? '1 try' : `${tries} tries`}.
          </p>
          <Pills texts={event.tags} />
          {event.data !== undefined && <Tree value={event.data} />}
          <div class="row">
            <button disabled={action.busy} onClick={() => settle('replay', [event.position])}>
              Replay
            </button>
            <button class="danger" disabled={action.busy} onClick={() => settle('discard', [event.position])}>
              Discard
            </button>
          </div>
        </details>
      ))}
      {events.length === 100 && <button onClick={() => setAfter(events.at(-1)?.event.position ?? 0)}>Next parked events</button>}
    </div>
  )
}

const GroupCard = ({ store, group, changed }: { store: string; group: Group; changed: () => void }) => {
  const [open, setOpen] = useState(false)
  const query = formatQuery(group.query)
  return (
    <Card
      title={<Text text={group.name} />}
      actions={
        group.parked > 0 && (
          <button aria-expanded={open} onClick={() => setOpen(!open)}>
            {open ? 'Hide' : 'Look at'} {plural(group.parked, 'parked event')}
          </button>
        )
      }
    >
      <div class="row">
        <span class="pill">{plural(group.waiting, 'event')} waiting</span>
        <span class="pill">
          {formatCount(group.pending)} of {formatCount(group.pending_max)} pending
        </span>
        <span class="pill">{formatCount(group.leased)} leased</span>
        <span class={`pill ${group.parked > 0 ? 'warn' : ''}`}>{formatCount(group.parked)} parked</span>
      </div>
      <p class="soft small">
        Delivered up to {formatCount(group.cursor)} of {formatCount(group.head)}. Lease {formatDuration(group.lease_ms / 1000)}, pause{' '}
        {formatDuration(group.pause_ms / 1000)}; an event is parked after {group.tries === 1 ? '1 delivery' : `${formatCount(group.tries)} deliveries`}
        {group.in_order ? ', in order' : ''}. <a href={link(['events', store], { q: query })}>Its events</a>
      </p>
      {open && <Parked store={store} group={group.name} changed={changed} />}
    </Card>
  )
}

export const Groups = ({ store }: { store: string }) => {
  const groups = usePages(`groups ${store}`, (after, signal) => listGroups(store, after, signal), EVERY_MS)
  const empty = (
    <Empty
      title="No consumer groups"
      command={`curl -s -X PUT ${serverUrl()}/v1/stores/${encodeURIComponent(store)}/groups/mailers -H 'Content-Type: application/json' -d '{"tries": 3}'`}
    >
      <p>A group delivers each event to one of its consumers, again after a failure, and parks it after its last try.</p>
    </Empty>
  )
  return (
    <div class="stack">
      <NameList list={groups} noun="consumer group" name={(group) => group.name} empty={empty}>
        {(found) => found.map((group) => <GroupCard key={group.name} store={store} group={group} changed={groups.reload} />)}
      </NameList>
    </div>
  )
}

const ParkedRows = ({ store, projection, changed }: { store: string; projection: Projection; changed: () => void }) => {
  const parked = useLoaded(`${store} ${projection.name}`, (signal) => parkedOfProjection(store, projection.name, signal))
  const action = useAction(() => {
    parked.reload()
    changed()
  })
  return (
    <div class="stack">
      <ProblemNotice problem={parked.problem ?? action.problem} />
      {(parked.data ?? []).map((event) => (
        <details key={event.position} class="card">
          <summary>
            <a href={link(['events', store], { position: event.position })}>{formatCount(event.position)}</a> <Text text={event.type} max={80} />{' '}
            <span class="bad">
              <Text text={event.message} max={200} />
            </span>
          </summary>
          <pre>
            <Text text={event.statement} />
          </pre>
          <p class="soft">
            SQLSTATE {event.sqlstate}, <Time at={event.parked_at} />
            {event.retry ? ', about to be applied again' : ''}
          </p>
          {may('admin', store) && (
            <div class="row">
              <button disabled={action.busy} onClick={() => action.run(() => controlProjection(store, projection.name, 'retry', event.position))}>
                Retry
              </button>
              <button class="danger" disabled={action.busy} onClick={() => action.run(() => controlProjection(store, projection.name, 'skip', event.position))}>
                Skip
              </button>
            </div>
          )}
        </details>
      ))}
    </div>
  )
}

const ProjectionCard = ({ store, projection, changed }: { store: string; projection: Projection; changed: () => void }) => {
  const [open, setOpen] = useState(false)
  const action = useAction(changed)
  const { name, state, checkpoint, head } = projection
  const control = (how: 'pause' | 'resume' | 'rebuild' | 'retry' | 'skip') => action.run(() => controlProjection(store, name, how))
  return (
    <Card
      title={
        <>
          <Text text={name} /> <span class={`pill ${state === 'failed' ? 'bad' : state === 'live' ? 'good' : ''}`}>{state}</span>
        </>
      }
      actions={
        may('admin', store) && (
          <>
            {state === 'paused' ? <button onClick={() => control('resume')}>Resume</button> : <button onClick={() => control('pause')}>Pause</button>}
            <Confirm mild label="Rebuild" question={`${name} is computed again from the first event, next to the present tables, which are replaced at the end.`} run={() => control('rebuild')} disabled={action.busy} />
            {state === 'failed' && (
              <>
                <button onClick={() => control('retry')}>Retry</button>
                <button class="danger" onClick={() => control('skip')}>
                  Skip the event
                </button>
              </>
            )}
          </>
        )
      }
    >
      <ProblemNotice problem={action.problem} />
      {projection.error !== null && (
        <p class="notice bad">
          <Text text={projection.error} />
        </p>
      )}
      <div class="row">
        <span class="pill">lag: {plural(projection.lag, 'event')}</span>
        <span class="pill">
          at {formatCount(checkpoint ?? 0)} of {formatCount(head)}
        </span>
        {projection.parked > 0 && (
          <button class="small" aria-expanded={open} onClick={() => setOpen(!open)}>
            {open ? 'Hide' : 'Look at'} {plural(projection.parked, 'parked event')}
          </button>
        )}
      </div>
      <p class="row soft small">
        Version {projection.version}, writes{' '}
        {projection.tables.map((table) => (
          <a key={table} class="pill" href={link(['sql'], { sql: `SELECT * FROM ${table} LIMIT 100` })}>
            <span class="model tables">
              <Text text={table} max={120} />
            </span>
          </a>
        ))}{' '}
        {projection.collections.map((collection) => (
          <a key={collection} class="pill" href={link(['documents', ...identifiers(collection)])}>
            <span class="model documents">
              <Text text={collection} max={120} />
            </span>
          </a>
        ))}
      </p>
      {open && <ParkedRows store={store} projection={projection} changed={changed} />}
      <details>
        <summary>Declaration</summary>
        {projection.on.map((rule, index) => (
          <div key={index} class="stack">
            <h3>
              <Text text={rule.types.join(', ')} />
            </h3>
            {rule.statements.map((statement, place) => (
              <Code key={place} text={statement} />
            ))}
          </div>
        ))}
      </details>
    </Card>
  )
}

export const Projections = ({ store }: { store: string }) => {
  const all = usePages(`projections ${store}`, (after, signal) => listProjections(store, after, signal), EVERY_MS)
  const empty = (
    <Empty
      title="No projections"
      command={`CREATE TABLE orders (position bigint PRIMARY KEY);
CREATE PROJECTION placed FROM EVENTS ${quoted(store)}
  ON 'OrderPlaced' DO (INSERT INTO orders VALUES (event.position));`}
    >
      <p>A projection runs SQL statements for each event, in the server, exactly once. Declare one on the page SQL or by HTTP.</p>
    </Empty>
  )
  return (
    <div class="stack">
      <NameList list={all} noun="projection" name={(projection) => projection.name} empty={empty}>
        {(found) => found.map((projection) => <ProjectionCard key={projection.name} store={store} projection={projection} changed={all.reload} />)}
      </NameList>
    </div>
  )
}
