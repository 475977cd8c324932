"""The native module of the package: a database in this process. Use `ropewalk.open`.

Bodies and results are those of the HTTP API, as dictionaries of Python values. Every function raises
the exceptions of `ropewalk.errors`; `RuntimeError` when the database is closed, or was opened before
a fork. Other threads run while the database works.
"""

import os
from typing import Any, Literal, Sequence, final

#: `(position, seq, microseconds since 1970, type, tags, data, id, metadata, (source, position))`
StoredEvent = tuple[
    int, int, int, str, tuple[str, ...], bytes, str | None, dict[str, str] | None, tuple[str, int] | None
]
#: `("caught-up" or "fell-behind", last position of the store)`
State = tuple[str, int]

@final
class Database:
    """An open database. Thread-safe."""

    @staticmethod
    def open(
        path: str | os.PathLike[str] | None,
        *,
        create: bool = True,
        memory: int | None = None,
        statement_memory: int | None = None,
    ) -> Database:
        """Opens the database in a directory, or one in memory without a path. Sizes are in bytes."""

    def close(self) -> None:
        """Syncs and closes the database. A second call, and one in a forked process, does nothing."""

    def seq(self) -> int:
        """Returns the number of the newest visible commit."""

    def wait_visible(self, seq: int, timeout: float) -> bool:
        """Waits until a commit is visible, at most `timeout` seconds; reports whether it is."""

    def backup(self, path: str | os.PathLike[str]) -> int:
        """Copies the database to a directory that must not exist; returns the copy's last commit."""

    def stores(self) -> list[dict[str, Any]]:
        """Returns `{"name", "head", "events"}` of each event store."""

    def append(self, store: str, body: dict[str, Any]) -> tuple[int, int, int]:
        """Appends events; returns the first position, the last position and the commit.

        `body["events"]` is a list of dictionaries, or of tuples `(type, tags, data)`, where `data`
        is bytes or becomes JSON.
        """

    def read(self, store: str, body: dict[str, Any]) -> Events:
        """Returns a reader of the matching events of one snapshot."""

    def ask(
        self, store: str, route: Literal["last", "count", "exists"] | str, body: dict[str, Any]
    ) -> dict[str, Any]:
        """Answers a question about matching events."""

    def subscribe(self, store: str, body: dict[str, Any]) -> Subscription:
        """Returns an endless reader of the matching events."""

    def head(self, store: str) -> int:
        """Returns the last position of a store; 0 if it is empty or does not exist."""

    def tracking(self, store: str, source: str) -> int | None:
        """Returns the position that was reached in an upstream source."""

    def delete_store(self, store: str) -> None:
        """Deletes a store with its events."""

    def checkpoint(self, store: str, consumer: str) -> int:
        """Returns the position that a consumer has reached; 0 without a checkpoint."""

    def checkpoints(self, store: str) -> dict[str, int]:
        """Returns the position of each consumer."""

    def set_checkpoint(self, store: str, consumer: str, position: int) -> None:
        """Stores the position that a consumer has reached."""

    def delete_checkpoint(self, store: str, consumer: str) -> None:
        """Deletes the checkpoint of a consumer."""

    def group(self, store: str, name: str, action: str, body: dict[str, Any]) -> dict[str, Any]:
        """Carries out an action on a consumer group. Times are microseconds since 1970."""

    def collection(self, database: str, name: str) -> Collection:
        """Returns a handle on a collection, which need not exist."""

    def table(self, name: str) -> Table:
        """Returns a handle on a table, by its stored name."""

    def sql(self, text: str, params: Sequence[Any] | None = None) -> list[Rows]:
        """Runs the statements of a text; with parameters a single one."""

    def promql(self, query: str, at: int | None = None) -> dict[str, Any]:
        """Evaluates a query at a time in milliseconds since 1970, by default now."""

    def promql_range(self, query: str, start: int, end: int, step: int) -> dict[str, Any]:
        """Evaluates a query over a range; times and step are in milliseconds."""

    def begin(self, isolation: str | None = None, durability: str | None = None) -> Transaction:
        """Begins a transaction over all models."""

