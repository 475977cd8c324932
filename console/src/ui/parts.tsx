/** Small parts of every page. User data is always a text node. */
import { Fragment } from 'preact'
import type { ComponentChildren, JSX } from 'preact'
import { useEffect, useId, useRef, useState } from 'preact/hooks'

import type { Problem } from '../api/client'
import { formatAge, formatLocal, formatUtc } from '../base/format'
import { shorten, SHOWN_CHARS_MAX, visible } from '../base/text'
import { link, segments } from '../route'

/** A text of a user: its direction does not change that of its neighbours, and its length is bounded. */
export const Text = ({ text, max = SHOWN_CHARS_MAX }: { text: string; max?: number }) => {
  const [all, setAll] = useState(false)
  const short = all ? text : shorten(text, max)
  return (
    <>
      <bdi>{visible(short)}</bdi>
      {short.length < text.length && (
        <>
          …{' '}
          <button class="quiet small" onClick={() => setAll(true)}>
            show all {text.length.toLocaleString('en')} characters
          </button>
        </>
      )}
    </>
  )
}

/** Short texts in a row, such as tags. */
export const Pills = ({ texts }: { texts: readonly string[] }) => (
  <div class="row">
    {texts.map((text) => (
      <span class="pill" key={text}>
        <Text text={text} max={120} />
      </span>
    ))}
  </div>
)

/** A time: local, with UTC as its title. */
export const Time = ({ at, age = false }: { at: string | number | Date; age?: boolean }) => {
  const time = at instanceof Date ? at : new Date(at)
  return (
    <time dateTime={Number.isNaN(time.getTime()) ? '' : time.toISOString()} title={`${formatLocal(time)} local, ${formatUtc(time)} UTC`} class="nowrap">
      {age ? formatAge(time, new Date()) : formatLocal(time)}
    </time>
  )
}

/** An error in the server's words. */
export const ProblemNotice = ({ problem, retry }: { problem: Problem | undefined; retry?: () => void }) => {
  if (!problem) return null
  const code = [problem.code, problem.member('sqlstate')].filter((part) => part !== undefined && part !== '').join(', ')
  const hint = problem.member('hint')
  const explanation = problem.member('explanation')
  return (
    <div class="notice bad" role="alert">
      <p>
        <Text text={problem.message} />
      </p>
      {explanation !== undefined && (
        <p>
          <Text text={explanation} />
        </p>
      )}
      {hint !== undefined && (
        <p>
          Hint: <Text text={hint} />
        </p>
      )}
      <div class="row between">
        <span class="soft small">
          {problem.status > 0 ? `status ${problem.status}` : 'no response'}
          {code === '' ? '' : `, ${code}`}
        </span>
        {retry && <button onClick={retry}>Try again</button>}
      </div>
    </div>
  )
}

/** A command to copy. */
export const Code = ({ text, label = 'Copy' }: { text: string; label?: string }) => {
  const [copied, setCopied] = useState(false)
  const copy = async () => {
    await copyText(text)
    setCopied(true)
    setTimeout(() => setCopied(false), 1500)
  }
  return (
    <div class="code">
      <pre tabIndex={0}>{visible(text)}</pre>
      <button class="small" onClick={() => void copy()}>
        {copied ? 'Copied' : label}
      </button>
    </div>
  )
}

export const copyText = async (text: string): Promise<void> => {
  // Absent on pages that were not loaded by TLS or from a loopback address.
  const clipboard = (navigator as { clipboard?: Clipboard }).clipboard
  if (clipboard) return clipboard.writeText(text)
  const area = document.createElement('textarea')
  area.value = text
  document.body.append(area)
  area.select()
  // Deprecated, and the only way on such pages.
  // eslint-disable-next-line @typescript-eslint/no-deprecated
  document.execCommand('copy')
  area.remove()
}

/** A state without data says what to type to fill it. */
export const Empty = ({ title, command, children }: { title: string; command?: string; children?: ComponentChildren }) => (
  <div class="card narrow">
    <h2>{title}</h2>
    {children}
    {command !== undefined && <Code text={command} />}
  </div>
)

export const Busy = ({ what = 'Loading' }: { what?: string }) => (
  <p class="soft" role="status">
    {what} …
  </p>
)

