"""Event stores: append, read, decide, subscribe, checkpoints."""

from __future__ import annotations

import base64
import dataclasses
import datetime as dt
import json
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar, Union, overload

from . import _typed
from ._http import Lines, Transport, pause, segment
from .errors import ConditionFailed, ConnectionBroken, PreconditionFailed, Unavailable, from_problem

if TYPE_CHECKING:
    from ._client import Database
    from ._groups import Group
    from ._transactions import Transaction

S = TypeVar("S")
#: Attempts of a decision before its conflict is raised.
ATTEMPTS = 50
#: A subscription without a line for so long is connected again, seconds; heartbeats come every 15.
SILENCE = 50.0


class _Absent:
    """The payload of an event without data."""


ABSENT = _Absent()


@dataclasses.dataclass(frozen=True)
class Query:
    """A query: an event matches if it matches at least one item; without items every event matches.

    Make one with `where`, and combine queries by `|`.
    """

    items: tuple[Mapping[str, Sequence[str]], ...] = ()

    def __or__(self, other: Query) -> Query:
        if not self.items or not other.items:
            return Query()
        return Query(self.items + other.items)

    def to_json(self) -> dict[str, Any]:
        """Returns the query as the server reads it."""
        return {"items": [dict(item) for item in self.items]}

    @property
    def has_prefixes(self) -> bool:
        """Reports whether an item selects by prefixes, which excludes idempotency keys."""
        return any("type_prefixes" in item or "tag_prefixes" in item for item in self.items)


def where(
    *kinds: type[Any] | str,
    tags: Iterable[str] | str = (),
    type_prefixes: Iterable[str] | str = (),
    tag_prefixes: Iterable[str] | str = (),
) -> Query:
    """Returns the query for events of one of the types that have all of the tags.

    A type is a string or a class with `@event`. Without any argument, every event matches.
    """
    item = {
        "types": [_typed.type_name(kind) for kind in kinds],
        "tags": _list(tags),
        "type_prefixes": _list(type_prefixes),
        "tag_prefixes": _list(tag_prefixes),
    }
    item = {name: values for name, values in item.items() if values}
    return Query((item,)) if item else Query()


def _list(values: Iterable[str] | str) -> list[str]:
    return [values] if isinstance(values, str) else list(values)


@dataclasses.dataclass(frozen=True)
class Condition:
    """An append condition: fails if an event after position `after` (default: any) matches."""

    query: Query
    after: int | None = None

    def to_json(self) -> dict[str, Any]:
        """Returns the condition as the server reads it."""
        made: dict[str, Any] = {"fail_if_events_match": self.query.to_json()}
        if self.after is not None:
            made["after"] = self.after
        return made


@dataclasses.dataclass(frozen=True)
class NewEvent:
    """An event to append. `data` is any JSON, or bytes; `id` is a UUID chosen by the client."""

    type: str
    data: Any = ABSENT
    tags: Sequence[str] = ()
    id: str | uuid.UUID | None = None
    metadata: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @classmethod
    def of(
        cls, value: Any, *, id: str | uuid.UUID | None = None, metadata: Mapping[str, str] | None = None
    ) -> NewEvent:
        """Returns the event for an instance of an event type, with an id and metadata."""
        data = _typed.encode(value)
        return cls(_typed.type_name(type(value)), data, _typed.tags_of(value), id, metadata or {})

    def to_json(self) -> dict[str, Any]:
        """Returns the event as the server reads it."""
        made: dict[str, Any] = {"type": self.type}
        if self.tags:
            made["tags"] = list(self.tags)
        if isinstance(self.data, (bytes, bytearray)):
            made["data_base64"] = base64.b64encode(self.data).decode()
        elif self.data is not ABSENT:
            made["data"] = _typed.encode(self.data)
        if self.id is not None:
            made["id"] = str(self.id)
        if self.metadata:
            made["metadata"] = dict(self.metadata)
        return made


#: An event to append: a `NewEvent`, an instance of an event type, or `{"type", "tags", "data"}`.
EventIn = Union[NewEvent, Mapping[str, Any], Any]