@final
class Events:
    """A reader of events of one snapshot. Thread-safe."""

    @property
    def head(self) -> int:
        """Last position of the store at the snapshot; 0 for an empty one."""

    def next_batch(self, most: int) -> list[StoredEvent]:
        """Returns up to `most` (4,096) further events; an empty list at the end."""

    def close(self) -> None:
        """Ends the read, and releases its snapshot."""

@final
class Subscription:
    """An endless reader of events."""

    def next(self, timeout: float) -> StoredEvent | State | None:
        """Returns the next event or state; `None` when nothing happens within `timeout` seconds."""

    def close(self) -> None:
        """Ends the subscription."""

@final
class Collection:
    """A collection of documents. Thread-safe."""

    def get(self, id: Any) -> dict[str, Any] | None:
        """Returns the document with this `_id`."""

    def run(self, action: str, body: dict[str, Any]) -> dict[str, Any]:
        """Carries out `insert`, `put`, `update`, `delete`, `modify`, `count`, `distinct`, `aggregate`."""

    def find(self, body: dict[str, Any]) -> Cursor:
        """Returns a cursor over the matching documents of one snapshot."""

    def configure(self, body: dict[str, Any]) -> None:
        """Creates the collection, or sets its options."""

    def create_index(self, body: dict[str, Any]) -> str:
        """Creates an index; returns its name."""

    def indexes(self) -> list[dict[str, Any]]:
        """Returns the indexes."""

    def drop_index(self, name: str) -> None:
        """Drops an index."""

    def drop(self) -> None:
        """Drops the collection with its documents and indexes."""

@final
class Cursor:
    """A reader of documents of one snapshot."""

    def next_batch(self) -> list[dict[str, Any]]:
        """Returns some further documents; an empty list at the end."""

    def close(self) -> None:
        """Ends the read, and releases its snapshot."""

@final
class Table:
    """Reads rows by primary key. Threads take turns; make one for each thread that reads much."""

    def definition(self) -> tuple[int, list[tuple[str, str]]]:
        """Returns the version of the definition, and name and SQL type of each column."""

    def get(self, key: Sequence[Any]) -> tuple[int, tuple[Any, ...]] | None:
        """Returns the version of the definition, and the row with this key."""

@final
class Rows:
    """The result of a statement."""

    @property
    def command(self) -> str:
        """PostgreSQL's command tag, such as `UPDATE 1`."""

    @property
    def columns(self) -> list[tuple[str, str]]:
        """Name and SQL type of each column; empty for statements that return no rows."""

    def __len__(self) -> int:
        """Returns the number of rows."""

    def rows(self) -> list[tuple[Any, ...]]:
        """Returns the rows, with values as the HTTP API writes them."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Returns a capsule `arrow_array_stream`; its record batches share the memory of the rows."""

@final
class Transaction:
    """An open transaction. Dropping it rolls it back."""

    @property
    def snapshot(self) -> int:
        """The newest commit that it reads."""

    def apply(self, body: dict[str, Any]) -> Any:
        """Runs an operation. An error rolls the transaction back."""

    def require(self, body: dict[str, Any]) -> Any:
        """Checks a precondition. An error rolls the transaction back."""

    def find_results(self, key: str, hash: bytes) -> tuple[int, list[bytes | tuple[int, int]]] | None:
        """Returns commit and results of an earlier transaction with this key.

        `hash` is the SHA-256 of the request. The result of an append is its first and last position.
        """

    def store_results(self, key: str, hash: bytes, results: Sequence[bytes | None]) -> None:
        """Stores the results with a key, if the transaction writes; `None` for each append."""

    def commit(self) -> tuple[int, list[tuple[str, int, int]]]:
        """Commits; returns the commit, and store, first and last position of each append."""

    def rollback(self) -> None:
        """Rolls back. A transaction that has ended is not affected."""
