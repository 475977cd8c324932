/** Codes of the server's errors (docs/http.md, "Errors"), and those of this client. */
export type ErrorCode =
  | "invalid_argument" | "unauthenticated" | "permission_denied" | "foreign_origin" | "not_found" | "no_such_route"
  | "no_such_lease" | "method_not_allowed" | "not_acceptable" | "request_timeout" | "condition_failed"
  | "tracking_conflict" | "already_exists" | "key_conflict" | "precondition_failed" | "commit_unreadable" | "too_large"
  | "unsupported_media_type" | "unknown_host" | "validation_failed" | "quota_exceeded" | "idempotency_mismatch"
  | "resource_exhausted" | "headers_too_large" | "internal" | "io" | "corrupt" | "stopping" | "timeout"
  | "not_leader" | "outcome_unknown"
  /** No complete response: the connection failed, broke, or took longer than `timeoutMs`. */
  | "network"
  /** Another worker has moved the checkpoint of {@link EventStore.follow}. */
  | "fenced"
  /** The lease of an event expired before the event was settled. */
  | "lease_lost"
  | (string & {});

/** The event that violates an append condition. */
export interface Conflict {
  /** Index of the condition in the append. */
  readonly condition: number;
  /** Position of the first matching event. */
  readonly position: number;
  /** Index of the matching item of the query; null for a query that matches every event. */
  readonly item: number | null;
}

/** Fields of a {@link RopewalkError}. */
export interface ErrorFields {
  code: ErrorCode;
  detail: string;
  status?: number;
  operation?: number | undefined;
  precondition?: number | undefined;
  sqlstate?: string | undefined;
  constraint?: string | undefined;
  table?: string | undefined;
  column?: string | undefined;
  hint?: string | undefined;
  conflict?: Conflict | undefined;
  retryAfterMs?: number | undefined;
  cause?: unknown;
}

/** An error of the server, or of the connection to it. `message` is the code and the detail. */
export class RopewalkError extends Error {
  override readonly name = "RopewalkError";
  /** Stable name of the error, for programs. */
  readonly code: ErrorCode;
  /** HTTP status; 0 without a response. */
  readonly status: number;
  /** Description of the error, for people. */
  readonly detail: string;
  /** Of a transaction: index of the failed operation. */
  readonly operation: number | undefined;
  /** Of a transaction: index of the precondition that does not hold. */
  readonly precondition: number | undefined;
  /** Of an SQL statement: PostgreSQL's five-character code. */
  readonly sqlstate: string | undefined;
  /** Of an SQL statement: the violated constraint. */
  readonly constraint: string | undefined;
  /** Of an SQL statement: the table that the error concerns. */
  readonly table: string | undefined;
  /** Of an SQL statement: the column that the error concerns. */
  readonly column: string | undefined;
  /** Remedy. */
  readonly hint: string | undefined;
  /** With `condition_failed`: the event that matches the condition. */
  readonly conflict: Conflict | undefined;
  /** Milliseconds that the server asks to wait before the next attempt. */
  readonly retryAfterMs: number | undefined;

  constructor(fields: ErrorFields) {
    super(`${fields.code}: ${fields.detail}`, { cause: fields.cause });
    this.code = fields.code;
    this.status = fields.status ?? 0;
    this.detail = fields.detail;
    this.operation = fields.operation;
    this.precondition = fields.precondition;
    this.sqlstate = fields.sqlstate;
    this.constraint = fields.constraint;
    this.table = fields.table;
    this.column = fields.column;
    this.hint = fields.hint;
    this.conflict = fields.conflict;
    this.retryAfterMs = fields.retryAfterMs;
  }
}

/**
 * Whether other writers changed the data on which the request is based: read again and decide again.
 *
 * True for a failed append condition, a serialization conflict, a precondition of a transaction and an
 * `If-Match` that do not hold. False for an operation that missed its `expect`: that is a refusal.
 */
export function isConflict(error: unknown): error is RopewalkError {
  if (!(error instanceof RopewalkError)) return false;
  if (error.code === "precondition_failed") return error.operation === undefined;
  return error.code === "condition_failed" || error.code === "key_conflict";
}

const RETRYABLE = new Set<string>([
  "network", "key_conflict", "resource_exhausted", "stopping", "request_timeout", "timeout", "not_leader", "outcome_unknown",
]);

/**
 * Whether the same request may succeed later without a change.
 *
 * After `network`, `timeout` and `outcome_unknown` the request may have been executed: repeat a write only with its
 * idempotency key.
 */
export function isRetryable(error: unknown): error is RopewalkError {
  return error instanceof RopewalkError && RETRYABLE.has(error.code);
}

/** The error of a response that is not a success. */
export async function errorOf(response: Response): Promise<RopewalkError> {
  const text = await response.text();
  const seconds = Number(response.headers.get("retry-after") ?? NaN);
  const retryAfterMs = Number.isFinite(seconds) ? seconds * 1000 : undefined;
  return new RopewalkError({ ...fieldsOf(text, response.status), status: response.status, retryAfterMs });
}

function fieldsOf(text: string, status: number): ErrorFields {
  let body: unknown;
  try {
    body = JSON.parse(text);
  } catch {
    body = undefined;
  }
  if (typeof body === "object" && body !== null) {
    if ("code" in body) return problemFields(body as Problem);
    // The form of Prometheus.
    if ("errorType" in body && "error" in body) return { code: String(body.errorType), detail: String(body.error) };
  }
  const detail = text.trim().slice(0, 500) || `status ${status} without a body`;
  return { code: status === 503 ? "stopping" : "internal", detail };
}

/** An error as `application/problem+json`. */
export interface Problem {
  code: string;
  detail?: string;
  title?: string;
  operation?: number;
  sqlstate?: string;
  constraint?: string;
  table?: string;
  column?: string;
  hint?: string;
  conflict?: Conflict;
}

/** The fields of a problem; the index of a precondition is only in its detail. */
export function problemFields(problem: Problem): ErrorFields {
  const detail = problem.detail ?? problem.title ?? "";
  const precondition = /^preconditions\[(\d+)\]/.exec(detail)?.[1];
  const { code, operation, sqlstate, constraint, table, column, hint, conflict } = problem;
  return {
    code, detail, operation, sqlstate, constraint, table, column, hint, conflict,
    precondition: precondition === undefined ? undefined : Number(precondition),
  };
}
