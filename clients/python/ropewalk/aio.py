"""The package for asyncio. Calls run in threads, each subscription and iterator included.

    async with ropewalk.aio.connect("http://127.0.0.1:4780") as db:     # or ropewalk.aio.open("shop.db")
        shop = db.events("shop")
        await shop.append({"type": "OrderPlaced", "tags": ["order:o1"]})
        async with db.transaction() as tx:
            tx.append(shop, …)          # collected: the request is sent at the end of the block
        async with db.begin() as tx:
            rows = await tx.sql("SELECT …")
        async for event in shop.subscribe():
            …

Every object wraps its synchronous counterpart as `sync`; `await db.call(function, …)` runs any
function of it. A cancelled call may still be carried out.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, ParamSpec, TypeVar

import ropewalk

from ._client import Database
from ._documents import Collection, Document, Filter, Update, Updated
from ._events import ATTEMPTS, Appended, Condition, Decided, Event, EventIn, EventStore, Model, Query
from ._groups import Group
from ._metrics import SampleList, SeriesList, Time
from ._sql import Params, Result
from ._transactions import OpenTransaction, Transaction
from .errors import Conflict

P = ParamSpec("P")
T = TypeVar("T")
#: Threads for requests, and elements that an iterator reads at once.
THREADS, CHUNK = 32, 256


def connect(url: str | None = None, *, threads: int = THREADS, **options: Any) -> AsyncDatabase:
    """Returns a database; `options` are those of `ropewalk.connect`."""
    return AsyncDatabase(ropewalk.connect(url, **options), threads)


def open(path: str | os.PathLike[str], *, threads: int = THREADS, **options: Any) -> AsyncDatabase:
    """Opens a database in this process; `options` are those of `ropewalk.open`."""
    return AsyncDatabase(ropewalk.open(path, **options), threads)


class AsyncDatabase:
    """A database, see `ropewalk.Database`: `AsyncDatabase(db)` wraps any."""

    def __init__(self, sync: Database, threads: int = THREADS) -> None:
        self.sync = sync
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix="ropewalk-aio")

    async def __aenter__(self) -> AsyncDatabase:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes the connections and ends the threads."""
        self.sync.close()
        self._executor.shutdown(wait=False)

    async def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Runs a function of the synchronous client in a thread."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._executor, partial(function, *args, **kwargs))

    def events(self, store: str, types: Iterable[type[Any]] = ()) -> AsyncEventStore:
        """Returns an event store."""
        return AsyncEventStore(self, self.sync.events(store, types))

    def documents(self, collection: str, database: str = "default") -> AsyncCollection:
        """Returns a collection of documents."""
        return AsyncCollection(self, self.sync.documents(collection, database))

    @asynccontextmanager
    async def transaction(self, **options: Any) -> AsyncIterator[Transaction]:
        """Collects operations, and commits them at the end of the block; see `Database.transaction`."""
        tx = self.sync.transaction(**options)
        yield tx
        await self.call(tx.commit)

    @asynccontextmanager
    async def begin(
        self, *, isolation: str | None = None, durability: str | None = None
    ) -> AsyncIterator[AsyncTransaction]:
        """Opens a transaction over several requests; see `Database.begin`."""
        tx = await self.call(self.sync.begin, isolation=isolation, durability=durability)
        try:
            yield AsyncTransaction(self, tx)
        except BaseException as error:
            await asyncio.shield(self.call(tx.__exit__, type(error), error, None))
            raise
        await self.call(tx.__exit__, None, None, None)

    async def run(
        self, work: Callable[[AsyncTransaction], Awaitable[T]], *, attempts: int = ATTEMPTS, isolation: str | None = None
    ) -> T:
        """Runs `await work(tx)` in a transaction, again after a `Conflict`; see `Database.run`."""
        for attempt in range(1, attempts + 1):
            try:
                async with self.begin(isolation=isolation) as tx:
                    value = await work(tx)
                return value
            except Conflict:
                if attempt == attempts:
                    raise
            await asyncio.sleep(self.sync.retry_pause(attempt))
        raise ValueError("attempts is at least 1")

    async def sql(self, sql: str, params: Params = None) -> Result:
        """Runs a statement; see `Database.sql`."""
        return await self.call(self.sync.sql, sql, params)

    async def promql(self, query: str, *, at: Time | None = None) -> SampleList:
        """Returns the samples of a PromQL query at a time."""
        return await self.call(lambda: self.sync.promql(query, at=at))

    async def promql_range(self, query: str, start: Time, end: Time, step: float) -> SeriesList:
        """Returns the series of a PromQL query in a range."""
        return await self.call(lambda: self.sync.promql(query, (start, end, step)))


