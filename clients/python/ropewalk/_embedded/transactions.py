"""Transactions of a database in this process."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .._documents import Codec, to_extended
from .._events import ATTEMPTS, Appended
from .._transactions import OpenTransaction, Operation, Transaction
from ..errors import Error, InvalidArgument, KeyConflict, TimedOut
from .documents import as_is

if TYPE_CHECKING:
    from .database import EmbeddedDatabase

#: Longest wait for a commit that a transaction has to include, seconds.
INCLUDES_WAIT = 30.0


class EmbeddedTransaction(Transaction):
    """Operations that are committed together at the end of the `with` block."""

    _db: EmbeddedDatabase

    def __init__(self, db: EmbeddedDatabase, *, idempotency_key: str | None, **options: Any) -> None:
        if idempotency_key is not None:
            raise InvalidArgument(
                "idempotency_key: a commit in this process is known to have happened or not; "
                "an append takes a key",
                code="invalid_argument",
            )
        super().__init__(db, idempotency_key=None, **options)
        # The documents are those of the call: a later change of a dictionary has no effect.
        self._codec = Codec(to_extended, as_is)

    def _commit(self, body: dict[str, Any]) -> Any:
        includes = body.get("includes")
        if includes is not None and not self._db.core.wait_visible(includes, INCLUDES_WAIT):
            raise TimedOut(f"commit {includes} is not visible yet", code="timeout")
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return self._attempt(body)
            except KeyConflict:
                if attempt == ATTEMPTS:
                    raise
            time.sleep(self._db.retry_pause(attempt))
        raise AssertionError("a loop of attempts returns or raises")

    def _attempt(self, body: dict[str, Any]) -> dict[str, Any]:
        native = self._db.core.begin(body.get("isolation"), body.get("durability"))
        try:
            for place, one in enumerate(body.get("preconditions", ())):
                try:
                    native.require(one)
                except Error as error:
                    error.within(f"preconditions[{place}]")
                    raise
            results: list[Any] = []
            for place, one in enumerate(body["operations"]):
                try:
                    results.append(native.apply(one))
                except Error as error:
                    error.within(f"operations[{place}]")
                    error.operation = place
                    raise
            seq, appended = native.commit()
        finally:
            native.rollback()
        for result in results:
            if isinstance(result, dict) and "append" in result:
                _, first, last = appended[result["append"]]
                result.update(first=first, last=last)
        return {"seq": seq, "repeated": False, "results": results}


class EmbeddedOpenTransaction(OpenTransaction):
    """A transaction whose operations run at once.

    It reads one snapshot and its own writes. The end of the `with` block commits it, an exception
    rolls it back, as does an error of an operation; further operations then raise `NotFound`. It
    has no time limit: `idle_seconds` is infinite. After the commit `seq` and `appended` are known.
    """

    _db: EmbeddedDatabase

    def __init__(self, db: EmbeddedDatabase, isolation: str | None, durability: str | None) -> None:
        self._db = db
        self._native = db.core.begin(isolation, durability)
        self.snapshot = self._native.snapshot
        self.idle_seconds = float("inf")
        self.is_open = True
        self.seq = 0
        self.appended = []

    def commit(self) -> None:
        """Commits. Raises `KeyConflict` if other commits changed what it read; then begin again."""
        self.is_open = False
        self.seq, appended = self._native.commit()
        self.appended = [Appended(first, last, self.seq) for _, first, last in appended]

    def rollback(self) -> None:
        """Rolls back."""
        self.is_open = False
        self._native.rollback()

    def run(self, operations: Sequence[Operation[Any]]) -> list[Any]:
        """Runs several operations; returns their results."""
        results: list[Any] = []
        try:
            for one in operations:
                result = self._native.apply(dict(one.body))
                if isinstance(result, dict) and "append" in result:
                    result.update(first=None, last=None)
                results.append(one.read(result))
        except BaseException:
            self.rollback()
            raise
        return results
