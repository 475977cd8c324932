import { describe, expect, it } from 'vitest'

import { findBody } from '../src/api/documents'
import { explainTree, idParts, shapeOf, typeOf } from '../src/base/document-shape'
import { ExactNumber } from '../src/base/json'

describe('shape of documents', () => {
  it('names types of Extended JSON', () => {
    const values = [null, true, 1, 'x', [1], { a: 1 }, { $oid: 'x' }, { $date: 'x' }, { $numberDecimal: '1' }, { $oid: 'x', b: 1 }, new ExactNumber('1')]
    expect(values.map(typeOf)).toEqual(['null', 'boolean', 'number', 'string', 'array', 'object', 'objectId', 'date', 'decimal', 'object', 'number'])
  })

  it('counts fields by path and type', () => {
    const fields = shapeOf([{ _id: 1, a: { b: 'x' } }, { _id: 2, a: null }, { _id: '3' }])
    expect(fields).toEqual([
      { path: '_id', types: { number: 2, string: 1 }, count: 3 },
      { path: 'a', types: { object: 1, null: 1 }, count: 2 },
      { path: 'a.b', types: { string: 1 }, count: 1 },
    ])
  })

  it('is bounded for documents with many fields', () => {
    const wide = Object.fromEntries(Array.from({ length: 2_000 }, (_, index) => [`f${index}`, index]))
    expect(shapeOf([wide])).toHaveLength(500)
  })
})

describe('requests', () => {
  it('name a document by its id of any type', () => {
    expect(idParts('a/b')).toEqual({ id: 'a/b', kind: '' })
    expect(idParts({ $oid: '65' })).toEqual({ id: '65', kind: 'oid' })
    expect(idParts(7)).toEqual({ id: '7', kind: 'json' })
    expect(idParts('')).toEqual({ id: '""', kind: 'json' })
    expect(idParts(new ExactNumber('12345678901234567890'))).toEqual({ id: '12345678901234567890', kind: 'json' })
  })

  it('send filters as they are written, and leave out empty parts', () => {
    const find = { filter: '{"a": 1.0}', sort: ' ', projection: '', skip: 0, limit: 50 }
    expect(findBody(find)).toBe('{"filter":{"a": 1.0},"skip":0,"limit":50}')
  })
})

describe('explain', () => {
  it('is a tree of stages', () => {
    const plan = { stage: 'FETCH', inputStage: { stage: 'IXSCAN', indexName: 'city_1', reverse: false, bounds: { city: [1] } } }
    expect(explainTree(plan)).toEqual({
      stage: 'FETCH',
      facts: [],
      children: [{ stage: 'IXSCAN', facts: [['indexName', 'city_1'], ['bounds', '{"city":[1]}']], children: [] }],
    })
    expect(explainTree(undefined)).toBeUndefined()
  })
})