async def _await(awaitable: Awaitable[T]) -> T:
    return await awaitable


class AsyncEventStore:
    """An event store, see `ropewalk.EventStore`."""

    def __init__(self, db: AsyncDatabase, sync: EventStore) -> None:
        self.db = db
        self.sync = sync
        #: Transactions take the store, or its name.
        self.name = sync.name

    async def append(
        self,
        events: EventIn | Iterable[EventIn],
        *,
        conditions: Condition | Iterable[Condition] = (),
        idempotency_key: str | None = None,
        **options: Any,
    ) -> Appended:
        """Appends events atomically."""
        return await self.db.call(
            self.sync.append, events, conditions=conditions, idempotency_key=idempotency_key, **options
        )

    async def read(self, query: Query | None = None, **options: Any) -> AsyncIterator[Event]:
        """Iterates over the matching events of one snapshot."""
        stream = await self.db.call(self.sync.read, query, **options)
        try:
            async for one in _iterate(self.db, stream):
                yield one
        finally:
            stream.close()

    async def last(self, query: Query | None = None) -> Event | None:
        """Returns the newest matching event."""
        return await self.db.call(self.sync.last, query)

    async def count(self, query: Query | None = None) -> int:
        """Returns the number of matching events."""
        return await self.db.call(self.sync.count, query)

    async def decide(
        self,
        model: Model[Any] | Query,
        decide: Callable[[Any], EventIn | Iterable[EventIn] | None],
        **options: Any,
    ) -> Decided[Any]:
        """Appends what `decide` returns for the state; it runs in a thread and must not block long."""
        return await self.db.call(lambda: self.sync.decide(model, decide, **options))

    async def subscribe(
        self,
        query: Query | None = None,
        *,
        after: int | str | None = None,
        checkpoint: str | None = None,
    ) -> AsyncIterator[Event]:
        """Iterates endlessly over the matching events, with a thread for itself."""
        loop = asyncio.get_running_loop()
        events = self.sync.subscribe(query, after=after, checkpoint=checkpoint)
        thread = ThreadPoolExecutor(1, thread_name_prefix="ropewalk-subscription")
        try:
            while True:
                found = await loop.run_in_executor(thread, next, events, None)
                if found is None:
                    return
                yield found
        finally:
            events.close()
            thread.shutdown(wait=False)

    async def checkpoint(self, consumer: str) -> int:
        """Returns the position that a consumer has reached."""
        return await self.db.call(self.sync.checkpoint, consumer)

    async def set_checkpoint(self, consumer: str, position: int) -> None:
        """Stores the position that a consumer has reached."""
        await self.db.call(self.sync.set_checkpoint, consumer, position)

    def group(self, name: str) -> AsyncGroup:
        """Returns a consumer group."""
        return AsyncGroup(self.db, self.sync.group(name))


