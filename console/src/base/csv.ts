/** CSV by RFC 4180. */

/**
 * One field. A spreadsheet runs a text that begins with `=`, `+`, `-`, `@` as a formula; such a text, unless it is a
 * number, gets an apostrophe before it.
 */
export const csvField = (value: string | null): string => {
  if (value === null) return ''
  const isFormula = /^[=+\-@\t\r]/.test(value) && !/^[-+]?\d+(\.\d+)?([eE][-+]?\d+)?$/.test(value)
  const text = isFormula ? `'${value}` : value
  return text === '' || /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text
}

export const csv = (columns: readonly string[], rows: readonly (readonly (string | null)[])[]): string =>
  [columns, ...rows].map((row) => row.map(csvField).join(',')).join('\r\n') + '\r\n'
