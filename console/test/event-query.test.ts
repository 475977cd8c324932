import { describe, expect, it } from 'vitest'

import { condition, formatQuery, parseQuery, rustText, shellQuoted, snippets, wireQuery, withItem } from '../src/base/event-query'

describe('event query', () => {
  it('is stored in the URL without empty parts', () => {
    const query = { items: [{ types: ['A'], tags: [] }, { types: [], tags: [] }, { types: [], tags: ['x:1', 'y'] }] }
    expect(wireQuery(query)).toEqual({ items: [{ types: ['A'] }, { tags: ['x:1', 'y'] }] })
    expect(parseQuery(formatQuery(query)).items).toEqual([{ types: ['A'], tags: [] }, { types: [], tags: ['x:1', 'y'] }])
    expect(formatQuery({ items: [{ types: [], tags: [] }] })).toBe('')
  })

  it('is every event for a text that is no query', () => {
    for (const text of ['', 'x', '[]', 'null', '{"items":7}', '{"items":[{}]}', '{"items":[{"types":[1]}]}']) {
      expect(parseQuery(text)).toEqual({ items: [] })
    }
  })

  it('changes one item and drops it when it becomes empty', () => {
    const added = withItem({ items: [] }, 0, (item) => ({ ...item, tags: ['a'] }))
    expect(added).toEqual({ items: [{ types: [], tags: ['a'] }] })
    expect(withItem(added, 0, (item) => ({ ...item, tags: [] }))).toEqual({ items: [] })
  })

  it('is written for shells and programs with hostile names', () => {
    const hostile = `it's "<script>" $(x) \u0000`
    expect(shellQuoted(`a'b`)).toBe(`'a'\\''b'`)
    expect(rustText('a"\\\u0000')).toBe('"a\\"\\\\\\u{0}"')
    const { curl, python, rust, typescript } = snippets('http://h', hostile, { items: [{ types: ['A'], tags: [hostile] }] })
    expect(curl).toContain(`'http://h/v1/stores/it'\\''s%20%22`)
    expect(curl.replaceAll(`'\\''`, '').match(/'/g)?.length).toBe(6)
    expect(python).toContain(`where("A", tags=["it's \\"<script>\\" $(x) \\u0000"])`)
    expect(rust).toContain('QueryItem::new(["A"], ["it\'s \\"<script>\\" $(x) \\u{0}"])')
    expect(typescript).toContain('{"types":["A"],"tags":["it\'s')
    expect(snippets('http://h', 's', { items: [] }).rust).toContain('&Query::all()')
  })

  it('is the condition of an append', () => {
    expect(condition({ items: [{ types: [], tags: ['c1'] }] }, 7)).toEqual({
      conditions: [{ fail_if_events_match: { items: [{ tags: ['c1'] }] }, after: 7 }],
    })
  })
})
