/** Documents: databases, collections, filters, pipelines, indexes, one document with a check for conflicts, live changes. */
import { useEffect, useMemo, useState } from 'preact/hooks'

import { problemOf } from '../api/client'
import type { Problem } from '../api/client'
import {
  aggregate,
  countDocuments,
  createIndex,
  deleteDocument,
  dropIndex,
  explainFind,
  findDocuments,
  getDocument,
  insertDocument,
  listCollections,
  listIndexes,
  putDocument,
  watchUrl,
} from '../api/documents'
import type { Find, Index, Place } from '../api/documents'
import { follow, useLoaded, usePages } from '../api/resource'
import type { StreamState } from '../api/resource'
import { may } from '../api/session'
import { columnsOf, explainTree, shapeOf } from '../base/document-shape'
import type { ExplainNode } from '../base/document-shape'
import { shellQuoted } from '../base/event-query'
import { formatBytes, formatCount, formatShare } from '../base/format'
import { formatJson, member, parseJson, prettyExact } from '../base/json'
import type { Json } from '../base/json'
import { oneLine, plural } from '../base/text'
import { change, link, parameter } from '../route'
import { useAction } from '../ui/action'
import { CodeField } from '../ui/code-field'
import { Form } from '../ui/form'
import { Busy, Card, Confirm, Dialog, Empty, Field, objectName, ProblemNotice, Segments, serverUrl, Tabs, Text, Title } from '../ui/parts'
import { Grid } from '../ui/grid'
import { NameList } from '../ui/list'
import { Table } from '../ui/table'
import { Tree } from '../ui/tree'

const PAGE = 50
const SAMPLE = 200
const CHANGES_MAX = 500
/** Results of a stage that are shown. */
const PREVIEW = 3

const insertCommand = ({ database, collection }: Place): string =>
  `curl -s ${shellQuoted(`${serverUrl()}/v1/databases/${encodeURIComponent(database)}/collections/${encodeURIComponent(collection)}/documents`)} -H 'Content-Type: application/json' -d '{
  "documents": [{"_id": "ann", "age": 41, "city": "Oslo"}]
}'`

const Databases = () => {
  const all = usePages('collections', listCollections)
  const empty = (
    <Empty title="No documents yet" command={insertCommand({ database: 'shop', collection: 'people' })}>
      <p>This stores the first one, and creates its database and collection. MongoDB's drivers work, too.</p>
    </Empty>
  )
  return (
    <NameList list={all} noun="collection" name={(collection) => `${collection.database} ${collection.name}`} search empty={empty}>
      {(found) => (
        <Card>
          <Table
            label="Collections"
            rows={found}
            id={(collection) => `${collection.database}\u0000${collection.name}`}
            columns={[
              { name: 'Database', cell: (collection) => <Text text={collection.database} /> },
              {
                name: 'Collection',
                cell: (collection) => (
                  <a href={link(['documents', collection.database, collection.name])}>
                    <Text text={collection.name} />
                  </a>
                ),
              },
              { name: 'Documents', kind: 'number', cell: (collection) => (collection.documents === null ? '–' : formatCount(collection.documents)) },
              { name: 'Size', kind: 'number', cell: (collection) => (collection.bytes === null ? '–' : formatBytes(collection.bytes)) },
            ]}
          />
        </Card>
      )}
    </NameList>
  )
}

const PlanNode = ({ node }: { node: ExplainNode }) => (
  <li>
    <b>{node.stage}</b>
    <div class="row small">
      {node.facts.map(([name, value]) => (
        <span class="pill" key={name}>
          {name}: <Text text={value} max={160} />
        </span>
      ))}
    </div>
    {node.children.length > 0 && (
      <ul>
        {node.children.map((child, index) => (
          <PlanNode key={index} node={child} />
        ))}
      </ul>
    )}
  </li>
)

const Explained = ({ plan }: { plan: Json }) => {
  const winning = explainTree(member(member(plan, 'queryPlanner'), 'winningPlan'))
  const stats = member(plan, 'executionStats')
  return (
    <div class="stack">
      {winning && (
        <div class="tree">
          <ul>
            <PlanNode node={winning} />
          </ul>
        </div>
      )}
      {stats !== undefined && <Tree value={stats} />}
      <details>
        <summary>Everything</summary>
        <Tree value={plan} />
      </details>
    </div>
  )
}

