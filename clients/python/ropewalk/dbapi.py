"""DB-API 2 (PEP 249) driver over the HTTP API, or over a database in this process.

    connection = ropewalk.dbapi.connect("http://127.0.0.1:4780")   # or connect(database=ropewalk.open(…))
    with connection, connection.cursor() as cursor:
        cursor.execute("UPDATE stock SET n = n - %s WHERE sku = %s", (2, "rope"))

The placeholders are `%s` and `%(name)s`; `$1` is accepted, too. The first statement begins a
transaction; one on a server is rolled back after 30 s without a statement. With `autocommit` each
statement commits by itself. Exceptions follow the class of the SQLSTATE.
"""

from __future__ import annotations

import datetime as dt
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any

import ropewalk

from . import _sql, errors
from ._client import Database
from ._sql import Params, Result
from ._transactions import OpenTransaction, sql_operation

apilevel = "2.0"
#: Threads may share connections: their statements run one after another.
threadsafety = 2
paramstyle = "pyformat"
#: Statements of `executemany` in one request.
BATCH = 1000


class Warning(Exception):  # noqa: A001
    """Required by PEP 249; not raised."""


class Error(Exception):
    """A statement failed. `sqlstate`, `constraint` and `code` are those of the server."""

    def __init__(
        self, message: str, sqlstate: str | None = None, constraint: str | None = None, code: str | None = None
    ) -> None:
        super().__init__(message)
        self.sqlstate = sqlstate
        self.constraint = constraint
        self.code = code


class InterfaceError(Error):
    """The driver was used wrongly."""


class DatabaseError(Error):
    """The server rejected the statement."""


class DataError(DatabaseError):
    """A value is invalid or out of range (class 22)."""


class OperationalError(DatabaseError):
    """Conflict, limit, connection or shutdown (classes 08, 40, 53 to 58)."""


class IntegrityError(DatabaseError):
    """A constraint is violated (class 23)."""


class InternalError(DatabaseError):
    """The transaction is in a state that permits no statement (class 25, XX)."""


class ProgrammingError(DatabaseError):
    """Syntax error, unknown name, or a right is absent (class 42 and others)."""


class NotSupportedError(DatabaseError):
    """The statement is not supported (class 0A)."""


_BY_CLASS: dict[str, type[DatabaseError]] = {
    **dict.fromkeys(["08", "40", "53", "54", "55", "57", "58"], OperationalError),
    **dict.fromkeys(["25", "XX", "F0"], InternalError),
    **dict.fromkeys(["26", "34", "3D", "3F", "42"], ProgrammingError),
    "0A": NotSupportedError,
    "22": DataError,
    "23": IntegrityError,
}
_BY_KIND: list[tuple[type[errors.Error], type[DatabaseError], str | None]] = [
    (errors.Conflict, OperationalError, "40001"),
    (errors.ConnectionBroken, OperationalError, "08006"),
    (errors.ResourceExhausted, OperationalError, "53000"),
    (errors.TimedOut, OperationalError, "57014"),
    (errors.Unavailable, OperationalError, "57P01"),
    (errors.PermissionDenied, ProgrammingError, "42501"),
    (errors.Unauthenticated, OperationalError, "28000"),
    (errors.InvalidArgument, ProgrammingError, None),
    (errors.ServerError, InternalError, "XX000"),
]


def _translate(error: errors.Error) -> DatabaseError:
    kind, state = DatabaseError, error.sqlstate
    if state is not None:
        kind = _BY_CLASS.get(state[:2], DatabaseError)
    else:
        for known, mapped, its_state in _BY_KIND:
            if isinstance(error, known):
                kind, state = mapped, its_state
                break
    return kind(error.detail, state, error.constraint, error.code)


class _Type:
    """A type object of PEP 249: equal to the names of its SQL types."""

    def __init__(self, *names: str) -> None:
        self._names = frozenset(names)

    def __eq__(self, other: object) -> bool:
        return other in self._names if isinstance(other, str) else self is other

    def __hash__(self) -> int:
        return hash(self._names)


