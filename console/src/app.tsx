/** The frame around every page: navigation, health, sign-in, keys. */
import { Fragment } from 'preact'
import type { ComponentType } from 'preact'
import { useEffect, useErrorBoundary, useState } from 'preact/hooks'

import { problemOf, reachable, signInNeeded } from './api/client'
import type { Problem } from './api/client'
import { loadSession, session, signIn, signOut } from './api/session'
import { PAGES } from './pages'
import type { Page } from './pages'
import { go, link, segments } from './route'
import { Form } from './ui/form'
import type { Texts } from './ui/form'
import { Busy, Dialog, Field, ProblemNotice, Text } from './ui/parts'
import { choice, nextTheme } from './ui/theme'

const SignIn = () => {
  const [way, setWay] = useState<'password' | 'token'>('password')
  const [problem, setProblem] = useState<Problem>()
  const [busy, setBusy] = useState(false)
  const submit = async (text: Texts) => {
    setBusy(true)
    setProblem(undefined)
    try {
      await signIn(text('user'), text('password'), text('token'))
    } catch (error) {
      setProblem(problemOf(error))
    }
    setBusy(false)
  }
  return (
    <main class="sign-in" id="main">
      <div class="row">
        <Logo />
        <h1>Sign in to Ropewalk</h1>
      </div>
      <Form submit={(text) => void submit(text)}>
        <div class="row" role="group" aria-label="Way to sign in">
          <button type="button" aria-pressed={way === 'password'} onClick={() => setWay('password')}>
            User
          </button>
          <button type="button" aria-pressed={way === 'token'} onClick={() => setWay('token')}>
            API token
          </button>
        </div>
        {way === 'password' ? (
          <>
            <Field label="User" name="user" autoComplete="username" required autoFocus />
            <Field label="Password" name="password" type="password" autoComplete="current-password" required />
          </>
        ) : (
          <Field label="Token" name="token" type="password" placeholder="rw_…" required />
        )}
        <ProblemNotice problem={problem} />
        <button class="primary" disabled={busy}>
          Sign in
        </button>
      </Form>
      <p class="soft small">Users and tokens are those of this server: ropewalk user add NAME, ropewalk token add NAME.</p>
    </main>
  )
}

const Logo = () => (
  <svg viewBox="0 0 32 32" width="24" height="24" aria-hidden="true">
    <rect width="32" height="32" rx="7" fill="#0b5d5a" />
    <path d="M7 21c4-12 6 6 10-4s5-2 8-6M7 25c4-10 6 6 10-4s5-2 8-6" fill="none" stroke="#fff" stroke-width="2.4" stroke-linecap="round" />
  </svg>
)

const KEYS: readonly (readonly [string, string])[] = [
  ['?', 'show these keys'],
  ['/', 'search on this page'],
  ['Ctrl+Enter', 'run the statement or query'],
  ['Escape', 'close a dialog'],
  ['↑ ↓', 'move in a list'],
  ...PAGES.map((page) => [`g ${page.key}`, `go to ${page.name}`] as const),
]

const Keys = ({ close }: { close: () => void }) => (
  <Dialog title="Keys" close={close}>
    <dl class="facts">
      {KEYS.map(([key, meaning]) => (
        <Fragment key={key}>
          <dt>
            <kbd>{key}</kbd>
          </dt>
          <dd>{meaning}</dd>
        </Fragment>
      ))}
    </dl>
  </Dialog>
)

/** True while the user types into a field or an editor. */
const isTyping = (event: KeyboardEvent): boolean => {
  const target = event.composedPath()[0]
  return target instanceof HTMLElement && (target.isContentEditable || /^(input|textarea|select)$/i.test(target.tagName))
}

const useKeys = (showKeys: () => void) => {
  useEffect(() => {
    let isAfterG = false
    const down = (event: KeyboardEvent) => {
      if (isTyping(event) || event.ctrlKey || event.metaKey || event.altKey) return
      if (isAfterG) {
        isAfterG = false
        const page = PAGES.find(({ key }) => key === event.key)
        if (page) {
          event.preventDefault()
          go(link([page.id]))
        }
        return
      }
      isAfterG = event.key === 'g'
      if (event.key === '?') showKeys()
      if (event.key === '/') {
        const search = document.querySelector<HTMLElement>('[data-search]')
        if (search) {
          event.preventDefault()
          search.focus()
        }
      }
    }
    document.addEventListener('keydown', down)
    return () => document.removeEventListener('keydown', down)
  }, [])
}

