/** JSON without loss: numbers that a double cannot hold keep their spelling. */

/** A number as it was spelled. */
export class ExactNumber {
  constructor(readonly text: string) {}
  toString(): string {
    return this.text
  }
}

export type Json = null | boolean | number | string | ExactNumber | Json[] | { [name: string]: Json }

/** JSON.rawJSON and the source of a value are new: without them numbers are doubles. */
type Reviver = (this: unknown, key: string, value: unknown, context?: { source?: string }) => unknown
const rawJson = (JSON as unknown as { rawJSON?: (text: string) => unknown }).rawJSON

const revive: Reviver = (_key, value, context) => {
  if (typeof value !== 'number' || context?.source === undefined) return value
  return String(value) === context.source || Number.isSafeInteger(value) ? value : exactIfLossy(value, context.source)
}

const exactIfLossy = (value: number, source: string): number | ExactNumber => {
  // 1.50 and 1e3 are the same doubles as 1.5 and 1000; 0.1234567890123456789 is not.
  const digits = source.replace(/[-+.]|e.*$/gi, '').replace(/^0+|0+$/g, '')
  return digits.length <= 15 && Number.isFinite(value) ? value : new ExactNumber(source)
}

/** Parses JSON. Without a number of 16 digits or more, the native parser alone is exact, and many times as fast. */
export const parseJson = (text: string): Json =>
  (/[\d.]{16}/.test(text) ? JSON.parse(text, revive) : JSON.parse(text)) as Json

/** JSON with indentation; exact numbers keep their spelling where the browser can write them. */
export const formatJson = (value: unknown, indent = 2): string =>
  JSON.stringify(
    value,
    (_key, part: unknown) => (part instanceof ExactNumber ? (rawJson?.(part.text) ?? Number(part.text)) : part),
    indent,
  )

/** JSON text with indentation, or the text itself where the browser would change the spelling of a number. */
export const prettyExact = (text: string): string =>
  rawJson === undefined && /[\d.]{16}/.test(text) ? text : formatJson(parseJson(text))

export const isObject = (value: unknown): value is Record<string, Json> =>
  typeof value === 'object' && value !== null && !Array.isArray(value) && !(value instanceof ExactNumber)

/** A member of an object, for data whose shape is not certain. */
export const member = (value: unknown, name: string): Json | undefined =>
  isObject(value) && Object.hasOwn(value, name) ? value[name] : undefined

/** The place of a syntax error of `JSON.parse`, from 0; `undefined` where the browser does not say it. */
export const errorPosition = (message: string): number | undefined => {
  const found = /position (\d+)/.exec(message)
  return found?.[1] === undefined ? undefined : Number(found[1])
}
