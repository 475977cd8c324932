"""Exceptions of the package.

Every error of the database, of the server or of the connection is an `Error`. `Refused` and `Park` are raised by
applications: in a decision and in the handler of a consumer group.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

__all__ = [
    "AlreadyExists",
    "ConditionFailed",
    "Conflict",
    "ConnectionBroken",
    "Error",
    "IdempotencyMismatch",
    "InvalidArgument",
    "KeyConflict",
    "NotFound",
    "Park",
    "PermissionDenied",
    "PreconditionFailed",
    "Refused",
    "ResourceExhausted",
    "ServerError",
    "TimedOut",
    "TooLarge",
    "TrackingConflict",
    "Unauthenticated",
    "Unavailable",
    "ValidationFailed",
]


class Error(Exception):
    """A request failed.

    `code` is the stable name of the error, `status` the HTTP status (0 without a response),
    `detail` the text for people. `operation` is the index of the failed operation of a transaction,
    `sqlstate` and `constraint` belong to SQL statements. `conflict` names the append condition and
    the event that failed it: `{"condition", "position", "item"}`. `retry_after` is in seconds.
    """

    def __init__(
        self,
        detail: str,
        *,
        code: str = "unknown",
        status: int = 0,
        operation: int | None = None,
        sqlstate: str | None = None,
        constraint: str | None = None,
        hint: str | None = None,
        conflict: Mapping[str, int] | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(f"{code}: {detail}" + (f" (hint: {hint})" if hint else ""))
        self.detail = detail
        self.code = code
        self.status = status
        self.operation = operation
        self.sqlstate = sqlstate
        self.constraint = constraint
        self.hint = hint
        self.conflict = conflict
        self.retry_after = retry_after

    def within(self, place: str) -> None:
        """Adds a place, such as `operations[1]`, to the detail."""
        self.detail = f"{place}: {self.detail}"
        self.args = (f"{self.code}: {self.detail}" + (f" (hint: {self.hint})" if self.hint else ""),)


class Conflict(Error):
    """Other commits changed data that was read: read again and decide again."""


class ConditionFailed(Conflict):
    """An event matches an append condition; `conflict` names it."""


class KeyConflict(Conflict):
    """Concurrent commits changed the data that a transaction read."""


class PreconditionFailed(Error):
    """A precondition, an `expect` or an `If-Match` does not hold. Nothing was written."""


class TrackingConflict(Error):
    """The position of the upstream source was already appended."""


class AlreadyExists(Error):
    """An object with this name or this key exists."""


class NotFound(Error):
    """The store, collection, document, group or transaction does not exist."""


class InvalidArgument(Error):
    """The request is invalid: the detail names the field or parameter."""


class Unauthenticated(Error):
    """The credentials are absent, wrong or expired."""


class PermissionDenied(Error):
    """The caller has no right to do this."""


class ValidationFailed(Error):
    """A document violates the validator or a reference of its collection."""


class IdempotencyMismatch(Error):
    """The idempotency key was used for another request."""


class TooLarge(Error):
    """The request exceeds a limit."""


class ResourceExhausted(Error):
    """A limit of memory or of concurrent work was reached; `retry_after` is in seconds.

    `open` raises it while another process has the database open.
    """


class TimedOut(Error):
    """The server's time limit of the request has passed, or its outcome is unknown; a write may have been committed."""


class Unavailable(Error):
    """The server is stopping, or it is a node that knows no leader at the moment. Nothing was written."""


class ServerError(Error):
    """The server failed, and its log has the reason; or the database in this process failed."""


class ConnectionBroken(Error):
    """No complete response arrived.

    With `is_sent`, a write may have been committed: repeat it with its idempotency key.
    """

    def __init__(self, detail: str, *, is_sent: bool) -> None:
        super().__init__(detail, code="connection_broken")
        self.is_sent = is_sent


class Refused(Exception):
    """Raised by an application to end a decision or a transaction without writes and without a retry."""


class Park(Exception):
    """Raised by the handler of a consumer group: the event is parked and not delivered again."""


_BY_CODE: dict[str, type[Error]] = {
    "already_exists": AlreadyExists,
    "bad_data": InvalidArgument,
    "condition_failed": ConditionFailed,
    "corrupt": ServerError,
    "foreign_origin": PermissionDenied,
    "idempotency_mismatch": IdempotencyMismatch,
    "internal": ServerError,
    "invalid_argument": InvalidArgument,
    "io": ServerError,
    "key_conflict": KeyConflict,
    "no_such_lease": NotFound,
    "no_such_route": NotFound,
    "not_found": NotFound,
    "not_leader": Unavailable,
    "outcome_unknown": TimedOut,
    "permission_denied": PermissionDenied,
    "precondition_failed": PreconditionFailed,
    "resource_exhausted": ResourceExhausted,
    "stopping": Unavailable,
    "timeout": TimedOut,
    "too_large": TooLarge,
    "tracking_conflict": TrackingConflict,
    "unauthenticated": Unauthenticated,
    "validation_failed": ValidationFailed,
}
_BY_STATUS: dict[int, type[Error]] = {
    400: InvalidArgument,
    401: Unauthenticated,
    403: PermissionDenied,
    404: NotFound,
    413: TooLarge,
    429: ResourceExhausted,
    503: Unavailable,
    504: TimedOut,
}
#: SQLSTATE of a serialization failure and of a deadlock.
_CONFLICT_STATES = ("40001", "40P01")


def from_problem(status: int, problem: Mapping[str, Any], retry_after: float | None = None) -> Error:
    """Returns the exception for the body of an error response."""
    code = str(problem.get("code") or problem.get("errorType") or f"status_{status}")
    sqlstate = problem.get("sqlstate")
    kind = _BY_CODE.get(code) or _BY_STATUS.get(status) or (ServerError if status >= 500 else Error)
    if sqlstate in _CONFLICT_STATES:
        kind = KeyConflict
    return kind(
        str(problem.get("detail") or problem.get("error") or problem.get("title") or f"status {status}"),
        code=code,
        status=status,
        operation=problem.get("operation"),
        sqlstate=sqlstate,
        constraint=problem.get("constraint"),
        hint=problem.get("hint"),
        conflict=problem.get("conflict"),
        retry_after=retry_after,
    )


def from_response(status: int, body: bytes, retry_after: str | None) -> Error:
    """Returns the exception for an error response."""
    try:
        problem = json.loads(body)
    except ValueError:
        problem = None
    if not isinstance(problem, dict):
        problem = {"detail": body[:500].decode("utf-8", "replace") or f"status {status}"}
    seconds = float(retry_after) if retry_after and retry_after.isdigit() else None
    return from_problem(status, problem, seconds)