class AsyncGroup:
    """A consumer group, see `ropewalk.Group`."""

    def __init__(self, db: AsyncDatabase, sync: Group) -> None:
        self.db = db
        self.sync = sync

    async def create(self, query: Query | None = None, **options: Any) -> AsyncGroup:
        """Creates the group, or changes its settings."""
        await self.db.call(self.sync.create, query, **options)
        return self

    async def work(
        self,
        handler: Callable[[Event], Awaitable[object]],
        *,
        workers: int = 1,
        batch: int = 1,
        until_idle: bool = False,
    ) -> None:
        """Processes events by `await handler(event)` until it is cancelled; see `Group.start`."""
        loop = asyncio.get_running_loop()

        def step(event: Event) -> object:
            return asyncio.run_coroutine_threadsafe(_await(handler(event)), loop).result()

        running = await self.db.call(
            self.sync.start, step, workers=workers, batch=batch, until_idle=until_idle
        )
        try:
            while not await self.db.call(running.join, 0.5):
                pass
        finally:
            await asyncio.shield(self.db.call(running.stop))


class AsyncCollection:
    """A collection of documents, see `ropewalk.Collection`; other calls by `db.call(sync.…)`."""

    def __init__(self, db: AsyncDatabase, sync: Collection) -> None:
        self.db = db
        self.sync = sync

    async def insert(self, documents: Mapping[str, Any] | Iterable[Mapping[str, Any]]) -> list[Any]:
        """Inserts a document or several atomically; returns their `_id`s."""
        return await self.db.call(self.sync.insert, documents)

    async def get(self, id: Any) -> Document | None:
        """Returns the document with this `_id`."""
        return await self.db.call(self.sync.get, id)

    async def find(self, filter: Filter | None = None, **options: Any) -> AsyncIterator[Document]:
        """Iterates over the matching documents."""
        found = await self.db.call(self.sync.find, filter, **options)
        async for one in _iterate(self.db, found):
            yield one

    async def update(self, filter: Filter, update: Update, **options: Any) -> Updated:
        """Updates the first matching document, or all with `many`."""
        return await self.db.call(self.sync.update, filter, update, **options)

    async def delete(self, filter: Filter, *, many: bool = False) -> int:
        """Deletes the first matching document, or all with `many`."""
        return await self.db.call(self.sync.delete, filter, many=many)

    async def count(self, filter: Filter | None = None) -> int:
        """Returns the number of matching documents."""
        return await self.db.call(self.sync.count, filter)


class AsyncTransaction:
    """A transaction over several requests, see `ropewalk.OpenTransaction`."""

    def __init__(self, db: AsyncDatabase, sync: OpenTransaction) -> None:
        self.db = db
        self.sync = sync

    async def append(self, store: AsyncEventStore | str, events: EventIn | Iterable[EventIn], **options: Any) -> None:
        """Appends events."""
        await self.db.call(self.sync.append, _store(store), events, **options)

    async def read(self, store: AsyncEventStore | str, query: Query | None = None, **options: Any) -> list[Event]:
        """Returns the matching events of the snapshot and of the transaction."""
        return await self.db.call(self.sync.read, _store(store), query, **options)

    async def sql(self, sql: str, params: Params = None, *, expect: int | None = None) -> Result:
        """Runs a statement."""
        return await self.db.call(self.sync.sql, sql, params, expect=expect)

    async def checkpoint(
        self, store: AsyncEventStore | str, consumer: str, position: int, *, expect: int | None = None
    ) -> None:
        """Records the progress of a consumer."""
        await self.db.call(self.sync.checkpoint, _store(store), consumer, position, expect=expect)


def _store(store: AsyncEventStore | str) -> EventStore | str:
    return store if isinstance(store, str) else store.sync


async def _iterate(db: AsyncDatabase, source: Iterable[T]) -> AsyncIterator[T]:
    """Reads an iterator in a thread, several elements at once."""
    iterator = iter(source)
    while chunk := await db.call(_next, iterator):
        for one in chunk:
            yield one


def _next(iterator: Iterator[T]) -> Sequence[T]:
    chunk: list[T] = []
    for one in iterator:
        chunk.append(one)
        if len(chunk) == CHUNK:
            break
    return chunk
