/** Forms: their fields are read when they are submitted. */
import type { ComponentChildren } from 'preact'

/** Reads a field of a form; one that is absent is empty. */
export type Texts = (name: string) => string

/** A form that passes its fields to `submit`. */
export const Form = ({ submit, layout = 'stack', children }: { submit: (text: Texts, fields: FormData, form: HTMLFormElement) => void; layout?: string; children: ComponentChildren }) => (
  <form
    class={layout}
    onSubmit={(event) => {
      event.preventDefault()
      const fields = new FormData(event.currentTarget)
      const text = (name: string) => {
        const value = fields.get(name)
        return typeof value === 'string' ? value : ''
      }
      submit(text, fields, event.currentTarget)
    }}
  >
    {children}
  </form>
)

/** The button that submits a form, on a line for itself. */
export const Submit = ({ busy, children }: { busy: boolean; children: ComponentChildren }) => (
  <div>
    <button class="primary" disabled={busy}>
      {children}
    </button>
  </div>
)
