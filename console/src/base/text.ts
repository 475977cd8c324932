/** Text of users, made visible without a change of its meaning. */

/** Longest text that a page shows in full at first. */
export const SHOWN_CHARS_MAX = 2_000

const CONTROL = /[\p{Cc}\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff]/gu

/** Control characters and direction marks as symbols or code points: nul is `␀`. Line breaks and tabs stay. */
export const visible = (text: string): string =>
  text.replace(CONTROL, (char) => {
    const code = char.codePointAt(0) ?? 0
    if (char === '\n' || char === '\t') return char
    if (code < 0x20) return String.fromCodePoint(0x2400 + code)
    if (code === 0x7f) return '␡'
    return `\\u${code.toString(16).padStart(4, '0')}`
  })

/** The first characters of a text; never half of a surrogate pair. */
export const shorten = (text: string, max = SHOWN_CHARS_MAX): string => {
  if (text.length <= max) return text
  const last = text.charCodeAt(max - 1)
  return text.slice(0, last >= 0xd800 && last <= 0xdbff ? max - 1 : max)
}

/** One line: line breaks and tabs as symbols. */
export const oneLine = (text: string, max = 200): string => {
  const short = shorten(text, max)
  return visible(short).replace(/\n/g, '⏎').replace(/\t/g, '⇥') + (short.length < text.length ? '…' : '')
}

/** Bytes in base64 as text: printable ASCII as it is, other bytes as `\\x00`. */
export const bytesText = (base64: string): string => atob(base64).replace(/[^\x20-\x7e]/g, (char) => `\\x${char.charCodeAt(0).toString(16).padStart(2, '0')}`)

/** `1 event`, `2 events`. */
export const plural = (count: number, noun: string): string =>
  `${new Intl.NumberFormat('en').format(count)} ${noun}${count === 1 ? '' : 's'}`