/** One document as text. It is stored only if it is still as it was read. */
const Edit = ({ place, id, close, changed }: { place: Place; id: Json | undefined; close: () => void; changed: () => void }) => {
  const key = id === undefined ? undefined : `${place.database} ${place.collection} ${formatJson(id, 0)}`
  const read = useLoaded(key, (signal) => getDocument(place, id ?? null, signal))
  const [text, setText] = useState<string>()
  const action = useAction(() => {
    changed()
    close()
  })
  const present = text ?? (read.data ? prettyExact(read.data.text) : id === undefined ? '{\n  \n}' : '')
  const writable = may('append', place.database)
  const conflict = action.problem?.status === 412
  return (
    <Dialog title={id === undefined ? 'New document' : oneLine(`Document ${formatJson(id, 0)}`, 100)} wide close={close}>
      <ProblemNotice problem={read.problem ?? action.problem} />
      {conflict && (
        <div class="notice warn">
          <p>Another client has changed the document since it was read here. Nothing was stored.</p>
          <button
            onClick={() => {
              setText(undefined)
              read.reload()
            }}
          >
            Read it again, and drop this text
          </button>
        </div>
      )}
      {(read.data ?? id === undefined) ? <CodeField language="json" value={present} change={setText} label="Document" minHeight="200px" /> : <Busy />}
      {writable && (
        <div class="row">
          <button
            class="primary"
            disabled={action.busy}
            onClick={() => action.run(() => (id === undefined ? insertDocument(place, present) : putDocument(place, id, present, read.data?.etag ?? '')))}
          >
            {id === undefined ? 'Insert' : 'Store'}
          </button>
          {id !== undefined && (
            <Confirm label="Delete" question="The document is deleted, if it is still as it was read." disabled={action.busy} run={() => action.run(() => deleteDocument(place, id, read.data?.etag ?? ''))} />
          )}
        </div>
      )}
    </Dialog>
  )
}

const findOf = (): Find => ({
  filter: parameter('filter'),
  sort: parameter('sort'),
  projection: parameter('projection'),
  limit: PAGE,
  skip: Number(parameter('skip', '0')) || 0,
})

