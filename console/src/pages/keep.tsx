/** Keep: users, tokens, backups, settings. */
import { useState } from 'preact/hooks'

import {
  changeRole,
  createToken,
  createUser,
  dropToken,
  dropUser,
  listBackups,
  listSettings,
  listTokens,
  listUsers,
  makeBackup,
  rolesOf,
  setPassword,
} from '../api/keep'
import type { Backup, Roles, User } from '../api/keep'
import { useLoaded, usePages } from '../api/resource'
import { loadSession, may, session } from '../api/session'
import { formatBytes, formatCount } from '../base/format'
import { link, segments } from '../route'
import { useAction } from '../ui/action'
import { Form, Submit } from '../ui/form'
import type { Texts } from '../ui/form'
import { Find, NameList } from '../ui/list'
import { Busy, Card, Code, Confirm, Dialog, Empty, Field, ProblemNotice, SeqLink, Tabs, Text, Time } from '../ui/parts'
import { Table } from '../ui/table'

const RoleFields = () => (
  <div class="row end">
    <Field label="On the store or database; * for all" name="store" defaultValue="*" />
    {(['read', 'append', 'admin'] as const).map((right) => (
      <label class="check" key={right}>
        <input type="checkbox" name="right" value={right} defaultChecked={right === 'read'} /> {right}
      </label>
    ))}
  </div>
)

const formRoles = (text: Texts, fields: FormData): Roles =>
  rolesOf(
    text('store'),
    fields.getAll('right').filter((right) => typeof right === 'string'),
  )

const RoleList = ({ roles, revoke }: { roles: Roles; revoke?: (store: string, right: 'read' | 'append' | 'admin') => void }) => (
  <div class="row">
    {Object.entries(roles).flatMap(([store, rights]) =>
      rights.map((right) => (
        <span class="pill" key={`${store} ${right}`}>
          {right} on <Text text={store === '*' ? 'all stores' : store} max={80} />
          {revoke && (
            <button class="quiet small" aria-label={`Revoke ${right} on ${store}`} onClick={() => revoke(store, right)}>
              ✕
            </button>
          )}
        </span>
      )),
    )}
    {Object.keys(roles).length === 0 && <span class="soft">no rights</span>}
  </div>
)

const Grant = ({ user, done }: { user: User; done: () => void }) => {
  const action = useAction(done)
  return (
    <Form
      submit={(text, fields) => {
        const roles = formRoles(text, fields)
        action.run(async () => {
          for (const [store, rights] of Object.entries(roles)) for (const right of rights) await changeRole(user.name, store, right, true)
        })
      }}
    >
      <RoleFields />
      <ProblemNotice problem={action.problem} />
      <Submit busy={action.busy}>Grant</Submit>
    </Form>
  )
}

const Password = ({ name, done }: { name: string; done: () => void }) => {
  const action = useAction(done)
  return (
    <Form
      submit={(text) => {
        const password = text('password')
        action.run(() => setPassword(name, password))
      }}
    >
      <Field label="New password" name="password" type="password" autoComplete="new-password" required />
      <ProblemNotice problem={action.problem} />
      <p class="soft small">Sessions with the old password end.</p>
      <Submit busy={action.busy}>Set the password</Submit>
    </Form>
  )
}