/** A page whose failure leaves the frame usable. */
const Guarded = ({ view: View }: { view: ComponentType }) => {
  const [error, reset] = useErrorBoundary() as [unknown, () => void]
  return error === undefined ? <View /> : <ProblemNotice problem={problemOf(error)} retry={reset} />
}

/** The component of a page, once its code is loaded. */
const Loaded = ({ page }: { page: Page }) => {
  const [loaded, setLoaded] = useState<{ id: string; view: ComponentType }>()
  const [problem, setProblem] = useState<Problem>()
  useEffect(() => {
    setProblem(undefined)
    page.load().then(
      (view) => setLoaded({ id: page.id, view }),
      (error: unknown) => setProblem(problemOf(error)),
    )
  }, [page])
  useEffect(() => {
    document.title = `${page.name} – Ropewalk`
  }, [page])
  if (problem) return <ProblemNotice problem={problem} retry={() => window.location.reload()} />
  if (loaded?.id !== page.id) return <Busy />
  return <Guarded key={page.id} view={loaded.view} />
}


const Top = ({ showKeys }: { showKeys: () => void }) => {
  const caller = session.value
  return (
    <header class="top">
      <span class="soft mono grow">{window.location.host}</span>
      {!reachable.value && (
        <span class="pill bad" role="status">
          <span class="dot" /> no response, trying again
        </span>
      )}
      <button class="quiet small" onClick={nextTheme} title="Light or dark">
        <span class="wide">Theme:</span> {choice.value}
      </button>
      <button class="quiet small" aria-label="Show keys" onClick={showKeys}>
        <kbd>?</kbd>
      </button>
      {caller && caller.kind !== 'anonymous' && (
        <>
          <bdi class="small">{caller.name}</bdi>
          {caller.write_token !== undefined && (
            <button class="small" onClick={() => void signOut()}>
              Sign out
            </button>
          )}
        </>
      )}
      {caller?.kind === 'anonymous' && (
        <a class="pill warn" href={link(['keep', 'users'])} title="Every caller has every right until the first user is created">
          open to every caller
        </a>
      )}
    </header>
  )
}

const Frame = () => {
  const [keys, setKeys] = useState(false)
  useKeys(() => setKeys(true))
  const id = segments.value[0] ?? 'now'
  const page = PAGES.find((page) => page.id === id)
  return (
    <div class="frame">
      <a class="hidden skip" href="#main">
        Skip to the page
      </a>
      <Top showKeys={() => setKeys(true)} />
      <nav class="nav" aria-label="Pages">
        <a class="brand" href={link(['now'])}>
          <Logo /> Ropewalk
        </a>
        <ul>
          {PAGES.map((page) => (
            <li key={page.id}>
              <a href={link([page.id])} aria-current={page.id === id ? 'page' : undefined}>
                <svg viewBox="0 0 24 24" aria-hidden="true">
                  <path d={page.icon} />
                </svg>
                {page.name}
              </a>
            </li>
          ))}
        </ul>
      </nav>
      <main id="main" tabIndex={-1}>
        {page ? (
          <Loaded page={page} />
        ) : (
          <>
            <h1>No such page</h1>
            <p>
              The console has no page <Text text={id} max={200} />. The pages are in the navigation.
            </p>
          </>
        )}
      </main>
      {keys && <Keys close={() => setKeys(false)} />}
    </div>
  )
}

export const App = () => {
  const [problem, setProblem] = useState<Problem>()
  const start = () => {
    setProblem(undefined)
    loadSession().catch((error: unknown) => setProblem(problemOf(error)))
  }
  useEffect(start, [])
  if (problem) {
    return (
      <main class="sign-in" id="main">
        <ProblemNotice problem={problem} retry={start} />
      </main>
    )
  }
  if (signInNeeded.value) return <SignIn />
  return session.value ? <Frame /> : <Busy />
}
