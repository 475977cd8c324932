/** JSON in an editor, with its syntax errors. Names of fields complete by `hints`. */
import { completeFromList } from '@codemirror/autocomplete'
import { json, jsonLanguage, jsonParseLinter } from '@codemirror/lang-json'
import { linter } from '@codemirror/lint'
import type { Extension } from '@codemirror/state'

const check = jsonParseLinter()

export const make = (hints: Hints): Extension => [
  json(),
  // An empty text is a value that was not given.
  linter((view) => (view.state.doc.toString().trim() === '' ? [] : check(view))),
  jsonLanguage.data.of({ autocomplete: completeFromList((hints.words ?? []).map((word) => ({ label: word, apply: word }))) }),
]

export interface Hints {
  words?: readonly string[]
}
