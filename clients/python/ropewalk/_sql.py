"""SQL: placeholders, parameters and rows."""

from __future__ import annotations

import dataclasses
import datetime as dt
import functools
import math
import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any, TypeVar, overload

from ._http import dumps
from ._typed import encode

if TYPE_CHECKING:
    from ._core import Rows

T = TypeVar("T")
Params = Sequence[Any] | Mapping[str, Any] | None
#: Integers beyond it are sent as text.
INT64_MAX = 2**63 - 1
#: String literals, quoted identifiers, dollar quotes and comments of a statement.
_QUOTED = re.compile(
    r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|(\$[A-Za-z_]*\$).*?\1|--[^\n]*|/\*.*?\*/", re.DOTALL
)
_NUMBERED = re.compile(r"\$\d")
_PLACEHOLDER = re.compile(r"%(?:\((?P<name>[^)]*)\))?(?P<kind>.?)", re.DOTALL)


@dataclasses.dataclass(frozen=True)
class Json:
    """A parameter of type `json` or `jsonb`; a bare list is an SQL array."""

    value: Any


def statement(sql: str, params: Params) -> tuple[str, list[Any] | None]:
    """Returns the statement with `$1`, `$2`, … and its parameters as JSON.

    Placeholders are `$1`, or else `%s` and `%(name)s` with `%%` for a percent sign. Without
    parameters the statement is sent as it is. Raises `ValueError` if they do not fit.
    """
    if params is None:
        return sql, None
    if isinstance(params, (str, bytes)):
        raise ValueError("the parameters are a sequence or a mapping, not a string")
    if not isinstance(params, Mapping) and _has_numbers(sql):
        return sql, [parameter(one) for one in params]
    return _numbered(sql, params)


@functools.lru_cache(maxsize=1024)
def _has_numbers(sql: str) -> bool:
    return _NUMBERED.search(_QUOTED.sub("''", sql)) is not None


def _numbered(sql: str, params: Sequence[Any] | Mapping[str, Any]) -> tuple[str, list[Any]]:
    values: list[Any] = []
    names: dict[str, int] = {}
    count = 0

    def replace(found: re.Match[str]) -> str:
        nonlocal count
        name, kind = found["name"], found["kind"]
        if kind == "%" and name is None:
            return "%"
        if kind not in ("s", "b", "t"):
            raise ValueError(f"{found[0]!r} is no placeholder: write %s, %(name)s, or %% for a percent sign")
        if isinstance(params, Mapping):
            if name is None:
                raise ValueError("the parameters have names, but the statement has %s")
            if name not in names:
                values.append(parameter(params[name]))
                names[name] = len(values)
            return f"${names[name]}"
        if name is not None:
            raise ValueError(f"the parameters are a sequence, but the statement has {found[0]}")
        count += 1
        if count > len(params):
            raise ValueError(f"the statement has more than {len(params)} placeholders")
        values.append(parameter(params[count - 1]))
        return f"${count}"

    text = _PLACEHOLDER.sub(replace, sql)
    if not isinstance(params, Mapping) and count != len(params):
        raise ValueError(f"the statement has {count} placeholders for {len(params)} parameters")
    return text, values


