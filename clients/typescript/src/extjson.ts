/**
 * Values of documents: dates and bytes are JavaScript's, every other type that JSON lacks is written in
 * MongoDB's Extended JSON, such as `{ $oid: "…" }`.
 */

/** @internal A value in Extended JSON. */
export function encode(value: unknown): unknown {
  if (typeof value === "bigint") return { $numberLong: String(value) };
  if (typeof value === "number" && !Number.isFinite(value)) {
    return { $numberDouble: Number.isNaN(value) ? "NaN" : value > 0 ? "Infinity" : "-Infinity" };
  }
  if (typeof value !== "object" || value === null) return value;
  if (value instanceof Date) return { $date: dateText(value) };
  if (value instanceof Uint8Array) return { $binary: { base64: base64Of(value), subType: "00" } };
  if (Array.isArray(value)) return value.map(encode);
  if ("toJSON" in value && typeof value.toJSON === "function") return encode(value.toJSON());
  return Object.fromEntries(Object.entries(value).map(([key, part]) => [key, encode(part)]));
}

/** @internal The JavaScript value of Extended JSON. */
export function decode(value: unknown): unknown {
  if (typeof value !== "object" || value === null) return value;
  if (Array.isArray(value)) return value.map(decode);
  const entries = Object.entries(value);
  if (entries.length === 1) {
    const [key, inner] = entries[0] as [string, unknown];
    if (key === "$date") return new Date(typeof inner === "string" ? inner : Number((inner as { $numberLong: string }).$numberLong));
    if (key === "$numberDouble") return Number(inner);
    const binary = key === "$binary" ? (inner as { base64: string; subType: string }) : undefined;
    if (binary?.subType === "00") return Uint8Array.from(atob(binary.base64), (char) => char.charCodeAt(0));
  }
  return Object.fromEntries(entries.map(([key, part]) => [key, decode(part)]));
}

/** Milliseconds for years that the relaxed form does not have. */
function dateText(date: Date): unknown {
  const year = date.getUTCFullYear();
  return year >= 1970 && year <= 9999 ? date.toISOString() : { $numberLong: String(date.getTime()) };
}

/** @internal */
export function base64Of(bytes: Uint8Array): string {
  let text = "";
  for (const byte of bytes) text += String.fromCharCode(byte);
  return btoa(text);
}
