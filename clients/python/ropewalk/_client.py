"""The database: entry point of the package."""

from __future__ import annotations

import os
import ssl
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar, overload
from urllib.parse import urlencode

from ._documents import EXTENDED, Codec, Collection
from ._events import ATTEMPTS, EventStore
from ._http import Transport, pause
from ._metrics import SampleList, SeriesList, Time, samples_of, seconds, series_of
from ._sql import Params, Result, statement
from ._transactions import OpenTransaction, Transaction
from .errors import Conflict

T = TypeVar("T")
D = TypeVar("D", bound="Database")


def connect(
    url: str | None = None,
    *,
    token: str | None = None,
    user: str | None = None,
    password: str | None = None,
    timeout: float = 130.0,
    retry_for: float = 10.0,
    automatic_keys: bool = True,
    context: ssl.SSLContext | None = None,
) -> Database:
    """Returns the database at a URL, by default that in `ROPEWALK_URL`. Connects at first use.

    `timeout` is the longest wait for a response, `retry_for` the longest time of sending a request
    again, both in seconds. With `automatic_keys`, appends and transactions without an idempotency
    key get one, so that they are sent again when a connection breaks. `context` replaces the
    certificates that TLS trusts. Raises `ValueError` for an invalid URL.
    """
    at = url or os.environ.get("ROPEWALK_URL", "http://127.0.0.1:4780")
    transport = Transport(
        at, token=token, user=user, password=password, timeout=timeout, retry_for=retry_for, context=context
    )
    return Database(transport, automatic_keys)


class Database:
    """A database on a server, see `connect`. Thread-safe, and usable after a fork."""

    #: Conversion of the values of documents.
    codec: Codec = EXTENDED
    _store_class: type[EventStore] = EventStore
    _collection_class: type[Collection] = Collection
    _transaction_class: type[Transaction] = Transaction
    _open_class: type[OpenTransaction] = OpenTransaction

    def __init__(self, transport: Transport, automatic_keys: bool) -> None:
        self.transport = transport
        self._automatic_keys = automatic_keys

    def __enter__(self: D) -> D:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections."""
        self.transport.close()

    def automatic_key(self) -> str | None:
        """Returns a new idempotency key, or `None` if the client makes none."""
        return uuid.uuid4().hex if self._automatic_keys else None

    def retry_pause(self, attempt: int) -> float:
        """Returns the pause after a conflict of an attempt (from 1), in seconds."""
        return pause(attempt)

    def events(self, store: str, types: Iterable[type[Any]] = ()) -> EventStore:
        """Returns an event store; events of `types` (classes with `@event`) are read as these."""
        return self._store_class(self, store, types)

    def stores(self) -> list[dict[str, Any]]:
        """Returns the event stores that the caller may read: `{"name", "head", "events"}`."""
        return list(self.transport.pages("/v1/stores", "stores"))

    def documents(self, collection: str, database: str = "default") -> Collection:
        """Returns a collection of documents."""
        return self._collection_class(self, collection, database)

    # Transactions.

    def transaction(
        self,
        *,
        idempotency_key: str | None = None,
        automatic_key: bool = True,
        isolation: str | None = None,
        durability: str | None = None,
        includes: int | None = None,
    ) -> Transaction:
        """Returns a transaction that is sent in one request at the end of its `with` block.

        `isolation` is `serializable` (default) or `snapshot`. `durability` is that of appends.
        `includes` is the `seq` of a commit that its snapshot has to include. The server runs a
        transaction that conflicts with others again. The results of a transaction that writes with
        a key have at most 1 MiB; `automatic_key=False` removes this limit, and the resending.
        """
        return self._transaction_class(
            self,
            idempotency_key=idempotency_key,
            automatic_key=automatic_key,
            isolation=isolation,
            durability=durability,
            includes=includes,
        )

    def begin(self, *, isolation: str | None = None, durability: str | None = None) -> OpenTransaction:
        """Begins a transaction over several requests; use it in a `with` block.

        Its commit raises `KeyConflict` where other commits changed what it read; see `run`.
        """
        return self._open_class(self, isolation, durability)

    def run(
        self,
        work: Callable[[OpenTransaction], T],
        *,
        attempts: int = ATTEMPTS,
        isolation: str | None = None,
        durability: str | None = None,
    ) -> T:
        """Runs `work(tx)` in a transaction of several requests and returns its value.

        `work` runs again, in a new transaction, after a `Conflict`; other exceptions roll back and
        leave. Raises the conflict after `attempts` attempts.
        """
        for attempt in range(1, attempts + 1):
            try:
                with self.begin(isolation=isolation, durability=durability) as tx:
                    value = work(tx)
                return value
            except Conflict:
                if attempt == attempts:
                    raise
            time.sleep(self.retry_pause(attempt))
        raise ValueError("attempts is at least 1")

    # SQL.

    def sql(self, sql: str, params: Params = None) -> Result:
        """Runs a statement with `$1`, `%s` or `%(name)s`; returns the rows of the last statement.

        Not sent again when the connection breaks: a statement in `transaction` is. Raises `Error`
        with `sqlstate` and, for violated constraints, `constraint`.
        """
        return self.script(sql, params)[-1]

    def script(self, sql: str, params: Params = None) -> list[Result]:
        """Runs several statements as one transaction; returns a result for each.

        Parameters require a single statement.
        """
        text, values = statement(sql, params)
        return [Result(one) for one in self._statements(text, values)] or [Result({"command": ""})]

    def _statements(self, text: str, values: list[Any] | None) -> Sequence[Any]:
        body: dict[str, Any] = {"sql": text}
        if values is not None:
            body["params"] = values
        results: list[Any] = self.transport.request("POST", "/v1/sql", body=body).json()["results"]
        return results

    # Time series.

    @overload
    def promql(self, query: str, *, at: Time | None = ...) -> SampleList: ...
    @overload
    def promql(self, query: str, range: tuple[Time, Time, float]) -> SeriesList: ...

    def promql(
        self, query: str, range: tuple[Time, Time, float] | None = None, *, at: Time | None = None
    ) -> SampleList | SeriesList:
        """Returns the samples of a PromQL query at a time (default: now), or its series in a range.

        `range` is start, end and step. Times are seconds since 1970 or `datetime`, the step is in
        seconds. Histograms are left out. Raises `InvalidArgument` for an invalid query.
        """
        form: dict[str, Any] = {"query": query}
        if range is not None:
            start, end, step = range
            form |= {"start": seconds(start), "end": seconds(end), "step": step}
        elif at is not None:
            form["time"] = seconds(at)
        data = self._promql(form)
        return samples_of(data) if range is None else series_of(data)

    def _promql(self, form: dict[str, Any]) -> Any:
        reply = self.transport.request(
            "POST",
            "/api/v1/query_range" if "step" in form else "/api/v1/query",
            body=urlencode(form).encode(),
            headers={"Content-Type": "application/x-www-form-urlencoded"},
            is_safe=True,
        )
        return reply.json()["data"]