export const Card = ({
  title,
  actions,
  narrow = false,
  children,
}: {
  title?: ComponentChildren
  actions?: ComponentChildren
  /** Lines of text and forms are not wider than they can be read. */
  narrow?: boolean
  children: ComponentChildren
}) => (
  <section class={narrow ? 'card narrow' : 'card'}>
    {(title !== undefined || actions !== undefined) && (
      <div class="row between">
        <h2>{title}</h2>
        {actions !== undefined && <div class="row">{actions}</div>}
      </div>
    )}
    {children}
  </section>
)

type FieldProps = { label: string; class?: string } & (
  | ({ kind?: 'input' } & JSX.IntrinsicElements['input'])
  | ({ kind: 'select' } & JSX.IntrinsicElements['select'])
)

/** An input with its label. */
export const Field = ({ label, kind, class: name, ...rest }: FieldProps) => (
  <label class={`field ${name ?? ''}`}>
    {label}
    {kind === 'select' ? (
      <select {...(rest as JSX.IntrinsicElements['select'])} />
    ) : (
      <input autoComplete="off" spellcheck={false} {...(rest as JSX.IntrinsicElements['input'])} />
    )}
  </label>
)

/** The title of a page below another one, with links to those above it. */
export const Title = ({ above, children }: { above: readonly (readonly [string, string])[]; children: ComponentChildren }) => (
  <div class="title row">
    {above.map(([name, href]) => (
      <Fragment key={href}>
        <a href={href}>
          <Text text={name} max={120} />
        </a>
        <span class="soft">/</span>
      </Fragment>
    ))}
    <h1>{children}</h1>
  </div>
)

/** Buttons of which one is chosen. */
export const Segments = <T extends string>({ label, options, current, choose }: { label: string; options: readonly (readonly [T, string])[]; current: T; choose: (option: T) => void }) => (
  <div class="segments" role="group" aria-label={label}>
    {options.map(([option, name]) => (
      <button type="button" key={option} aria-pressed={option === current} onClick={() => choose(option)}>
        {name}
      </button>
    ))}
  </div>
)

/** A model of data with its colour. */
export const Model = ({ name }: { name: string }) => <span class={`model ${name === 'time series' ? 'series' : name}`}>{name}</span>

/** Links between the parts of a page. */
export const Tabs = ({ tabs, current, label }: { tabs: readonly (readonly [string, string, string])[]; current: string; label: string }) => (
  <nav class="tabs" aria-label={label}>
    {tabs.map(([id, name, href]) => (
      <a key={id} href={href} aria-current={id === current ? 'page' : undefined}>
        {name}
      </a>
    ))}
  </nav>
)

/** A dialog of the browser: Escape closes it, and it holds the focus. */
export const Dialog = ({
  title,
  wide = false,
  close,
  children,
}: {
  title: string
  wide?: boolean
  close: () => void
  children: ComponentChildren
}) => {
  const dialog = useRef<HTMLDialogElement>(null)
  const id = useId()
  useEffect(() => {
    const shown = dialog.current
    shown?.showModal()
    return () => shown?.close()
  }, [])
  return (
    <dialog ref={dialog} class={wide ? 'wide' : ''} aria-labelledby={id} onClose={close}>
      <div class="stack">
        <div class="row between">
          <h2 id={id}>{title}</h2>
          <button class="quiet" aria-label="Close" onClick={close}>
            ✕
          </button>
        </div>
        {children}
      </div>
    </dialog>
  )
}

/** A button that asks once more: for an operation that cannot be undone, or that is `mild` but takes long. */
export const Confirm = ({ label, question, run, disabled = false, mild = false }: { label: string; question: string; run: () => void; disabled?: boolean; mild?: boolean }) => {
  const [asked, setAsked] = useState(false)
  return (
    <>
      <button class={mild ? '' : 'danger'} disabled={disabled} onClick={() => setAsked(true)}>
        {label}
      </button>
      {asked && (
        <Dialog title={label} close={() => setAsked(false)}>
          <p>
            <Text text={question} />
          </p>
          <div class="row">
            <button
              class={mild ? 'primary' : 'danger'}
              onClick={() => {
                setAsked(false)
                run()
              }}
            >
              {label}
            </button>
            <button onClick={() => setAsked(false)}>Cancel</button>
          </div>
        </Dialog>
      )}
    </>
  )
}

/** A link to a commit. */
export const SeqLink = ({ seq }: { seq: number }) => (
  <a class="mono" href={link(['commits'], { seq: seq })} title="This commit in every model">
    {seq.toLocaleString('en')}
  </a>
)

/** The address of this server in commands. */
export const serverUrl = (): string => window.location.origin

/** The segment of the path after the page. */
export const objectName = (index = 1): string => segments.value[index] ?? ''
