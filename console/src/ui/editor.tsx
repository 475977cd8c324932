/**
 * Editors for SQL, PromQL and JSON, by CodeMirror.
 *
 * The editor is in a shadow tree, in which CodeMirror uses constructed style sheets: the policy of the page forbids the
 * style elements that it would add to the document.
 */
import { autocompletion, closeBrackets, closeBracketsKeymap, completionKeymap } from '@codemirror/autocomplete'
import { defaultKeymap, history, historyKeymap } from '@codemirror/commands'
import { bracketMatching, HighlightStyle, indentOnInput, syntaxHighlighting } from '@codemirror/language'
import type { Extension } from '@codemirror/state'
import { Annotation, Compartment, EditorState, Prec } from '@codemirror/state'
import { EditorView, keymap, lineNumbers, placeholder } from '@codemirror/view'
import { tags } from '@lezer/highlight'
import { useLayoutEffect, useRef } from 'preact/hooks'

const colours = HighlightStyle.define([
  { tag: [tags.keyword, tags.operatorKeyword, tags.modifier], color: 'var(--c4)', fontWeight: '600' },
  { tag: [tags.string, tags.special(tags.string)], color: 'var(--c3)' },
  { tag: [tags.number, tags.bool, tags.null], color: 'var(--c2)' },
  { tag: [tags.propertyName, tags.labelName, tags.attributeName], color: 'var(--c1)' },
  { tag: [tags.function(tags.variableName), tags.typeName, tags.standard(tags.name)], color: 'var(--c7)' },
  { tag: tags.comment, color: 'var(--soft)', fontStyle: 'italic' },
])

const look = EditorView.theme({
  '&': { backgroundColor: 'transparent', color: 'var(--text)', fontSize: '13px', maxHeight: '46vh' },
  '&.cm-focused': { outline: 'none' },
  '.cm-scroller': { fontFamily: 'var(--mono)', lineHeight: '1.55' },
  '.cm-content': { caretColor: 'var(--text)', padding: '8px 0' },
  '.cm-cursor': { borderLeftColor: 'var(--text)' },
  '&.cm-focused .cm-selectionBackground, .cm-selectionBackground, ::selection': { backgroundColor: 'var(--accent-soft)' },
  '.cm-gutters': { backgroundColor: 'transparent', color: 'var(--soft)', border: 'none' },
  '.cm-tooltip': { backgroundColor: 'var(--surface)', color: 'var(--text)', border: '1px solid var(--strong-line)', borderRadius: '6px' },
  '.cm-tooltip-autocomplete ul li[aria-selected]': { backgroundColor: 'var(--accent)', color: 'var(--accent-text)' },
  '.cm-completionDetail': { color: 'inherit', opacity: '0.8' },
  '.cm-matchingBracket': { backgroundColor: 'var(--accent-soft)', outline: '1px solid var(--accent)' },
  '.cm-placeholder': { color: 'var(--soft)' },
  '.cm-diagnostic': { fontFamily: 'var(--sans)' },
})

/** Marks a text that the page has set, which is not reported to the page. */
const fromPage = Annotation.define<boolean>()

export interface EditorProps {
  value: string
  /** Makes the editor the focused element, with this selection. */
  selection?: { anchor: number; head: number } | undefined
  change: (text: string) => void
  /** Ctrl+Enter: gets the selection, or the whole text. */
  run?: (text: string) => void
  language: Extension
  label: string
  hint?: string
  numbers?: boolean
  minHeight?: string
}

export const Editor = ({
  value,
  selection,
  change,
  run,
  language,
  label,
  hint = '',
  numbers = false,
  minHeight = '0',
}: EditorProps) => {
  const place = useRef<HTMLDivElement>(null)
  const view = useRef<EditorView | undefined>(undefined)
  const dynamic = useRef(new Compartment())
  const latest = useRef({ change, run })
  latest.current = { change, run }
  // Texts of this editor that have not come back as `value`: a component renders after further keys were pressed, and
  // its value then is an older text of the user, not a new one of the page.
  const typed = useRef<string[]>([])
  // Effects are in the task that renders: between the two, keys may be pressed.
  useLayoutEffect(() => {
    const host = place.current
    if (!host) return
    const root = host.shadowRoot ?? host.attachShadow({ mode: 'open' })
    const runNow = (editor: EditorView): boolean => {
      const { from, to, empty } = editor.state.selection.main
      latest.current.run?.(empty ? editor.state.doc.toString() : editor.state.sliceDoc(from, to))
      return latest.current.run !== undefined
    }
    const editor = new EditorView({
      root,
      parent: root,
      state: EditorState.create({
        doc: value,
        ...(selection && { selection }),
        extensions: [
          Prec.highest(keymap.of([{ key: 'Mod-Enter', run: runNow }])),
          numbers ? lineNumbers() : [],
          history(),
          indentOnInput(),
          bracketMatching(),
          closeBrackets(),
          autocompletion(),
          keymap.of([...closeBracketsKeymap, ...defaultKeymap, ...historyKeymap, ...completionKeymap]),
          syntaxHighlighting(colours),
          look,
          EditorView.theme({ '.cm-content': { minHeight } }),
          EditorView.lineWrapping,
          EditorView.contentAttributes.of({ 'aria-label': label, spellcheck: 'false' }),
          hint === '' ? [] : placeholder(hint),
          EditorView.updateListener.of((update) => {
            if (!update.docChanged || update.transactions.some((transaction) => transaction.annotation(fromPage) === true)) return
            const text = update.state.doc.toString()
            typed.current.push(text)
            latest.current.change(text)
          }),
          dynamic.current.of(language),
        ],
      }),
    })
    view.current = editor
    if (selection) editor.focus()
    return () => {
      editor.destroy()
      view.current = undefined
    }
    // The value and the language are set below, without a new editor.
  }, [])
  useLayoutEffect(() => view.current?.dispatch({ effects: dynamic.current.reconfigure(language) }), [language])
  useLayoutEffect(() => {
    const editor = view.current
    const place = typed.current.lastIndexOf(value)
    if (place >= 0) {
      typed.current.splice(0, place + 1)
    } else if (editor && editor.state.doc.toString() !== value) {
      typed.current = []
      editor.dispatch({ changes: { from: 0, to: editor.state.doc.length, insert: value }, annotations: fromPage.of(true) })
    }
  }, [value])
  return <div class="editor" ref={place} />
}
