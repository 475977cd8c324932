/** SQL statements and their results. */

/**
 * A parameter of a statement. Dates are sent as ISO 8601, bytes as `\x…`, arrays as PostgreSQL arrays,
 * other objects as JSON.
 */
export type SqlParam = string | number | bigint | boolean | null | Date | Uint8Array | readonly SqlParam[] | { readonly [key: string]: unknown };

/** A row by column name. Of several columns with one name, the last counts. */
export type Row = Record<string, unknown>;

/**
 * The result of a statement.
 *
 * Integers, finite floats, booleans and JSON are JavaScript values; other types, including `numeric` and
 * timestamps, are strings in PostgreSQL's format. Integers beyond 2^53 lose digits: cast them to `text`.
 */
export interface SqlResult<R = Row> {
  /** PostgreSQL's command tag, such as `UPDATE 1`. */
  readonly command: string;
  /** Rows written or returned; 0 for commands without a number. */
  readonly rowCount: number;
  readonly rows: R[];
  readonly columns: readonly { readonly name: string; readonly type: string }[];
}

/** Arguments of a tagged template, or a text with `$1`, `$2`, … and its parameters. */
export type SqlArguments = [text: TemplateStringsArray, ...params: SqlParam[]] | [text: string, params?: readonly SqlParam[]];

/** @internal */
export interface WireStatement {
  sql: string;
  params?: unknown[];
  expect?: number;
}

/** @internal */
export interface WireSqlResult {
  command: string;
  columns?: { name: string; type: string }[];
  rows?: unknown[][];
}

/** @internal The statement of a tagged template or of a text; parameters become `$1`, `$2`, … */
export function statementOf([text, ...rest]: SqlArguments): WireStatement {
  const isTemplate = typeof text !== "string";
  const params = (isTemplate ? rest : rest[0] ?? []) as readonly SqlParam[];
  const sql = isTemplate ? text.reduce((sql, part, index) => `${sql}$${index}${part}`) : text;
  return { sql, ...(params.length > 0 && { params: params.map(wireParam) }) };
}

function wireParam(value: SqlParam): unknown {
  switch (typeof value) {
    case "undefined":
      throw new TypeError("an SQL parameter is undefined; use null for NULL");
    case "number":
      return Number.isFinite(value) ? value : String(value);
    case "bigint":
      return String(value);
    case "object":
      return value === null ? null : textOf(value);
    default:
      return value;
  }
}

function textOf(value: Exclude<SqlParam, null | string | number | bigint | boolean>): string {
  if (value instanceof Date) return value.toISOString();
  if (value instanceof Uint8Array) return `\\x${Array.from(value, (byte) => byte.toString(16).padStart(2, "0")).join("")}`;
  if (Array.isArray(value)) return `{${(value as readonly SqlParam[]).map(element).join(",")}}`;
  return JSON.stringify(value);
}

/** An element of a PostgreSQL array. */
function element(value: SqlParam): string {
  if (Array.isArray(value)) return textOf(value);
  const wire = wireParam(value);
  return wire === null ? "NULL" : typeof wire === "string" ? `"${wire.replace(/["\\]/g, "\\$&")}"` : String(wire);
}

/** @internal Rows as objects. */
export function sqlResult<R>({ command, columns = [], rows = [] }: WireSqlResult): SqlResult<R> {
  const named = rows.map((row) => Object.fromEntries(columns.map((column, index) => [column.name, row[index]])) as R);
  return { command, rowCount: Number(/\d+$/.exec(command)?.[0] ?? 0), rows: named, columns };
}