def events_in(events: EventIn | Iterable[EventIn] | None) -> list[dict[str, Any]]:
    """Returns events as the server reads them; one event may come without a list."""
    if events is None:
        return []
    if isinstance(events, (NewEvent, Mapping)) or _typed.is_event(events):
        events = [events]
    return [_event_in(one) for one in events]


def _event_in(one: EventIn) -> dict[str, Any]:
    if isinstance(one, NewEvent):
        return one.to_json()
    if isinstance(one, Mapping):
        return dict(one)
    return NewEvent.of(one).to_json()


@dataclasses.dataclass(frozen=True)
class Event:
    """An event that was read.

    `position` counts the events of the store from 1, `seq` the commits of the database. `value` is
    an instance of the event's class if the store knows it, otherwise `data`. `payload` has the
    bytes of a payload that is not JSON; `data` is then `None`.
    """

    position: int
    seq: int
    recorded_at: dt.datetime
    type: str
    tags: tuple[str, ...]
    data: Any
    payload: bytes | None
    id: str | None
    metadata: Mapping[str, str]
    tracking: Mapping[str, Any] | None
    value: Any


_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)


def time_of(time: str | int) -> dt.datetime:
    """Returns the time of an RFC 3339 text, or of microseconds since 1970, in UTC."""
    if isinstance(time, int):
        return _EPOCH + dt.timedelta(microseconds=time)
    return dt.datetime.fromisoformat(time.replace("Z", "+00:00"))


@dataclasses.dataclass(frozen=True)
class Appended:
    """Positions of the first and last event of an append, and its commit.

    In an open transaction the positions are not known yet and are 0.
    """

    first: int
    last: int
    seq: int = 0


@dataclasses.dataclass(frozen=True)
class Model(Generic[S]):
    """A decision model: the events that a decision depends on, and their reduction to a state.

    `initial` makes the state before the first event; `apply(state, event)` returns the next state.
    """

    query: Query
    initial: Callable[[], S]
    apply: Callable[[S, Event], S]


@dataclasses.dataclass(frozen=True)
class Decision(Generic[S]):
    """A state and the condition that no event has changed it since."""

    state: S
    condition: Condition


@dataclasses.dataclass(frozen=True)
class Decided(Generic[S]):
    """Result of a decision: the state that it read, and the append, if there were events."""

    state: S
    appended: Appended | None
    attempts: int


