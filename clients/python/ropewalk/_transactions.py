"""Transactions over events, documents, samples, rows and checkpoints.

`Transaction` collects operations and sends them in one request. `OpenTransaction` runs each
operation at once, in an open transaction. Both have the same operations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, Union

from ._documents import Codec, Document, Filter, Update, Updated
from ._events import (
    Appended,
    Condition,
    Event,
    EventIn,
    EventStore,
    Model,
    Query,
    _body,
    _conditions,
    _model,
    events_in,
)
from ._metrics import Time, milliseconds
from ._sql import Params, Result, statement
from .errors import Error

if TYPE_CHECKING:
    from ._client import Database

T = TypeVar("T")
S = TypeVar("S")


class Named(Protocol):
    """An event store of this client or of the asyncio client."""

    @property
    def name(self) -> str:
        """Name of the store."""


#: An event store, or its name.
Store = Union[Named, str]
#: Points of a series: a time (seconds or `datetime`) and a value.
Points = Iterable[tuple[Time, float]]


@dataclass(frozen=True)
class Operation(Generic[T]):
    """An operation as the server reads it, and the function that reads its result."""

    body: Mapping[str, Any]
    read: Callable[[Any], T]


def _name(store: Store) -> str:
    return store if isinstance(store, str) else store.name


def append_operation(
    store: Store,
    events: EventIn | Iterable[EventIn],
    conditions: Condition | Iterable[Condition],
    tracking: tuple[str, int] | None,
) -> Operation[Appended]:
    """Returns the operation that appends events."""
    body: dict[str, Any] = {"store": _name(store), "events": events_in(events)}
    every = _conditions(conditions)
    if every:
        body["conditions"] = [one.to_json() for one in every]
    if tracking is not None:
        body["tracking"] = {"source": tracking[0], "position": tracking[1]}
    return Operation({"append": body}, lambda raw: Appended(raw["first"] or 0, raw["last"] or 0))


def read_operation(
    db: Database, store: Store, query: Query | None, after: int | None, backwards: bool, limit: int | None
) -> Operation[list[Event]]:
    """Returns the operation that reads events."""
    body = {"store": _name(store)} | _body(query, after=after, limit=limit)
    if backwards:
        body["backwards"] = True
    reads = store if isinstance(store, EventStore) else db.events(_name(store))
    return Operation({"read": body}, lambda raw: [reads.event_of(one) for one in raw["events"]])


def sql_operation(sql: str, params: Params, expect: int | None) -> Operation[Result]:
    """Returns the operation that runs a statement."""
    return Operation({"sql": _statement(sql, params, expect)}, Result)


def _statement(sql: str, params: Params, expect: int | None) -> dict[str, Any]:
    text, values = statement(sql, params)
    body: dict[str, Any] = {"sql": text}
    if values is not None:
        body["params"] = values
    if expect is not None:
        body["expect"] = expect
    return body


def samples_operation(
    series: Iterable[tuple[str, Mapping[str, str], Points]], store: str | None
) -> Operation[int]:
    """Returns the operation that appends samples."""
    body: dict[str, Any] = {
        "series": [
            {
                "labels": {"__name__": metric, **labels},
                "samples": [[milliseconds(time), float(value)] for time, value in points],
            }
            for metric, labels, points in series
        ]
    }
    if store is not None:
        body["store"] = store
    return Operation({"samples": body}, lambda raw: int(raw["samples"]))


def checkpoint_operation(store: Store, consumer: str, position: int, expect: int | None) -> Operation[None]:
    """Returns the operation that records the progress of a consumer."""
    body: dict[str, Any] = {"store": _name(store), "consumer": consumer, "position": position}
    if expect is not None:
        body["expect"] = expect
    return Operation({"checkpoint": body}, lambda raw: None)


class DocumentOperations:
    """Makes the operations on a collection."""

    def __init__(self, collection: str, database: str, codec: Codec) -> None:
        self._base = {"collection": collection, "database": database}
        self._codec = codec

    def insert(self, document: Mapping[str, Any]) -> Operation[Any]:
        """Inserts a document; the result is its `_id`."""
        return self._make("insert", self._codec.to(document), None, lambda raw: self._codec.back(raw["id"]))

    def update(
        self, filter: Filter, update: Update, many: bool, upsert: bool, expect: int | None
    ) -> Operation[Updated]:
        """Updates documents."""
        body = {"filter": self._codec.to(filter), "update": self._codec.to(update)}
        options = self._codec.fields(many=many, upsert=upsert)
        return self._make("update", body | options, expect, self._codec.updated)

    def delete(self, filter: Filter, many: bool, expect: int | None) -> Operation[int]:
        """Deletes documents; the result is their number."""
        body = {"filter": self._codec.to(filter)} | self._codec.fields(many=many)
        return self._make("delete", body, expect, lambda raw: int(raw["deleted"]))

    def get(self, id: Any, expect: int | None) -> Operation[Document | None]:
        """Gets a document by its `_id`."""
        return self._make("get", self._codec.to(id), expect, lambda raw: self._codec.back(raw["document"]))

    def find(self, filter: Filter | None, expect: int | None, **options: Any) -> Operation[list[Document]]:
        """Finds documents."""
        body, back = self._codec.fields(filter=filter, **options), self._codec.back
        return self._make("find", body, expect, lambda raw: [back(one) for one in raw["documents"]])

    def _make(self, name: str, body: Any, expect: int | None, read: Callable[[Any], T]) -> Operation[T]:
        made = self._base | {name: body}
        if expect is not None:
            made["expect"] = expect
        return Operation({"documents": made}, read)


class Pending(Generic[T]):
    """The result of an operation of a `Transaction`, which is known after its commit."""

    def __init__(self, operation: Operation[T]) -> None:
        self._operation = operation
        self._is_known = False
        self._value: T | None = None

    @property
    def result(self) -> T:
        """The result. Raises `RuntimeError` before the commit."""
        if not self._is_known:
            raise RuntimeError("the transaction is not committed: its results are known after the with block")
        return self._value  # type: ignore[return-value]

    def _set(self, raw: Any) -> T:
        self._value, self._is_known = self._operation.read(raw), True
        return self._value


class Transaction:
    """Operations that are committed together, by one request at the end of the `with` block.

    Each operation sees the writes of those before it. An exception in the block sends nothing.
    Each method returns a `Pending`, whose `result` is known after the commit, as are `results` (of
    every operation), `seq` (the commit) and `is_repeated` (an earlier request had the same key).
    """

    def __init__(
        self,
        db: Database,
        *,
        idempotency_key: str | None,
        automatic_key: bool,
        isolation: str | None,
        durability: str | None,
        includes: int | None,
    ) -> None:
        self._db = db
        self._codec = db.codec
        self._key = idempotency_key
        self._automatic_key = automatic_key
        self._options = {"isolation": isolation, "durability": durability, "includes": includes}
        self.operations: list[Pending[Any]] = []
        self._preconditions: list[Mapping[str, Any]] = []
        self.results: list[Any] = []
        self.seq = 0
        self.is_repeated = False
        self.is_committed = False

    def __enter__(self) -> Transaction:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.commit()

    def commit(self) -> None:
        """Sends the operations. Without operations and requirements nothing is sent.

        Raises `ConditionFailed`, `PreconditionFailed` (a precondition or an `expect`), other
        `Error`s with the failed `operation`, or `ConnectionBroken`. Nothing is then written, except
        possibly after `ConnectionBroken` and `TimedOut`: commit again, with the same key.
        """
        if self.is_committed:
            raise RuntimeError("the transaction is already committed")
        if not self.operations and not self._preconditions:
            self.is_committed = True
            return
        body: dict[str, Any] = {name: one for name, one in self._options.items() if one is not None}
        body["operations"] = [one._operation.body for one in self.operations]
        if self._preconditions:
            body["preconditions"] = self._preconditions
        if self._key is None and self._automatic_key:
            # A second call after a broken connection has to send the same key.
            self._key = self._db.automatic_key()
        raw = self._commit(body)
        self.results = [one._set(found) for one, found in zip(self.operations, raw["results"], strict=True)]
        self.seq, self.is_repeated = raw["seq"], raw["repeated"]
        self.is_committed = True

    def _commit(self, body: dict[str, Any]) -> Any:
        return self._db.transport.request("POST", "/v1/transactions", body=body, key=self._key).json()

    def append(
        self,
        store: Store,
        events: EventIn | Iterable[EventIn],
        *,
        conditions: Condition | Iterable[Condition] = (),
        tracking: tuple[str, int] | None = None,
    ) -> Pending[Appended]:
        """Appends events."""
        return self._add(append_operation(store, events, conditions, tracking))

    def read(
        self,
        store: Store,
        query: Query | None = None,
        *,
        after: int | None = None,
        backwards: bool = False,
        limit: int | None = None,
    ) -> Pending[list[Event]]:
        """Reads events, those of the transaction included."""
        return self._add(read_operation(self._db, store, query, after, backwards, limit))

    def documents(self, collection: str, database: str = "default") -> TransactionCollection:
        """Returns a collection whose operations are part of the transaction."""
        return TransactionCollection(self, DocumentOperations(collection, database, self._codec))

    def sql(self, sql: str, params: Params = None, *, expect: int | None = None) -> Pending[Result]:
        """Runs a statement, with `$1` or `%s`; `expect` is the number of rows it writes or returns."""
        return self._add(sql_operation(sql, params, expect))

    def sample(
        self, metric: str, value: float, labels: Mapping[str, str] | None = None, *, at: Time
    ) -> Pending[int]:
        """Appends a sample at a time (seconds since 1970 or `datetime`)."""
        return self._add(samples_operation([(metric, labels or {}, [(at, value)])], None))

    def samples(
        self, series: Iterable[tuple[str, Mapping[str, str], Points]], *, store: str | None = None
    ) -> Pending[int]:
        """Appends samples of series: `(metric, labels, [(time, value), …])`; returns their number."""
        return self._add(samples_operation(series, store))

    def checkpoint(
        self, store: Store, consumer: str, position: int, *, expect: int | None = None
    ) -> Pending[None]:
        """Records the progress of a consumer.

        `expect` is the position recorded until now (0 for none): it fences a second worker, whose
        transaction fails with `PreconditionFailed`.
        """
        return self._add(checkpoint_operation(store, consumer, position, expect))

    def require_no_events(self, store: Store, query: Query, *, after: int | None = None) -> None:
        """Requires that no event after the position (default: any) matches."""
        body: dict[str, Any] = {"store": _name(store), "query": query.to_json()}
        if after is not None:
            body["after"] = after
        self._preconditions.append({"events": body})

    def require_documents(
        self, collection: str, filter: Filter, *, count: int = 1, database: str = "default"
    ) -> None:
        """Requires that so many documents match."""
        wanted = self._codec.to(filter)
        body = {"collection": collection, "database": database, "filter": wanted, "count": count}
        self._preconditions.append({"documents": body})

    def require_sql(self, sql: str, params: Params = None, *, expect: int = 1) -> None:
        """Requires that a query returns so many rows."""
        self._preconditions.append({"sql": _statement(sql, params, expect)})

    def _add(self, operation: Operation[T]) -> Pending[T]:
        if self.is_committed:
            raise RuntimeError("the transaction is already committed")
        pending = Pending(operation)
        self.operations.append(pending)
        return pending


class TransactionCollection:
    """Operations on a collection in a `Transaction`. `expect` is the number of documents."""

    def __init__(self, tx: Transaction, operations: DocumentOperations) -> None:
        self._tx = tx
        self._make = operations

    def insert(self, document: Mapping[str, Any]) -> Pending[Any]:
        """Inserts a document; the result is its `_id`."""
        return self._tx._add(self._make.insert(document))

    def update(
        self,
        filter: Filter,
        update: Update,
        *,
        many: bool = False,
        upsert: bool = False,
        expect: int | None = None,
    ) -> Pending[Updated]:
        """Updates the first matching document, or all with `many`."""
        return self._tx._add(self._make.update(filter, update, many, upsert, expect))

    def delete(self, filter: Filter, *, many: bool = False, expect: int | None = None) -> Pending[int]:
        """Deletes the first matching document, or all with `many`."""
        return self._tx._add(self._make.delete(filter, many, expect))

    def get(self, id: Any, *, expect: int | None = None) -> Pending[Document | None]:
        """Gets a document by its `_id`."""
        return self._tx._add(self._make.get(id, expect))

    def find(
        self,
        filter: Filter | None = None,
        *,
        sort: Mapping[str, int] | None = None,
        limit: int | None = None,
        expect: int | None = None,
    ) -> Pending[list[Document]]:
        """Finds documents."""
        return self._tx._add(self._make.find(filter, expect, sort=sort, limit=limit))


class OpenTransaction:
    """A transaction over several requests; each operation returns its result at once.

    It reads one snapshot and its own writes. The end of the `with` block commits it, an exception
    rolls it back. An error of an operation and `idle_seconds` without a request roll it back, too;
    further operations then raise `NotFound`. After the commit `seq` and `appended` are known.
    """

    def __init__(self, db: Database, isolation: str | None, durability: str | None) -> None:
        self._db = db
        options = {"isolation": isolation, "durability": durability}
        body = {name: one for name, one in options.items() if one is not None}
        raw = db.transport.request("POST", "/v1/transactions/begin", body=body, is_safe=True).json()
        self._path = f"/v1/transactions/{raw['transaction']}"
        self.snapshot: int = raw["snapshot"]
        self.idle_seconds: float = raw["idle_ms"] / 1000
        self.is_open = True
        self.seq = 0
        self.appended: list[Appended] = []

    def __enter__(self) -> OpenTransaction:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self.is_open:
            return
        if kind is None:
            self.commit()
            return
        try:
            self.rollback()
        except Error:
            # The exception of the block is the one to report; the server rolls back by itself.
            pass

    def commit(self) -> None:
        """Commits. Raises `KeyConflict` if other commits changed what it read; then begin again.

        After `ConnectionBroken` it may have been committed.
        """
        self.is_open = False
        raw = self._db.transport.request("POST", f"{self._path}/commit").json()
        self.seq = raw["seq"]
        self.appended = [Appended(one["first"] or 0, one["last"] or 0, self.seq) for one in raw["appended"]]

    def rollback(self) -> None:
        """Rolls back."""
        self.is_open = False
        self._db.transport.request("DELETE", self._path, is_safe=True)

    def run(self, operations: Sequence[Operation[Any]]) -> list[Any]:
        """Runs several operations in one request; returns their results."""
        body = {"operations": [one.body for one in operations]}
        try:
            raw = self._db.transport.request("POST", f"{self._path}/operations", body=body).json()
        except Error:
            self.is_open = False
            raise
        return [one.read(found) for one, found in zip(operations, raw["results"], strict=True)]

    def _one(self, operation: Operation[T]) -> T:
        found: T = self.run([operation])[0]
        return found

    def append(
        self,
        store: Store,
        events: EventIn | Iterable[EventIn],
        *,
        conditions: Condition | Iterable[Condition] = (),
        tracking: tuple[str, int] | None = None,
    ) -> None:
        """Appends events; their positions are in `appended` after the commit."""
        self._one(append_operation(store, events, conditions, tracking))

    def read(
        self,
        store: Store,
        query: Query | None = None,
        *,
        after: int | None = None,
        backwards: bool = False,
        limit: int | None = None,
    ) -> list[Event]:
        """Returns the matching events of the snapshot and of the transaction."""
        return self._one(read_operation(self._db, store, query, after, backwards, limit))

    def load(self, store: Store, model: Model[S]) -> S:
        """Reduces the events of a model to its state.

        At the isolation `serializable` the commit fails if another one changes the state.
        """
        state = model.initial()
        for one in self.read(store, _model(model).query):
            state = model.apply(state, one)
        return state

    def documents(self, collection: str, database: str = "default") -> OpenCollection:
        """Returns a collection whose operations are part of the transaction."""
        return OpenCollection(self, DocumentOperations(collection, database, self._db.codec))

    def sql(self, sql: str, params: Params = None, *, expect: int | None = None) -> Result:
        """Runs a statement, with `$1` or `%s`; `expect` is the number of rows it writes or returns."""
        return self._one(sql_operation(sql, params, expect))

    def sample(self, metric: str, value: float, labels: Mapping[str, str] | None = None, *, at: Time) -> int:
        """Appends a sample at a time (seconds since 1970 or `datetime`)."""
        return self._one(samples_operation([(metric, labels or {}, [(at, value)])], None))

    def samples(
        self, series: Iterable[tuple[str, Mapping[str, str], Points]], *, store: str | None = None
    ) -> int:
        """Appends samples of series: `(metric, labels, [(time, value), …])`; returns their number."""
        return self._one(samples_operation(series, store))

    def checkpoint(self, store: Store, consumer: str, position: int, *, expect: int | None = None) -> None:
        """Records the progress of a consumer, as `Transaction.checkpoint`."""
        self._one(checkpoint_operation(store, consumer, position, expect))


class OpenCollection:
    """Operations on a collection in an `OpenTransaction`. `expect` is the number of documents."""

    def __init__(self, tx: OpenTransaction, operations: DocumentOperations) -> None:
        self._tx = tx
        self._make = operations

    def insert(self, document: Mapping[str, Any]) -> Any:
        """Inserts a document; returns its `_id`."""
        return self._tx._one(self._make.insert(document))

    def update(
        self,
        filter: Filter,
        update: Update,
        *,
        many: bool = False,
        upsert: bool = False,
        expect: int | None = None,
    ) -> Updated:
        """Updates the first matching document, or all with `many`."""
        return self._tx._one(self._make.update(filter, update, many, upsert, expect))

    def delete(self, filter: Filter, *, many: bool = False, expect: int | None = None) -> int:
        """Deletes the first matching document, or all with `many`; returns their number."""
        return self._tx._one(self._make.delete(filter, many, expect))

    def get(self, id: Any, *, expect: int | None = None) -> Document | None:
        """Returns the document with this `_id`."""
        return self._tx._one(self._make.get(id, expect))

    def find(
        self,
        filter: Filter | None = None,
        *,
        sort: Mapping[str, int] | None = None,
        limit: int | None = None,
        expect: int | None = None,
    ) -> list[Document]:
        """Returns the matching documents."""
        return self._tx._one(self._make.find(filter, expect, sort=sort, limit=limit))