const Browse = ({ place }: { place: Place }) => {
  const find = findOf()
  const [filter, setFilter] = useState(find.filter)
  const [sort, setSort] = useState(find.sort)
  const [projection, setProjection] = useState(find.projection)
  const [edited, setEdited] = useState<{ id: Json | undefined }>()
  const [plan, setPlan] = useState<{ plan?: Json; problem?: Problem }>()
  const key = [place.database, place.collection, find.filter, find.sort, find.projection, find.skip].join('\u0000')
  const page = useLoaded(key, (signal) => findDocuments(place, find, signal))
  const count = useLoaded([place.database, place.collection, find.filter].join('\u0000'), (signal) => countDocuments(place, find.filter, signal))
  const names = useMemo(() => ({ words: shapeOf(page.data ?? []).map(({ path }) => `"${path}"`) }), [page.data])
  const run = () => change({ filter, sort, projection, skip: undefined })
  const explain = () => {
    explainFind(place, { ...find, filter, sort, projection }).then(
      (plan) => setPlan({ plan }),
      (error: unknown) => setPlan({ problem: problemOf(error) }),
    )
  }
  const documents = page.data ?? []
  const as = parameter('as') === 'tree' ? 'tree' : 'table'
  const grid = useMemo(() => columnsOf(documents), [page.data])
  const edit = (document: Json | undefined) => {
    const id = member(document, '_id')
    if (id !== undefined) setEdited({ id })
  }
  return (
    <div class="stack">
      <Card>
        <div class="find">
          <div class="field">
            <span class="soft small">Filter</span>
            <CodeField language="json" hints={names} value={filter} change={setFilter} run={run} label="Filter" hint='{"age": {"$gte": 18}}' />
          </div>
          <div class="field">
            <span class="soft small">Sort</span>
            <CodeField language="json" hints={names} value={sort} change={setSort} run={run} label="Sort" hint='{"age": -1}' />
          </div>
          <div class="field">
            <span class="soft small">Projection</span>
            <CodeField language="json" hints={names} value={projection} change={setProjection} run={run} label="Projection" hint='{"name": 1}' />
          </div>
        </div>
        <div class="row">
          <button class="primary" onClick={run}>
            Find <kbd>Ctrl+Enter</kbd>
          </button>
          <button onClick={explain}>Explain</button>
          {may('append', place.database) && <button onClick={() => setEdited({ id: undefined })}>New document</button>}
          <span class="soft grow nowrap">{count.data === undefined ? '' : plural(count.data, 'document')}</span>
          <Segments
            label="Form of the documents"
            options={[
              ['table', 'Table'],
              ['tree', 'Tree'],
            ]}
            current={as}
            choose={(form) => change({ as: form === 'table' ? undefined : form }, true)}
          />
        </div>
        <ProblemNotice problem={page.problem ?? plan?.problem} />
        {plan?.plan !== undefined && <Explained plan={plan.plan} />}
      </Card>
      {!page.data && !page.problem && <Busy />}
      {page.data?.length === 0 && (
        <Empty title={find.filter.trim() === '' ? 'No documents yet' : 'No document matches'} {...(find.filter.trim() === '' && { command: insertCommand(place) })} />
      )}
      {as === 'table' && documents.length > 0 && <Grid label="Documents" columns={grid.columns} rows={grid.rows} pick={(index) => edit(documents[index])} />}
      {(as === 'tree' ? documents : []).map((document, index) => {
        const id = member(document, '_id')
        return (
          <Card
            key={`${find.skip + index} ${formatJson(id ?? null, 0)}`}
            title={<span class="mono">{oneLine(formatJson(id ?? null, 0), 100)}</span>}
            actions={
              id !== undefined && (
                <button class="small" onClick={() => setEdited({ id })}>
                  {may('append', place.database) ? 'Edit' : 'Open'}
                </button>
              )
            }
          >
            <Tree value={document} />
          </Card>
        )
      })}
      <div class="row">
        {(find.skip > 0 || documents.length === PAGE) && (
          <span class="soft">
            {formatCount(find.skip + 1)} to {formatCount(find.skip + documents.length)}
          </span>
        )}
        {find.skip > 0 && <button onClick={() => change({ skip: find.skip > PAGE ? find.skip - PAGE : undefined })}>Previous {PAGE}</button>}
        {documents.length === PAGE && <button onClick={() => change({ skip: find.skip + PAGE })}>Next {PAGE}</button>}
      </div>
      {edited && (
        <Edit
          place={place}
          id={edited.id}
          close={() => setEdited(undefined)}
          changed={() => {
            page.reload()
            count.reload()
          }}
        />
      )}
    </div>
  )
}

interface StageResult {
  stage: Json
  documents?: Json[]
  problem?: Problem
}

/** The first results after each stage, without stages that write. */
const preview = async (place: Place, pipeline: Json[]): Promise<StageResult[]> => {
  const results: StageResult[] = []
  for (const [index, stage] of pipeline.entries()) {
    if (member(stage, '$out') !== undefined || member(stage, '$merge') !== undefined) break
    const part = [...pipeline.slice(0, index + 1), { $limit: PREVIEW }]
    try {
      results.push({ stage, documents: await aggregate(place, formatJson(part, 0)) })
    } catch (error) {
      results.push({ stage, problem: problemOf(error) })
      break
    }
  }
  return results
}