class EventStream:
    """Iterator over events of one snapshot; `head` is the last position of the store (0 if empty).

    Read it to its end, or close it or leave its `with` block, to free its connection.
    """

    def __init__(self, store: EventStore, lines: Lines) -> None:
        self._lines = lines
        self._events: Iterator[Event] = (store.event_of(json.loads(line)) for line in lines if line)
        self.head = int(lines.headers.get("Ropewalk-Head") or 0)

    def __iter__(self) -> Iterator[Event]:
        return self._events

    def __next__(self) -> Event:
        return next(self._events)

    def __enter__(self) -> EventStream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the read."""
        self._lines.close()


class EventStore:
    """An event store of a database, which its first append creates. Thread-safe."""

    def __init__(self, db: Database, name: str, types: Iterable[type[Any]] = ()) -> None:
        self.db = db
        self.name = name
        self._transport: Transport = db.transport
        self._path = f"/v1/stores/{segment(name)}"
        self._types = {_typed.type_name(cls): cls for cls in types}

    def event_of(self, raw: Any) -> Event:
        """Returns the event for its form in responses."""
        payload = raw.get("data_base64")
        data = raw.get("data")
        cls = self._types.get(raw["type"])
        return Event(
            position=raw["position"],
            seq=raw["seq"],
            recorded_at=time_of(raw["recorded_at"]),
            type=raw["type"],
            tags=tuple(raw.get("tags", ())),
            data=data,
            payload=None if payload is None else base64.b64decode(payload),
            id=raw.get("id"),
            metadata=raw.get("metadata") or {},
            tracking=raw.get("tracking"),
            value=data if cls is None else _typed.decode(cls, data),
        )

    # Appends.

    def append(
        self,
        events: EventIn | Iterable[EventIn],
        *,
        conditions: Condition | Iterable[Condition] = (),
        idempotency_key: str | None = None,
        repeat_by_id: bool = False,
        tracking: tuple[str, int] | None = None,
        durability: str | None = None,
    ) -> Appended:
        """Appends events atomically; returns their positions when they are durable.

        `tracking` is a source and the position reached in it. `durability` is `sync` (default),
        `buffered` or `async:MILLISECONDS`. Without an idempotency key the client makes one, unless
        a condition has prefixes or the events are identified by their ids (`repeat_by_id`).

        Raises `ConditionFailed`, `TrackingConflict`, `IdempotencyMismatch`, `ConnectionBroken`.
        """
        every = _conditions(conditions)
        body: dict[str, Any] = {"events": events_in(events)}
        if every:
            body["conditions"] = [one.to_json() for one in every]
        if repeat_by_id:
            body["repeat_by_id"] = True
        if tracking is not None:
            body["tracking"] = {"source": tracking[0], "position": tracking[1]}
        if durability is not None:
            body["durability"] = durability
        key = idempotency_key
        if key is None and not repeat_by_id and not any(one.query.has_prefixes for one in every):
            key = self.db.automatic_key()
        return self._append(body, key)

    def _append(self, body: dict[str, Any], key: str | None) -> Appended:
        is_safe = "repeat_by_id" in body
        done = self._transport.request("POST", f"{self._path}/events", body=body, key=key, is_safe=is_safe)
        raw = done.json()
        return Appended(raw["first"] or 0, raw["last"] or 0, raw["seq"])

    # Reads.

    def read(
        self,
        query: Query | None = None,
        *,
        after: int | None = None,
        before: int | None = None,
        start: int | None = None,
        backwards: bool = False,
        limit: int | None = None,
    ) -> EventStream:
        """Returns an iterator over the matching events of one snapshot.

        `start` is inclusive in the direction of reading; `after` and `before` are exclusive.
        Raises `ConnectionBroken` if the stream breaks, which an iteration that ends did not.
        """
        body = _body(query, after=after, before=before, limit=limit) | ({} if start is None else {"from": start})
        if backwards:
            body["backwards"] = True
        return self._read(body)

    def _read(self, body: dict[str, Any]) -> EventStream:
        return EventStream(self, self._transport.stream("POST", f"{self._path}/events:query", body=body))

    def last(self, query: Query | None = None) -> Event | None:
        """Returns the newest matching event."""
        raw = self._ask("last", _body(query))["event"]
        return None if raw is None else self.event_of(raw)

    def count(self, query: Query | None = None) -> int:
        """Returns the number of matching events, without reading them."""
        return int(self._ask("count", _body(query))["count"])

    def exists(self, query: Query | None = None, *, after: int | None = None) -> bool:
        """Reports whether an event matches."""
        return bool(self._ask("exists", _body(query, after=after))["exists"])

    def head(self) -> int:
        """Returns the last position of the store; 0 if it is empty or does not exist."""
        return int(self._transport.request("GET", f"{self._path}/head").json()["head"] or 0)

    def tracking(self, source: str) -> int | None:
        """Returns the position that was reached in an upstream source."""
        path = f"{self._path}/tracking/{segment(source)}"
        found: int | None = self._transport.request("GET", path).json()["position"]
        return found

    def delete(self) -> None:
        """Deletes the store with its events, checkpoints and groups. Needs `admin`."""
        self._transport.request("DELETE", self._path)

    def _ask(self, route: str, body: dict[str, Any]) -> Any:
        return self._transport.request("POST", f"{self._path}/events:{route}", body=body, is_safe=True).json()

    # Decisions.

    def load(self, model: Model[S] | Query) -> Decision[Any]:
        """Reduces the events of a model to its state, and returns it with its condition.

        For a query the state is the list of its events.
        """
        wanted = _model(model)
        with self.read(wanted.query) as events:
            state = wanted.initial()
            for one in events:
                state = wanted.apply(state, one)
            return Decision(state, Condition(wanted.query, events.head))

    @overload
    def decide(
        self,
        model: Model[S],
        decide: Callable[[S], EventIn | Iterable[EventIn] | None],
        *,
        attempts: int = ...,
        durability: str | None = ...,
    ) -> Decided[S]: ...
    @overload
    def decide(
        self,
        model: Query,
        decide: Callable[[list[Event]], EventIn | Iterable[EventIn] | None],
        *,
        attempts: int = ...,
        durability: str | None = ...,
    ) -> Decided[list[Event]]: ...

    def decide(
        self,
        model: Model[Any] | Query,
        decide: Callable[[Any], EventIn | Iterable[EventIn] | None],
        *,
        attempts: int = ATTEMPTS,
        durability: str | None = None,
    ) -> Decided[Any]:
        """Appends the events that `decide` returns for the state, if the state is still current.

        `decide` runs again when another append changed the state meanwhile. It returns an event,
        events, or `None`; an exception that it raises, such as `Refused`, ends the decision.
        Raises `ConditionFailed` after `attempts` attempts.
        """
        for attempt in range(1, attempts + 1):
            decision = self.load(model)
            events = events_in(decide(decision.state))
            if not events:
                return Decided(decision.state, None, attempt)
            try:
                done = self.append(events, conditions=decision.condition, durability=durability)
                return Decided(decision.state, done, attempt)
            except ConditionFailed:
                if attempt == attempts:
                    raise
            time.sleep(self.db.retry_pause(attempt) if attempt > 2 else 0)
        raise ValueError("attempts is at least 1")

    @overload
    def decide_in_transaction(
        self, model: Model[S], decide: Callable[[S, Transaction], None], *, attempts: int = ...
    ) -> Transaction: ...
    @overload
    def decide_in_transaction(
        self, model: Query, decide: Callable[[list[Event], Transaction], None], *, attempts: int = ...
    ) -> Transaction: ...

    def decide_in_transaction(
        self,
        model: Model[Any] | Query,
        decide: Callable[[Any, Transaction], None],
        *,
        attempts: int = ATTEMPTS,
    ) -> Transaction:
        """Commits the operations that `decide` adds to a transaction, if the state is still current.

        `decide(state, tx)` runs again when another append changed the state meanwhile. Returns the
        committed transaction, with its results; without operations nothing is sent. Raises as
        `decide` and `Transaction.commit`.
        """
        for attempt in range(1, attempts + 1):
            decision = self.load(model)
            tx = self.db.transaction()
            tx.require_no_events(self, decision.condition.query, after=decision.condition.after)
            decide(decision.state, tx)
            if not tx.operations:
                return tx
            try:
                tx.commit()
                return tx
            except PreconditionFailed as error:
                # The condition of this call is the first precondition.
                if attempt == attempts or not error.detail.startswith("preconditions[0]"):
                    raise
            time.sleep(self.db.retry_pause(attempt) if attempt > 2 else 0)
        raise ValueError("attempts is at least 1")

    # Consumers.

    def subscribe(
        self,
        query: Query | None = None,
        *,
        after: int | str | None = None,
        checkpoint: str | None = None,
    ) -> Subscription:
        """Returns an endless iterator over the matching events, existing ones first.

        It starts after position `after`, with the next new event (`"head"`), or after the
        checkpoint of a consumer. It reconnects and resumes; no event is skipped or repeated.
        """
        return Subscription(self, query, after, checkpoint)

    def checkpoint(self, consumer: str) -> int:
        """Returns the position that a consumer has reached; 0 without a checkpoint."""
        return int(self._transport.request("GET", self._checkpoint_path(consumer)).json()["position"] or 0)

    def set_checkpoint(self, consumer: str, position: int) -> None:
        """Stores the position that a consumer has reached; returns when it is durable.

        A worker that must not process an event twice records it in the transaction of its writes
        instead: `Transaction.checkpoint`.
        """
        path = self._checkpoint_path(consumer)
        self._transport.request("PUT", path, body={"position": position}, is_safe=True)

    def delete_checkpoint(self, consumer: str) -> None:
        """Deletes the checkpoint of a consumer, if it exists."""
        self._transport.request("DELETE", self._checkpoint_path(consumer), is_safe=True)

    def checkpoints(self) -> dict[str, int]:
        """Returns the position of each consumer."""
        listed = self._transport.pages(f"{self._path}/checkpoints", "checkpoints")
        return {one["consumer"]: one["position"] for one in listed}

    def _checkpoint_path(self, consumer: str) -> str:
        return f"{self._path}/checkpoints/{segment(consumer)}"

    def group(self, name: str) -> Group:
        """Returns the consumer group of this name; `Group.create` creates it."""
        from ._groups import Group

        return Group(self, name)


class Subscription:
    """An endless iterator over events, see `EventStore.subscribe`.

    `is_caught_up` says whether every existing event was delivered, `position` is where a new
    connection resumes. `close` ends the iteration, also from another thread.
    """

    def __init__(
        self, store: EventStore, query: Query | None, after: int | str | None, checkpoint: str | None
    ) -> None:
        self._store = store
        self._query = query
        self._start: dict[str, Any] = {"after": after, "checkpoint": checkpoint}
        self._lines: Lines | None = None
        self._is_closed = False
        self.is_caught_up = False
        self.position: int | None = after if isinstance(after, int) else None
        self._events = self._run()

    def __iter__(self) -> Iterator[Event]:
        return self

    def __next__(self) -> Event:
        return next(self._events)

    def __enter__(self) -> Subscription:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the subscription. A blocked iteration stops."""
        self._is_closed = True
        if self._lines is not None:
            self._lines.close()

    def _run(self) -> Iterator[Event]:
        failures = 0
        while not self._is_closed:
            try:
                self._lines = self._connect()
                if self._is_closed:
                    break
                for line in self._lines:
                    failures = 0
                    raw = json.loads(line)
                    if "control" in raw:
                        self._control(raw)
                        continue
                    one = self._store.event_of(raw)
                    self.position = one.position
                    yield one
                    if self._is_closed:
                        break
            except (ConnectionBroken, Unavailable):
                pass
            except RuntimeError:
                # The client was closed.
                if not self._is_closed:
                    raise
            finally:
                if self._lines is not None:
                    self._lines.close()
            self.is_caught_up = False
            if not self._is_closed:
                failures += 1
                time.sleep(pause(failures))

    def _connect(self) -> Lines:
        start = self._start if self.position is None else {"after": self.position}
        query = {"query": None if self._query is None else self._query.to_json(), "format": "ndjson", **start}
        path = f"/v1/stores/{segment(self._store.name)}/subscribe"
        return self._store.db.transport.stream("GET", path, query=query, timeout=SILENCE)

    def _control(self, raw: Mapping[str, Any]) -> None:
        if raw["control"] == "caught-up":
            self.is_caught_up = True
            self.position = max(self.position or 0, raw["head"] or 0)
        elif raw["control"] == "fell-behind":
            self.is_caught_up = False
        elif raw["control"] == "error":
            problem = raw["problem"]
            raise from_problem(int(problem.get("status", 500)), problem)


def _conditions(given: Condition | Iterable[Condition]) -> list[Condition]:
    return [given] if isinstance(given, Condition) else list(given)


def _body(query: Query | None, **options: int | None) -> dict[str, Any]:
    made: dict[str, Any] = {} if query is None else {"query": query.to_json()}
    return made | {name: value for name, value in options.items() if value is not None}


def _model(model: Model[Any] | Query) -> Model[Any]:
    if isinstance(model, Query):
        return Model(model, list, _collect)
    return model


def _collect(events: list[Event], one: Event) -> list[Event]:
    events.append(one)
    return events


