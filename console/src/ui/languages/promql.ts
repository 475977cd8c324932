/** PromQL in an editor, by Prometheus' own grammar. Functions, metrics and labels complete by `hints`. */
import type { CompletionContext, CompletionResult } from '@codemirror/autocomplete'
import { LanguageSupport, LRLanguage, syntaxTree } from '@codemirror/language'
import type { Extension } from '@codemirror/state'
import { styleTags, tags } from '@lezer/highlight'
import { parser } from '@prometheus-io/lezer-promql'

/** Names that begin with a text; all names where they are few, so that the next key needs no request. */
export interface Names {
  names: readonly string[]
  all: boolean
}

export interface Hints {
  functions?: readonly string[]
  metrics?: (start: string) => Promise<Names>
  labels?: () => Promise<Names>
  values?: (label: string, start: string) => Promise<Names>
}

const promql = LRLanguage.define({
  parser: parser.configure({
    props: [
      styleTags({
        LineComment: tags.comment,
        LabelName: tags.labelName,
        StringLiteral: tags.string,
        NumberDurationLiteral: tags.number,
        'Identifier QuotedLabelName': tags.propertyName,
        'Abs Rate Sum Avg Min Max Count Quantile Topk Bottomk': tags.function(tags.variableName),
        'By Without On Ignoring GroupLeft GroupRight Offset Bool': tags.keyword,
        'And Or Unless': tags.logicOperator,
      }),
    ],
  }),
  languageData: { closeBrackets: { brackets: ['(', '[', '{', '"', "'"] }, commentTokens: { line: '#' } },
})

const options = (labels: readonly string[], type: string) => labels.map((label) => ({ label, type }))

/** What the text before the cursor asks for. */
export const wanted = (before: string): { kind: 'value'; label: string; start: string } | { kind: 'label' } | { kind: 'name' } => {
  const open = before.lastIndexOf('{')
  const isInside = open > before.lastIndexOf('}')
  const value = /([a-zA-Z_][a-zA-Z0-9_]*)\s*(?:=~?|!~|!=)\s*"([^"]*)$/.exec(before)
  if (isInside && value?.[1] !== undefined) return { kind: 'value', label: value[1], start: value[2] ?? '' }
  return isInside || /\b(by|without|on|ignoring|group_left|group_right)\s*\([^)]*$/.test(before) ? { kind: 'label' } : { kind: 'name' }
}

const complete =
  (hints: Hints) =>
  async (context: CompletionContext): Promise<CompletionResult | null> => {
    const before = context.state.sliceDoc(0, context.pos)
    const word = /[a-zA-Z0-9_:.-]*$/.exec(before)?.[0] ?? ''
    const asked = wanted(before)
    if (word === '' && !context.explicit && asked.kind === 'name') return null
    if (syntaxTree(context.state).resolveInner(context.pos, -1).name === 'LineComment') return null
    const from = context.pos - word.length
    const found = asked.kind === 'value' ? hints.values?.(asked.label, asked.start) : asked.kind === 'label' ? hints.labels?.() : hints.metrics?.(word)
    const { names, all } = (await found) ?? { names: [], all: true }
    const listed = options(names, asked.kind === 'value' ? 'text' : asked.kind === 'label' ? 'property' : 'variable')
    if (asked.kind === 'name') listed.unshift(...options(hints.functions ?? [], 'function'))
    return { from, options: listed, ...(all && { validFor: /^[a-zA-Z0-9_:.-]*$/ }) }
  }

export const make = (hints: Hints): Extension =>
  new LanguageSupport(promql, [promql.data.of({ autocomplete: complete(hints) })])