STRING = _Type("text", "character varying", "character", "name", "uuid", "json", "jsonb")
BINARY = _Type("bytea")
NUMBER = _Type("smallint", "integer", "bigint", "numeric", "real", "double precision")
DATETIME = _Type(
    "date",
    "time without time zone",
    "time with time zone",
    "timestamp without time zone",
    "timestamp with time zone",
    "interval",
)
ROWID = _Type()

Date = dt.date
Time = dt.time
Timestamp = dt.datetime
Binary = bytes
Json = _sql.Json


def DateFromTicks(ticks: float) -> dt.date:
    """Returns the local date of seconds since 1970."""
    return dt.date(*time.localtime(ticks)[:3])


def TimeFromTicks(ticks: float) -> dt.time:
    """Returns the local time of day of seconds since 1970."""
    return dt.time(*time.localtime(ticks)[3:6])


def TimestampFromTicks(ticks: float) -> dt.datetime:
    """Returns the local time of seconds since 1970."""
    return dt.datetime.fromtimestamp(ticks)


def connect(
    url: str | None = None,
    *,
    database: Database | None = None,
    autocommit: bool = False,
    isolation: str | None = None,
    durability: str | None = None,
    **options: Any,
) -> Connection:
    """Returns a connection; `options` are those of `ropewalk.connect`, such as `token`.

    `isolation` is `serializable` (default) or `snapshot`. A connection to a given `database`, such
    as `ropewalk.open(path)`, leaves it open. Raises `InterfaceError` for a URL with a database.
    """
    if database is None:
        return Connection(ropewalk.connect(url, **options), autocommit, isolation, durability)
    if url is not None or options:
        raise InterfaceError("a URL and its options exclude database")
    return Connection(database, autocommit, isolation, durability, is_owner=False)


class Connection:
    """A connection. As a context manager it commits, or rolls back after an exception."""

    Warning = Warning
    Error = Error
    InterfaceError = InterfaceError
    DatabaseError = DatabaseError
    DataError = DataError
    OperationalError = OperationalError
    IntegrityError = IntegrityError
    InternalError = InternalError
    ProgrammingError = ProgrammingError
    NotSupportedError = NotSupportedError

    def __init__(
        self,
        db: Database,
        autocommit: bool,
        isolation: str | None,
        durability: str | None,
        is_owner: bool = True,
    ) -> None:
        self.db = db
        self._is_owner = is_owner
        self._autocommit = autocommit
        self._isolation = isolation
        self._durability = durability
        self._tx: OpenTransaction | None = None
        self._lock = threading.RLock()
        self._is_closed = False

    @property
    def autocommit(self) -> bool:
        """Whether each statement commits by itself. Setting it requires that no transaction is open."""
        return self._autocommit

    @autocommit.setter
    def autocommit(self, value: bool) -> None:
        with self._lock:
            if self._tx is not None:
                raise ProgrammingError("autocommit cannot change in a transaction: commit or roll back first")
            self._autocommit = value

    def cursor(self) -> Cursor:
        """Returns a new cursor."""
        self._check()
        return Cursor(self)

    def commit(self) -> None:
        """Commits. Raises `OperationalError` 40001 after a conflict: repeat the transaction."""
        with self._lock:
            self._check()
            tx, self._tx = self._tx, None
            if tx is None:
                return
            if not tx.is_open:
                raise InternalError("the transaction failed and was rolled back", "25P02")
            try:
                tx.commit()
            except errors.Error as error:
                raise _translate(error) from error

    def rollback(self) -> None:
        """Rolls back; without a transaction it does nothing."""
        with self._lock:
            self._check()
            self._end()

    def close(self) -> None:
        """Rolls back and closes the connection."""
        with self._lock:
            if not self._is_closed:
                self._end()
                self._is_closed = True
                if self._is_owner:
                    self.db.close()

    def __enter__(self) -> Connection:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.commit()
        else:
            self.rollback()

    def _end(self) -> None:
        tx, self._tx = self._tx, None
        if tx is not None and tx.is_open:
            try:
                tx.rollback()
            except errors.Error:
                # The server rolls back by itself.
                pass

    def _check(self) -> None:
        if self._is_closed:
            raise InterfaceError("the connection is closed")

    def _run(self, sql: str, sets: Sequence[Params]) -> list[Result]:
        """Runs a statement for each set of parameters."""
        with self._lock:
            self._check()
            try:
                operations = [sql_operation(sql, one, None) for one in sets]
            except (ValueError, KeyError, TypeError) as error:
                raise ProgrammingError(f"parameters: {error}") from error
            try:
                if self._autocommit:
                    if len(sets) == 1:
                        return [self.db.sql(sql, sets[0])]
                    with self.db.transaction(durability=self._durability) as tx:
                        for one in sets:
                            tx.sql(sql, one)
                    return list(tx.results)
                if self._tx is None:
                    self._tx = self.db.begin(isolation=self._isolation, durability=self._durability)
                elif not self._tx.is_open:
                    raise InternalError("the transaction failed: roll back before the next statement", "25P02")
                found: list[Result] = []
                for at in range(0, len(operations), BATCH):
                    found += self._tx.run(operations[at : at + BATCH])
                return found
            except errors.Error as error:
                raise _translate(error) from error


