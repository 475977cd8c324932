/** An error of the server, or of the connection to it. `message` is the code and the detail. */
export class RopewalkError extends Error {
    name = "RopewalkError";
    /** Stable name of the error, for programs. */
    code;
    /** HTTP status; 0 without a response. */
    status;
    /** Description of the error, for people. */
    detail;
    /** Of a transaction: index of the failed operation. */
    operation;
    /** Of a transaction: index of the precondition that does not hold. */
    precondition;
    /** Of an SQL statement: PostgreSQL's five-character code. */
    sqlstate;
    /** Of an SQL statement: the violated constraint. */
    constraint;
    /** Of an SQL statement: the table that the error concerns. */
    table;
    /** Of an SQL statement: the column that the error concerns. */
    column;
    /** Remedy. */
    hint;
    /** With `condition_failed`: the event that matches the condition. */
    conflict;
    /** Milliseconds that the server asks to wait before the next attempt. */
    retryAfterMs;
    constructor(fields) {
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
export function isConflict(error) {
    if (!(error instanceof RopewalkError))
        return false;
    if (error.code === "precondition_failed")
        return error.operation === undefined;
    return error.code === "condition_failed" || error.code === "key_conflict";
}
const RETRYABLE = new Set(["network", "key_conflict", "resource_exhausted", "stopping", "request_timeout", "timeout"]);
/**
 * Whether the same request may succeed later without a change.
 *
 * After `network` and `timeout` the request may have been executed: repeat a write only with its
 * idempotency key.
 */
export function isRetryable(error) {
    return error instanceof RopewalkError && RETRYABLE.has(error.code);
}
/** The error of a response that is not a success. */
export async function errorOf(response) {
    const text = await response.text();
    const seconds = Number(response.headers.get("retry-after") ?? NaN);
    const retryAfterMs = Number.isFinite(seconds) ? seconds * 1000 : undefined;
    return new RopewalkError({ ...fieldsOf(text, response.status), status: response.status, retryAfterMs });
}
function fieldsOf(text, status) {
    let body;
    try {
        body = JSON.parse(text);
    }
    catch {
        body = undefined;
    }
    if (typeof body === "object" && body !== null) {
        if ("code" in body)
            return problemFields(body);
        // The form of Prometheus.
        if ("errorType" in body && "error" in body)
            return { code: String(body.errorType), detail: String(body.error) };
    }
    const detail = text.trim().slice(0, 500) || `status ${status} without a body`;
    return { code: status === 503 ? "stopping" : "internal", detail };
}
/** The fields of a problem; the index of a precondition is only in its detail. */
export function problemFields(problem) {
    const detail = problem.detail ?? problem.title ?? "";
    const precondition = /^preconditions\[(\d+)\]/.exec(detail)?.[1];
    const { code, operation, sqlstate, constraint, table, column, hint, conflict } = problem;
    return {
        code, detail, operation, sqlstate, constraint, table, column, hint, conflict,
        precondition: precondition === undefined ? undefined : Number(precondition),
    };
}
//# sourceMappingURL=error.js.map