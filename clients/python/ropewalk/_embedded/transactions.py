"""Transactions of a database in this process."""

from __future__ import annotations

import base64
import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .._documents import Codec, from_extended, to_extended
from .._events import ATTEMPTS, Appended
from .._http import dumps
from .._transactions import OpenTransaction, Operation, Transaction
from ..errors import Error, KeyConflict, TimedOut
from .documents import as_is

if TYPE_CHECKING:
    from .database import EmbeddedDatabase

#: Longest wait for a commit that a transaction has to include, seconds.
INCLUDES_WAIT = 30.0
#: Longest wait for the commit of a concurrent copy of a transaction with an idempotency key, seconds.
COPY_WAIT = 0.01


def encoded(result: Any) -> bytes | None:
    """Returns the result of an operation as it is stored with a key; `None` for an append."""
    form: Mapping[str, Any]
    if not isinstance(result, Mapping):
        columns = [{"name": name, "type": kind} for name, kind in result.columns]
        form = {"command": result.command, "columns": columns, "rows": result.rows()}
    elif "append" in result:
        return None
    elif "events" in result:
        form = {"events": [(*one[:5], base64.b64encode(one[5]).decode(), *one[6:]) for one in result["events"]]}
    else:
        form = to_extended(result)
    return json.dumps(form).encode()


def decoded(stored: bytes | tuple[int, int]) -> Mapping[str, Any]:
    """Returns a stored result, as the operation reads it."""
    if isinstance(stored, tuple):
        return {"first": stored[0], "last": stored[1]}
    form: dict[str, Any] = json.loads(stored)
    if "events" in form:
        events = form["events"]
        return {"events": [(*one[:4], tuple(one[4]), base64.b64decode(one[5]), *one[6:]) for one in events]}
    found: dict[str, Any] = form if "rows" in form else from_extended(form)
    return found


class EmbeddedTransaction(Transaction):
    """Operations that are committed together at the end of the `with` block."""

    _db: EmbeddedDatabase

    def __init__(self, db: EmbeddedDatabase, **options: Any) -> None:
        super().__init__(db, **options)
        # The documents are those of the call: a later change of a dictionary has no effect.
        self._codec = Codec(to_extended, as_is)
        self._is_at_commit = False

    def _commit(self, body: dict[str, Any]) -> Any:
        includes = body.get("includes")
        if includes is not None and not self._db.core.wait_visible(includes, INCLUDES_WAIT):
            raise TimedOut(f"commit {includes} is not visible yet", code="timeout")
        request = None if self._key is None else (self._key, hashlib.sha256(dumps(body)).digest())
        may_be_repetition = request is not None
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return self._attempt(body, request)
            except Error as error:
                is_conflict = isinstance(error, KeyConflict)
                # A condition can fail because a concurrent copy was committed: the next attempt finds its results.
                may_be_repetition = may_be_repetition and (is_conflict or self._is_at_commit)
                if attempt == ATTEMPTS or not (is_conflict or may_be_repetition):
                    raise
                if not is_conflict:
                    may_be_repetition = False
                    self._db.core.wait_visible(self._db.seq + 1, COPY_WAIT)
            time.sleep(self._db.retry_pause(attempt))
        raise AssertionError("a loop of attempts returns or raises")

    def _attempt(self, body: dict[str, Any], request: tuple[str, bytes] | None) -> dict[str, Any]:
        self._is_at_commit = False
        native = self._db.core.begin(body.get("isolation"), body.get("durability"))
        try:
            found = None if request is None else native.find_results(*request)
            if found is not None:
                return {"seq": found[0], "repeated": True, "results": [decoded(one) for one in found[1]]}
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
            if request is not None:
                native.store_results(*request, [encoded(one) for one in results])
            self._is_at_commit = True
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