const Users = () => {
  const users = usePages('users', listUsers)
  const [dialog, setDialog] = useState<{ user: User; kind: 'grant' | 'password' }>()
  const [turn, setTurn] = useState(0)
  const action = useAction(() => {
    users.reload()
    // The first user closes the server: the page needs a session from then on.
    void loadSession().catch(() => undefined)
  })
  const done = () => {
    setDialog(undefined)
    users.reload()
  }
  return (
    <div class="stack">
      <ProblemNotice problem={action.problem} />
      {users.data?.length === 0 && session.value?.kind === 'anonymous' && (
        <div class="notice warn">
          <p>There are no users: every client that reaches this server has every right. The first user closes it; give that user admin on all stores (*).</p>
        </div>
      )}
      <NameList list={users} noun="user" name={(user) => user.name} empty={<></>}>
        {(found) => (
          <Card title="Users">
            <Table
              label="Users"
              rows={found}
              id={(user) => user.name}
              columns={[
                { name: 'Name', cell: (user) => <Text text={user.name} /> },
                { name: 'Rights', cell: (user) => <RoleList roles={user.roles} revoke={(store, right) => action.run(() => changeRole(user.name, store, right, false))} /> },
                { name: 'Created', cell: (user) => <Time at={user.created_at} /> },
                {
                  name: 'Actions',
                  kind: 'actions',
                  cell: (user) => (
                    <>
                      <button class="small" onClick={() => setDialog({ user, kind: 'grant' })}>
                        Grant
                      </button>
                      <button class="small" onClick={() => setDialog({ user, kind: 'password' })}>
                        Password
                      </button>
                      <Confirm label="Drop" question={`The user ${user.name} is dropped; its sessions and subscriptions end.`} disabled={action.busy} run={() => action.run(() => dropUser(user.name))} />
                    </>
                  ),
                },
              ]}
            />
          </Card>
        )}
      </NameList>
      <Card title="New user" narrow>
        <Form
          key={turn}
          submit={(text, fields) => {
            action.run(async () => {
              await createUser(text('name'), text('password'), formRoles(text, fields))
              setTurn(turn + 1)
            })
          }}
        >
          <div class="row end">
            <Field label="Name" name="name" required />
            <Field label="Password" name="password" type="password" autoComplete="new-password" required />
          </div>
          <RoleFields />
          <Submit busy={action.busy}>Create</Submit>
        </Form>
      </Card>
      {dialog && (
        <Dialog title={dialog.kind === 'grant' ? `Grant a right to ${dialog.user.name}` : `Password of ${dialog.user.name}`} close={() => setDialog(undefined)}>
          {dialog.kind === 'grant' ? <Grant user={dialog.user} done={done} /> : <Password name={dialog.user.name} done={done} />}
        </Dialog>
      )}
    </div>
  )
}

const DAY = 86_400

const Tokens = () => {
  const tokens = usePages('tokens', listTokens)
  const [created, setCreated] = useState<string>()
  const action = useAction(tokens.reload)
  return (
    <div class="stack">
      <ProblemNotice problem={action.problem} />
      {created !== undefined && (
        <Dialog title="The token" close={() => setCreated(undefined)}>
          <p>It is shown this once; the server stores only its hash.</p>
          <Code text={created} />
        </Dialog>
      )}
      <NameList list={tokens} noun="token" name={(token) => token.name} empty={<></>}>
        {(found) => (
          <Card title="API tokens">
            <Table
              label="API tokens"
              rows={found}
              id={(token) => token.id}
              columns={[
                { name: 'Name', cell: (token) => <Text text={token.name} /> },
                { name: 'Rights', cell: (token) => <RoleList roles={token.roles} /> },
                { name: 'Created', cell: (token) => <Time at={token.created_at} /> },
                { name: 'Expires', cell: (token) => (token.expires_at === null ? 'never' : <Time at={token.expires_at} />) },
                {
                  name: 'Actions',
                  kind: 'actions',
                  cell: (token) => <Confirm label="Drop" question={`The token ${token.name} is no longer accepted.`} disabled={action.busy} run={() => action.run(() => dropToken(token.id))} />,
                },
              ]}
            />
          </Card>
        )}
      </NameList>
      <Card title="New token" narrow>
        <Form
          submit={(text, fields) => {
            const days = Number(text('days'))
            action.run(async () => {
              const token = await createToken(text('name'), formRoles(text, fields), days > 0 ? Math.round(days * DAY) : undefined)
              setCreated(token)
              await loadSession().catch(() => undefined)
            })
          }}
        >
          <div class="row end">
            <Field label="Name: what it is for" name="name" required />
            <Field label="Days until it expires; empty for never" name="days" type="number" min="0" />
          </div>
          <RoleFields />
          <Submit busy={action.busy}>Create</Submit>
        </Form>
      </Card>
    </div>
  )
}