const Pipeline = ({ place }: { place: Place }) => {
  const [text, setText] = useState(parameter('pipeline', '[\n  {"$match": {}}\n]'))
  const [stages, setStages] = useState<StageResult[]>([])
  const [all, setAll] = useState<Json[]>()
  const [problem, setProblem] = useState<Problem>()
  const [busy, setBusy] = useState(false)
  const run = async () => {
    change({ pipeline: text }, true)
    setBusy(true)
    setProblem(undefined)
    setAll(undefined)
    try {
      const parsed = parseJson(text)
      setStages(await preview(place, Array.isArray(parsed) ? parsed : [parsed]))
      setAll(await aggregate(place, text))
    } catch (error) {
      setProblem(problemOf(error))
    }
    setBusy(false)
  }
  return (
    <div class="stack">
      <CodeField language="json" value={text} change={setText} run={() => void run()} label="Pipeline" numbers minHeight="140px" />
      <div class="row">
        <button class="primary" disabled={busy} onClick={() => void run()}>
          Run <kbd>Ctrl+Enter</kbd>
        </button>
        <span class="soft">A pipeline with $out or $merge writes.</span>
      </div>
      <ProblemNotice problem={problem} />
      <div class="halves">
        {stages.map((result, index) => (
          <Card key={index} title={`After stage ${index + 1}`}>
            <code>{oneLine(formatJson(result.stage, 0), 120)}</code>
            <ProblemNotice problem={result.problem} />
            {result.documents?.map((document, place) => <Tree key={place} value={document} />)}
            {result.documents?.length === 0 && <p class="soft">no document</p>}
          </Card>
        ))}
      </div>
      {all && (
        <Card title={`Result: ${plural(all.length, 'document')}`}>
          {all.slice(0, 100).map((document, index) => (
            <Tree key={index} value={document} />
          ))}
          {all.length > 100 && <p class="soft">The first 100 are shown.</p>}
        </Card>
      )}
    </div>
  )
}

const optionsOf = (index: Index): string =>
  [index.unique && 'unique', index.sparse && 'sparse', index.hidden && 'hidden', index.ready === false && 'being built', index.expire_after_seconds !== undefined && `expires after ${index.expire_after_seconds} s`]
    .filter((option) => typeof option === 'string')
    .join(', ')

const Indexes = ({ place }: { place: Place }) => {
  const indexes = useLoaded(`${place.database}\u0000${place.collection}`, (signal) => listIndexes(place, signal), 5_000)
  const action = useAction(indexes.reload)
  const writable = may('append', place.database)
  return (
    <div class="stack">
      <ProblemNotice problem={indexes.problem ?? action.problem} />
      <Card title="Indexes">
        <Table
          label="Indexes"
          rows={indexes.data ?? []}
          id={(index) => index.name}
          columns={[
            { name: 'Name', cell: (index) => <Text text={index.name} /> },
            { name: 'Fields', kind: 'mono', cell: (index) => <Text text={index.fields.join(', ')} /> },
            { name: 'Options', cell: optionsOf },
            writable && {
              name: 'Actions',
              kind: 'actions',
              cell: (index) =>
                index.name !== '_id_' && (
                  <Confirm label="Drop" question={`The index ${index.name} is dropped. Queries that use it scan the collection.`} disabled={action.busy} run={() => action.run(() => dropIndex(place, index.name))} />
                ),
            },
          ]}
        />
      </Card>
      {writable && (
        <Card title="New index" narrow>
          <Form
            layout="row end"
            submit={(text, fields) => {
              const names = text('fields').split(/[\s,]+/).filter((name) => name !== '')
              action.run(() => createIndex(place, names, fields.has('unique'), fields.has('sparse')))
            }}
          >
            <Field label="Fields; a minus sign for descending order" name="fields" placeholder="city, -age" required class="grow" />
            <label class="check">
              <input type="checkbox" name="unique" /> unique
            </label>
            <label class="check">
              <input type="checkbox" name="sparse" /> sparse
            </label>
            <button disabled={action.busy}>{action.busy ? 'Building …' : 'Create'}</button>
          </Form>
        </Card>
      )}
    </div>
  )
}

const Shape = ({ place }: { place: Place }) => {
  const sample = useLoaded(`${place.database}\u0000${place.collection}`, (signal) => findDocuments(place, { filter: '', sort: '', projection: '', skip: 0, limit: SAMPLE }, signal))
  const fields = useMemo(() => shapeOf(sample.data ?? []), [sample.data])
  const total = sample.data?.length ?? 0
  if (!sample.data) return sample.problem ? <ProblemNotice problem={sample.problem} retry={sample.reload} /> : <Busy />
  return (
    <Card title={`Fields of ${plural(total, 'document')}`}>
      <Table
        label="Fields"
        rows={fields}
        id={(field) => field.path}
        columns={[
          { name: 'Field', kind: 'mono', cell: (field) => <Text text={field.path} /> },
          {
            name: 'Types',
            cell: (field) =>
              Object.entries(field.types)
                .map(([type, count]) => (count === field.count ? type : `${type} (${formatCount(count)})`))
                .join(', '),
          },
          { name: 'Present', kind: 'number', cell: (field) => formatShare(field.count, total) },
        ]}
      />
    </Card>
  )
}

