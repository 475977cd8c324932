"""The database in this process."""

from __future__ import annotations

import os
import random
import weakref
from collections.abc import Iterable, Sequence
from typing import Any

import ropewalk._core as _core

from .._client import Database
from .._metrics import milliseconds
from .._sql import Column, Row, parameter, row_maker
from .documents import NATIVE, EmbeddedCollection
from .events import EmbeddedEventStore
from .transactions import EmbeddedOpenTransaction, EmbeddedTransaction

#: Longest pause after a conflict, seconds: the other commit is visible when the conflict is raised.
PAUSE_MAX = 0.01


class EmbeddedDatabase(Database):
    """A database in this process, see `ropewalk.open`. Thread-safe.

    It has the interface of a database on a server. Differences: `close` ends the database, so that
    further calls raise `RuntimeError`; so do all calls in a forked process, which has to open the
    database itself.
    """

    codec = NATIVE
    _store_class = EmbeddedEventStore
    _collection_class = EmbeddedCollection
    _transaction_class = EmbeddedTransaction
    _open_class = EmbeddedOpenTransaction

    def __init__(self, core: _core.Database) -> None:
        self.core = core
        self._closing = weakref.finalize(self, core.close)

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str] | None,
        create: bool,
        memory: int | None,
        statement_memory: int | None,
    ) -> EmbeddedDatabase:
        """Opens a database, see `ropewalk.open`; without a path one in memory."""
        core = _core.Database.open(path, create=create, memory=memory, statement_memory=statement_memory)
        return cls(core)

    def close(self) -> None:
        """Syncs and closes the database. A second call does nothing."""
        self._closing()

    def automatic_key(self) -> str | None:
        """Returns `None`: a call in this process has one outcome, which its caller sees."""
        return None

    def retry_pause(self, attempt: int) -> float:
        """Returns the pause after a conflict of an attempt (from 1), in seconds."""
        return random.uniform(0, min(PAUSE_MAX, 0.0001 * 2 ** min(attempt, 10)))

    def events(self, store: str, types: Iterable[type[Any]] = ()) -> EmbeddedEventStore:
        """Returns an event store; events of `types` (classes with `@event`) are read as these."""
        return EmbeddedEventStore(self, store, types)

    def stores(self) -> list[dict[str, Any]]:
        """Returns the event stores: `{"name", "head", "events"}`."""
        return self.core.stores()

    def table(self, name: str) -> Table:
        """Returns a table, to read rows by primary key without SQL. Raises `NotFound`."""
        return Table(self, name)

    @property
    def seq(self) -> int:
        """The number of the newest commit."""
        return self.core.seq()

    def backup(self, path: str | os.PathLike[str]) -> int:
        """Copies the database to a directory that must not exist, while it is used.

        The copy is durable, and one commit of all models, whose number is returned.
        """
        return self.core.backup(path)

    def _statements(self, text: str, values: list[Any] | None) -> Sequence[Any]:
        return self.core.sql(text, values)

    def _promql(self, form: dict[str, Any]) -> Any:
        if "step" in form:
            start, end, step = (milliseconds(form[name]) for name in ("start", "end", "step"))
            return self.core.promql_range(form["query"], start, end, step)
        at = form.get("time")
        return self.core.promql(form["query"], None if at is None else milliseconds(at))


class Table:
    """Reads rows of a table by primary key. Threads take turns; make one for each busy thread."""

    def __init__(self, db: EmbeddedDatabase, name: str) -> None:
        self.db = db
        self.name = name
        self._core = db.core.table(name)
        self._version = -1
        self.columns: list[Column] = []
        self._describe()

    def get(self, *key: Any) -> Row | None:
        """Returns the row with this primary key, a value for each of its columns.

        Values are those of `Result`. Raises `InvalidArgument` for another number of values, and
        `NotFound` when the table was dropped.
        """
        found = self._core.get([parameter(one) for one in key])
        if found is None:
            return None
        version, values = found
        if version != self._version:
            self._describe()
        return self._make(values)

    def _describe(self) -> None:
        self._version, columns = self._core.definition()
        self.columns = [Column(name, kind) for name, kind in columns]
        self._make = row_maker(self.columns)