const Backups = () => {
  const listed = useLoaded('backups', listBackups)
  const [made, setMade] = useState<Backup[]>([])
  const action = useAction(listed.reload)
  return (
    <div class="stack">
      <Card title="Make a backup" narrow>
        <p class="soft">A copy of the whole database at one commit, while it is in use. Sorted files are shared by hard links.</p>
        <Form
          layout="row end"
          submit={(text) => {
            const name = text('name')
            action.run(async () => {
              const backup = await makeBackup(name)
              setMade((old) => [backup, ...old])
            })
          }}
        >
          <Field label="Name; empty for one made of the time" name="name" pattern="[A-Za-z0-9][A-Za-z0-9._\-]*" />
          <button class="primary" disabled={action.busy}>
            {action.busy ? 'Copying …' : 'Make a backup'}
          </button>
        </Form>
        <ProblemNotice problem={action.problem ?? listed.problem} />
        {made.map((backup) => (
          <dl class="facts" key={backup.name}>
            <dt>Name</dt>
            <dd class="mono">{backup.name}</dd>
            <dt>Last commit</dt>
            <dd>
              <SeqLink seq={backup.seq} />
            </dd>
            <dt>Size</dt>
            <dd>
              {formatBytes(backup.bytes)} in {formatCount(backup.files)} files, of which {formatBytes(backup.linked_bytes)} are shared with the database
            </dd>
          </dl>
        ))}
      </Card>
      {listed.data && listed.data.length > 0 && (
        <Card title="Backups" narrow>
          <ul class="list mono small">
            {listed.data.map((name) => (
              <li key={name}>{name}</li>
            ))}
          </ul>
        </Card>
      )}
      <Card title="Check and restore" narrow>
        <p class="soft">A backup is a database directory. These commands check it, and serve it:</p>
        <Code text={`ropewalk verify BACKUPS/${made[0]?.name ?? listed.data?.[0] ?? 'NAME'}\nropewalk serve BACKUPS/${made[0]?.name ?? listed.data?.[0] ?? 'NAME'}`} />
      </Card>
    </div>
  )
}

const Settings = () => {
  const settings = useLoaded('settings', listSettings)
  const [filter, setFilter] = useState('')
  if (!settings.data) return settings.problem ? <ProblemNotice problem={settings.problem} retry={settings.reload} /> : <Busy />
  return (
    <Card
      title="Settings in force"
      actions={<Find noun="setting" text={filter} change={setFilter} />}
    >
      <Table
        label="Settings"
        rows={settings.data.filter((setting) => setting.name.includes(filter))}
        id={(setting) => setting.name}
        columns={[
          { name: 'Setting', kind: 'mono', cell: (setting) => setting.name },
          { name: 'Value', kind: 'mono', cell: (setting) => <Text text={setting.value} /> },
          { name: 'From', cell: (setting) => <Text text={setting.origin} />, tone: (setting) => setting.origin === 'default' && 'soft' },
        ]}
      />
    </Card>
  )
}

const Me = () => {
  const [open, setOpen] = useState(false)
  const caller = session.value
  if (!caller) return null
  return (
    <Card title="You" narrow>
      <dl class="facts">
        <dt>Caller</dt>
        <dd>
          {caller.kind} <Text text={caller.name} />
        </dd>
        <dt>Rights</dt>
        <dd>
          <RoleList roles={caller.roles} />
        </dd>
        <dt>Server</dt>
        <dd>Ropewalk {caller.version}</dd>
      </dl>
      {caller.kind === 'user' && (
        <div>
          <button onClick={() => setOpen(true)}>Change the password</button>
        </div>
      )}
      {open && (
        <Dialog title="Your password" close={() => setOpen(false)}>
          <Password name={caller.name} done={() => setOpen(false)} />
        </Dialog>
      )}
    </Card>
  )
}

export const Keep = () => {
  const admin = may('admin')
  const tab = segments.value[1] ?? 'you'
  const tabs = [
    ['you', 'You', link(['keep'])] as const,
    ...(admin
      ? ([
          ['users', 'Users', link(['keep', 'users'])],
          ['tokens', 'Tokens', link(['keep', 'tokens'])],
          ['backups', 'Backups', link(['keep', 'backups'])],
          ['settings', 'Settings', link(['keep', 'settings'])],
        ] as const)
      : []),
  ]
  return (
    <>
      <h1>Keep</h1>
      <Tabs label="Parts of the page" tabs={tabs} current={tab} />
      {tab === 'you' ? (
        <Me />
      ) : !admin ? (
        <Empty title="Administrators only">
          <p>This part needs the right admin on all stores.</p>
        </Empty>
      ) : tab === 'users' ? (
        <Users />
      ) : tab === 'tokens' ? (
        <Tokens />
      ) : tab === 'backups' ? (
        <Backups />
      ) : (
        <Settings />
      )}
    </>
  )
}