const textOf = (value: Json | undefined): string => (typeof value === 'string' ? value : '')

const Changes = ({ place }: { place: Place }) => {
  const [events, setEvents] = useState<Json[]>([])
  const [stream, setStream] = useState<{ state: StreamState; problem?: Problem }>({ state: 'connecting' })
  useEffect(() => {
    let after: string | undefined
    let fresh: Json[] = []
    const flush = setInterval(() => {
      if (fresh.length === 0) return
      const added = fresh.reverse()
      fresh = []
      setEvents((old) => [...added, ...old].slice(0, CHANGES_MAX))
    }, 250)
    const stop = follow(
      () => watchUrl(place, after),
      (line) => {
        const event = parseJson(line)
        const token = member(member(event, '_id'), '_data')
        if (typeof token !== 'string') return
        after = token
        fresh.push(event)
        if (fresh.length > CHANGES_MAX) fresh.shift()
      },
      (state, problem) => setStream({ state, ...(problem && { problem }) }),
    )
    return () => {
      clearInterval(flush)
      stop()
    }
  }, [place.database, place.collection])
  return (
    <div class="stack">
      <p class="soft" role="status">
        <span class={`pill ${stream.state === 'live' ? 'good' : ''}`}>{stream.state}</span> {plural(events.length, 'change')} since this page was opened, newest first
      </p>
      <ProblemNotice problem={stream.problem} />
      {events.length === 0 && stream.state === 'live' && (
        <Empty
          title="No change yet"
          command={`curl -s -X PUT ${serverUrl()}/v1/databases/${encodeURIComponent(place.database)}/collections/${encodeURIComponent(place.collection)}/documents/ann -H 'Content-Type: application/json' -d '{"age": 42}'`}
        />
      )}
      {events.map((event) => (
        <Card
          key={formatJson(member(event, '_id') ?? null, 0)}
          title={
            <>
              <Text text={textOf(member(event, 'operationType'))} /> <span class="mono">{oneLine(formatJson(member(member(event, 'documentKey'), '_id') ?? null, 0), 80)}</span>
            </>
          }
        >
          <Tree value={member(event, 'updateDescription') ?? member(event, 'fullDocument') ?? null} />
        </Card>
      ))}
    </div>
  )
}

const CollectionPage = ({ place }: { place: Place }) => {
  const tab = parameter('tab', 'documents')
  const at = (tab: string | undefined) => link(['documents', place.database, place.collection], { tab })
  const tabs = [
    ['documents', 'Documents', at(undefined)],
    ['pipeline', 'Pipeline', at('pipeline')],
    ['indexes', 'Indexes', at('indexes')],
    ['shape', 'Fields', at('shape')],
    ['changes', 'Live changes', at('changes')],
  ] as const
  return (
    <>
      <Title above={[['Documents', link(['documents'])]]}>
        <Text text={place.database} /> / <Text text={place.collection} />
      </Title>
      <Tabs label="Parts of the collection" tabs={tabs} current={tab} />
      {tab === 'pipeline' ? (
        <Pipeline place={place} />
      ) : tab === 'indexes' ? (
        <Indexes place={place} />
      ) : tab === 'shape' ? (
        <Shape place={place} />
      ) : tab === 'changes' ? (
        <Changes place={place} />
      ) : (
        <Browse place={place} />
      )}
    </>
  )
}

export const Documents = () => {
  const [database, collection] = [objectName(1), objectName(2)]
  if (database !== '' && collection !== '') return <CollectionPage key={`${database}\u0000${collection}`} place={{ database, collection }} />
  return (
    <>
      <h1>Documents</h1>
      <Databases />
    </>
  )
}