class Cursor:
    """A cursor over the rows of its last statement. Rows are tuples with names (`ropewalk.Row`)."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.arraysize = 1
        self.lastrowid: None = None
        self.description: list[tuple[str, str, None, None, None, None, None]] | None = None
        self.rowcount = -1
        self._rows: list[ropewalk.Row] | None = None
        self._next = 0
        self._is_closed = False

    @property
    def rownumber(self) -> int | None:
        """Index of the next row."""
        return None if self._rows is None else self._next

    def execute(self, operation: str, parameters: Params = None) -> Cursor:
        """Runs a statement. Raises the `Error` of its SQLSTATE."""
        self._check()
        self._clear()
        [result] = self.connection._run(operation, [parameters])
        self.rowcount = result.rowcount
        if result.columns:
            self.description = [(one.name, one.type, None, None, None, None, None) for one in result.columns]
            self._rows = list(result)
        return self

    def executemany(self, operation: str, seq_of_parameters: Sequence[Sequence[Any] | Mapping[str, Any]]) -> Cursor:
        """Runs a statement for each set of parameters, in few requests. Rows are not available."""
        self._check()
        self._clear()
        sets = list(seq_of_parameters)
        results = self.connection._run(operation, sets) if sets else []
        counts = [one.rowcount for one in results]
        self.rowcount = -1 if any(count < 0 for count in counts) else sum(counts)
        return self

    def fetchone(self) -> ropewalk.Row | None:
        """Returns the next row, or `None`."""
        found = self.fetchmany(1)
        return found[0] if found else None

    def fetchmany(self, size: int | None = None) -> list[ropewalk.Row]:
        """Returns the next rows, by default `arraysize`."""
        self._check()
        if self._rows is None:
            raise ProgrammingError("there is no result: the last statement returned no rows")
        end = self._next + (self.arraysize if size is None else size)
        found = self._rows[self._next : end]
        self._next += len(found)
        return found

    def fetchall(self) -> list[ropewalk.Row]:
        """Returns the remaining rows."""
        return self.fetchmany(len(self._rows) if self._rows is not None else 0)

    def __iter__(self) -> Iterator[ropewalk.Row]:
        while (row := self.fetchone()) is not None:
            yield row

    def setinputsizes(self, sizes: Sequence[Any]) -> None:
        """Does nothing: PEP 249 permits this."""

    def setoutputsize(self, size: int, column: int | None = None) -> None:
        """Does nothing: PEP 249 permits this."""

    def close(self) -> None:
        """Closes the cursor."""
        self._clear()
        self._is_closed = True

    def __enter__(self) -> Cursor:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _clear(self) -> None:
        self.description, self.rowcount, self._rows, self._next = None, -1, None, 0

    def _check(self) -> None:
        if self._is_closed:
            raise InterfaceError("the cursor is closed")
        self.connection._check()
