"""Event stores of a database in this process."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .. import _typed
from .._events import Appended, Condition, Event, EventStore, EventStream, Query, Subscription, _conditions, time_of
from .._groups import Group

if TYPE_CHECKING:
    from .._core import Events, StoredEvent
    from .database import EmbeddedDatabase

#: Events that the first and each later call of a reader returns.
FIRST, BATCH = 64, 4096
#: Seconds after which a waiting subscription lets Python handle signals.
WAIT = 0.5


def _refuse(word: str) -> Any:
    raise ValueError(f"{word} is not JSON")


_JSON = json.JSONDecoder(parse_constant=_refuse)


class EmbeddedEventStore(EventStore):
    """An event store of a database in this process."""

    db: EmbeddedDatabase

    def __init__(self, db: EmbeddedDatabase, name: str, types: Iterable[type[Any]] = ()) -> None:
        self.db = db
        self.name = name
        self._core = db.core
        self._types = {_typed.type_name(cls): cls for cls in types}

    def event_of(self, raw: StoredEvent) -> Event:
        """Returns the event for its form in the native module."""
        position, seq, micros, kind, tags, payload, id, metadata, tracking = raw
        data, rest = None, None
        if payload:
            try:
                data = _JSON.decode(payload.decode())
            except (ValueError, RecursionError):
                rest = payload
        cls = self._types.get(kind)
        return Event(
            position=position,
            seq=seq,
            recorded_at=time_of(micros),
            type=kind,
            tags=tags,
            data=data,
            payload=rest,
            id=id,
            metadata=metadata or {},
            tracking=None if tracking is None else {"source": tracking[0], "position": tracking[1]},
            value=data if cls is None else _typed.decode(cls, data),
        )

    def append_batch(
        self,
        events: Sequence[tuple[str, Sequence[str], Any]],
        *,
        conditions: Condition | Iterable[Condition] = (),
        durability: str | None = None,
    ) -> Appended:
        """Appends many events atomically, in one call: tuples `(type, tags, data)`.

        `data` is bytes, which are stored unchanged, or any value, which becomes JSON. This is the
        fastest append: a million small events with bytes take about a second. `durability` is as in
        `append`. Raises `ConditionFailed`, `InvalidArgument` (with the index of the event), and
        `TooLarge` for more than one commit may hold.
        """
        body: dict[str, Any] = {"events": events}
        every = _conditions(conditions)
        if every:
            body["conditions"] = [one.to_json() for one in every]
        if durability is not None:
            body["durability"] = durability
        return self._append(body, None)

    def _append(self, body: dict[str, Any], key: str | None) -> Appended:
        if key is not None:
            body["idempotency_key"] = key
        return Appended(*self._core.append(self.name, body))

    def _read(self, body: dict[str, Any]) -> EventStream:
        return EmbeddedEventStream(self, self._core.read(self.name, body))

    def _ask(self, route: str, body: dict[str, Any]) -> Any:
        return self._core.ask(self.name, route, body)

    def head(self) -> int:
        """Returns the last position of the store; 0 if it is empty or does not exist."""
        return self._core.head(self.name)

    def tracking(self, source: str) -> int | None:
        """Returns the position that was reached in an upstream source."""
        return self._core.tracking(self.name, source)

    def delete(self) -> None:
        """Deletes the store with its events, checkpoints and groups."""
        self._core.delete_store(self.name)

    def subscribe(
        self,
        query: Query | None = None,
        *,
        after: int | str | None = None,
        checkpoint: str | None = None,
    ) -> Subscription:
        """Returns an endless iterator over the matching events, existing ones first.

        It starts after position `after`, after the last event of now (`"head"`), or after the
        checkpoint of a consumer. No event is skipped or repeated.
        """
        return EmbeddedSubscription(self, query, after, checkpoint)

    def checkpoint(self, consumer: str) -> int:
        """Returns the position that a consumer has reached; 0 without a checkpoint."""
        return self._core.checkpoint(self.name, consumer)

    def set_checkpoint(self, consumer: str, position: int) -> None:
        """Stores the position that a consumer has reached; returns when it is durable."""
        self._core.set_checkpoint(self.name, consumer, position)

    def delete_checkpoint(self, consumer: str) -> None:
        """Deletes the checkpoint of a consumer, if it exists."""
        self._core.delete_checkpoint(self.name, consumer)

    def checkpoints(self) -> dict[str, int]:
        """Returns the position of each consumer."""
        return self._core.checkpoints(self.name)

    def group(self, name: str) -> Group:
        """Returns the consumer group of this name; `Group.create` creates it."""
        return EmbeddedGroup(self, name)


class EmbeddedEventStream(EventStream):
    """Iterator over events of one snapshot."""

    def __init__(self, store: EmbeddedEventStore, native: Events) -> None:
        self._store = store
        self._native = native
        self._events = self._run()
        self.head = native.head

    def close(self) -> None:
        """Ends the read."""
        self._native.close()

    def _run(self) -> Iterator[Event]:
        size = FIRST
        while batch := self._native.next_batch(size):
            for raw in batch:
                yield self._store.event_of(raw)
            size = BATCH


class EmbeddedSubscription(Subscription):
    """An endless iterator over events."""

    def __init__(
        self, store: EmbeddedEventStore, query: Query | None, after: int | str | None, checkpoint: str | None
    ) -> None:
        body = {"query": None if query is None else query.to_json(), "after": after, "checkpoint": checkpoint}
        self._store = store
        self._native = store.db.core.subscribe(store.name, body)
        self._is_closed = False
        self.is_caught_up = False
        self.position = after if isinstance(after, int) else None
        self._events = self._run()

    def close(self) -> None:
        """Ends the subscription. A blocked iteration stops."""
        self._is_closed = True
        self._native.close()

    def _run(self) -> Iterator[Event]:
        while not self._is_closed:
            try:
                found = self._native.next(WAIT)
            except RuntimeError:
                # The subscription or the database was closed.
                if self._is_closed:
                    return
                raise
            if found is None:
                continue
            if len(found) == 2:
                state, head = found
                self.is_caught_up = state == "caught-up"
                if self.is_caught_up:
                    self.position = max(self.position or 0, head)
                continue
            one = self._store.event_of(found)
            self.position = one.position
            yield one


class EmbeddedGroup(Group):
    """A consumer group of a database in this process."""

    store: EmbeddedEventStore

    def __init__(self, store: EmbeddedEventStore, name: str) -> None:
        self.store = store
        self.name = name

    def _call(self, action: str, body: Mapping[str, Any] | None = None) -> Any:
        fields = {name: value for name, value in (body or {}).items() if value is not None}
        return self.store.db.core.group(self.store.name, self.name, action, fields)