def parameter(value: Any) -> Any:
    """Returns a parameter as JSON: numbers and booleans, or PostgreSQL's text format."""
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, int):
        return value if -INT64_MAX <= value <= INT64_MAX else str(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else _float_text(value)
    if isinstance(value, Json):
        return dumps(encode(value.value)).decode()
    if isinstance(value, Mapping):
        return dumps(encode(value)).decode()
    if isinstance(value, (list, tuple)):
        return _array(value)
    return _text(value)


def _float_text(value: float) -> str:
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else _float_text(value)
    if isinstance(value, (dt.datetime, dt.date, dt.time)):
        return value.isoformat()
    if isinstance(value, dt.timedelta):
        return f"{value.days} days {value.seconds} seconds {value.microseconds} microseconds"
    if isinstance(value, (bytes, bytearray, memoryview)):
        return "\\x" + bytes(value).hex()
    if isinstance(value, (Json, Mapping)):
        return str(parameter(value))
    if isinstance(value, (int, str, Decimal, uuid.UUID)):
        return str(value)
    return str(encode(value))


def _array(values: Sequence[Any]) -> str:
    parts = []
    for one in values:
        if one is None:
            parts.append("NULL")
        else:
            parts.append('"' + _text(one).replace("\\", "\\\\").replace('"', '\\"') + '"')
    return "{" + ",".join(parts) + "}"


@dataclasses.dataclass(frozen=True)
class Column:
    """Name and SQL type of a column of a result."""

    name: str
    type: str


class Row(tuple[Any, ...]):
    """A row: a tuple whose values are also attributes and keys: `row[0]`, `row.sku`, `row["sku"]`."""

    _fields: tuple[str, ...] = ()

    def __getattr__(self, name: str) -> Any:
        try:
            return tuple.__getitem__(self, self._fields.index(name))
        except ValueError:
            raise AttributeError(f"the row has no column {name!r}; it has {', '.join(self._fields)}") from None

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            try:
                return tuple.__getitem__(self, self._fields.index(key))
            except ValueError:
                raise KeyError(key) from None
        return tuple.__getitem__(self, key)

    def _asdict(self) -> dict[str, Any]:
        return dict(zip(self._fields, self))


def row_maker(columns: Sequence[Column]) -> Callable[[Iterable[Any]], Row]:
    """Returns the function that makes a `Row` of the values of a response."""
    kind = type("Row", (Row,), {"_fields": tuple(one.name for one in columns)})
    readers = [reader(one.type) for one in columns]
    if not any(readers):
        return kind
    return lambda values: kind(
        one if read is None or one is None else read(one) for read, one in zip(readers, values)
    )


class Result(Sequence[Row]):
    """The rows of a statement, with `columns`, `command` ("UPDATE 1") and `rowcount`.

    `numeric` is read as `Decimal`, dates and times as those of `datetime` (infinities as text),
    `uuid` as `UUID`, `bytea` as `bytes`, arrays as lists; intervals and other types are text.
    """

    def __init__(self, raw: Mapping[str, Any] | Rows) -> None:
        self._native: Rows | None = None
        self._made: list[Row] | None = None
        if isinstance(raw, Mapping):
            self.command: str = raw["command"]
            self.columns = [Column(one["name"], one["type"]) for one in raw.get("columns") or ()]
            make = row_maker(self.columns)
            self._made = [make(row) for row in raw.get("rows") or ()]
        else:
            self.command = raw.command
            self.columns = [Column(name, kind) for name, kind in raw.columns]
            self._native = raw

    @property
    def _rows(self) -> list[Row]:
        if self._made is None:
            make = row_maker(self.columns)
            self._made = [make(row) for row in self._native.rows()] if self._native is not None else []
        return self._made

    @property
    def rowcount(self) -> int:
        """Number of rows that the statement wrote or returned; -1 for other statements."""
        last = self.command.rsplit(" ", 1)[-1]
        return int(last) if last.isdigit() else -1

    @overload
    def __getitem__(self, index: int) -> Row: ...
    @overload
    def __getitem__(self, index: slice) -> list[Row]: ...

    def __getitem__(self, index: int | slice) -> Row | list[Row]:
        return self._rows[index]

    def __len__(self) -> int:
        return len(self._rows) if self._native is None else len(self._native)

    def __iter__(self) -> Iterator[Row]:
        return iter(self._rows)

    def __repr__(self) -> str:
        return f"<Result {self.command!r}, {len(self)} rows>"

    def one(self) -> Row:
        """Returns the only row. Raises `ValueError` for another number of rows."""
        if len(self._rows) != 1:
            raise ValueError(f"the statement returned {len(self._rows)} rows, not 1")
        return self._rows[0]

    def scalar(self) -> Any:
        """Returns the first value of the only row."""
        return self.one()[0]

    def dicts(self) -> list[dict[str, Any]]:
        """Returns the rows as dictionaries by column."""
        return [row._asdict() for row in self._rows]

    def as_(self, cls: Callable[..., T]) -> list[T]:
        """Returns the rows as objects: `cls` is called with the columns as named arguments."""
        return [cls(**row._asdict()) for row in self._rows]

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Exports the rows by the Arrow PyCapsule interface: `pyarrow.table(result)`.

        With a database in this process nothing is copied, and the types are those of `arrow`.
        Over HTTP it needs pyarrow.
        """
        if self._native is not None:
            return self._native.__arrow_c_stream__(requested_schema)
        return self.arrow().__arrow_c_stream__(requested_schema)

    def arrow(self) -> Any:
        """Returns a `pyarrow.Table` with a column per column. Raises `ImportError` without pyarrow.

        With a database in this process the table shares the memory of the result. `text` is
        string_view, `bytea` binary_view, `date` date32, `timestamp` and `timestamptz`
        timestamp[us], `numeric` decimal128, `uuid` 16 bytes, arrays are lists, other types text in
        PostgreSQL's format. Over HTTP the types follow from the values.
        """
        import pyarrow  # type: ignore[import-not-found,import-untyped,unused-ignore]

        if self._native is not None:
            return pyarrow.table(self._native)
        names = [one.name for one in self.columns]
        columns = [[row[place] for row in self._rows] for place in range(len(names))]
        return pyarrow.Table.from_arrays([_arrow_array(pyarrow, values) for values in columns], names=names)

    def to_pandas(self) -> Any:
        """Returns a `pandas.DataFrame`; its types are those of `arrow` where pyarrow is installed.

        Raises `ImportError` without pandas.
        """
        import pandas  # type: ignore[import-not-found,import-untyped,unused-ignore]

        if self._native is not None:
            try:
                return self.arrow().to_pandas()
            except ImportError:
                pass
        return pandas.DataFrame([tuple(row) for row in self._rows], columns=[one.name for one in self.columns])

    def to_polars(self) -> Any:
        """Returns a `polars.DataFrame`, without a copy of the rows where `arrow` makes none.

        Raises `ImportError` without polars.
        """
        import polars  # type: ignore[import-not-found,import-untyped,unused-ignore]

        return polars.DataFrame(self.arrow() if self._native is None else self._native)


def _arrow_array(pyarrow: Any, values: list[Any]) -> Any:
    try:
        return pyarrow.array(values)
    except (pyarrow.ArrowException, TypeError):
        return pyarrow.array([None if one is None else str(one) for one in values])


def reader(kind: str) -> Callable[[Any], Any] | None:
    """Returns the function that reads a value of an SQL type; `None` if JSON has the type."""
    if kind.endswith("[]"):
        element = reader(kind[:-2]) or _ELEMENTS.get(kind[:-2])
        return lambda text: _read_array(text, element)
    return _READERS.get(kind.split("(", 1)[0])


def _timestamp(text: str) -> Any:
    try:
        # PostgreSQL writes the zone as +00, which `fromisoformat` reads only since Python 3.11.
        zoned = re.sub(r"([+-]\d\d)$", r"\1:00", text) if " " in text else text
        return dt.datetime.fromisoformat(re.sub(r"\.(\d+)", lambda found: f".{found[1]:0<6}", zoned))
    except ValueError:
        return text


def _date(text: str) -> Any:
    try:
        return dt.date.fromisoformat(text)
    except ValueError:
        return text


def _time(text: str) -> Any:
    try:
        return dt.time.fromisoformat(re.sub(r"\.(\d+)", lambda found: f".{found[1]:0<6}", text))
    except ValueError:
        return text


def _bytes(text: str) -> bytes:
    return bytes.fromhex(text[2:])


_READERS: dict[str, Callable[[Any], Any]] = {
    "numeric": Decimal,
    "double precision": float,
    "real": float,
    "timestamp with time zone": _timestamp,
    "timestamp without time zone": _timestamp,
    "timestamp": _timestamp,
    "date": _date,
    "time without time zone": _time,
    "time": _time,
    "bytea": _bytes,
    "uuid": uuid.UUID,
}
#: Types that JSON has, as elements of an array, which is text.
_ELEMENTS: dict[str, Callable[[str], Any]] = {
    "smallint": int,
    "integer": int,
    "bigint": int,
    "boolean": lambda text: text in ("t", "true"),
}
_ELEMENT = re.compile(r'"((?:[^"\\]|\\.)*)"|([^,{}"]+)', re.DOTALL)


def _read_array(text: Any, element: Callable[[Any], Any] | None) -> Any:
    if not isinstance(text, str):
        return text
    values: list[Any] = []
    for quoted, bare in _ELEMENT.findall(text[text.find("{") :]):
        # An empty string is quoted, so that both groups are empty.
        value = bare or re.sub(r"\\(.)", r"\1", quoted, flags=re.DOTALL)
        values.append(None if bare == "NULL" else value if element is None else element(value))
    return values
