/** A field for code. Until the editor is loaded it is a plain text area, so that a page can be used at once. */
import type { Extension } from '@codemirror/state'
import type { ComponentType } from 'preact'
import { useEffect, useMemo, useRef, useState } from 'preact/hooks'

import type { EditorProps } from './editor'
import type { Hints as JsonHints } from './languages/json'
import type { Hints as PromqlHints } from './languages/promql'
import type { Hints as SqlHints } from './languages/sql'

type Language = { language: 'sql'; hints?: SqlHints } | { language: 'json'; hints?: JsonHints } | { language: 'promql'; hints?: PromqlHints }

type Props = Omit<EditorProps, 'language' | 'selection'> & Language

interface Loaded {
  Editor: ComponentType<EditorProps>
  make: (hints: object) => Extension
}

const load = async (language: Language['language']): Promise<Loaded> => {
  const languages = {
    sql: () => import('./languages/sql'),
    json: () => import('./languages/json'),
    promql: () => import('./languages/promql'),
  }
  const [{ Editor }, { make }] = await Promise.all([import('./editor'), languages[language]()])
  return { Editor, make }
}

export const CodeField = ({ language, hints, ...rest }: Props) => {
  const [loaded, setLoaded] = useState<Loaded & Pick<EditorProps, 'selection'>>()
  const area = useRef<HTMLTextAreaElement>(null)
  useEffect(() => {
    const replace = (found: Loaded) => {
      // A user who is writing in the text area continues in the editor.
      const used = area.current === document.activeElement ? area.current : null
      setLoaded({ ...found, selection: used ? { anchor: used.selectionStart, head: used.selectionEnd } : undefined })
    }
    load(language).then(replace, () => undefined)
  }, [language])
  const extension = useMemo(() => loaded?.make(hints ?? {}), [loaded, hints])
  if (loaded && extension) return <loaded.Editor {...rest} selection={loaded.selection} language={extension} />
  return (
    <textarea
      ref={area}
      aria-label={rest.label}
      placeholder={rest.hint}
      rows={4}
      spellcheck={false}
      value={rest.value}
      onInput={(event) => rest.change(event.currentTarget.value)}
      onKeyDown={(event) => {
        if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) {
          event.preventDefault()
          rest.run?.(event.currentTarget.value)
        }
      }}
    />
  )
}
