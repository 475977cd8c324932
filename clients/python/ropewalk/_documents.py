"""Collections of documents. Filters, updates and pipelines are those of MongoDB.

Values that JSON lacks are converted from and to MongoDB's Extended JSON: `datetime` (milliseconds,
UTC), `bytes`, `UUID`, `Decimal` and `ObjectId`.
"""

from __future__ import annotations

import base64
import datetime as dt
import json
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple

from ._events import time_of
from ._http import dumps, segment
from ._typed import encode
from .errors import NotFound

if TYPE_CHECKING:
    from ._client import Database

Document = dict[str, Any]
Filter = Mapping[str, Any]
Update = Mapping[str, Any] | Sequence[Mapping[str, Any]]


class ObjectId(str):
    """An ObjectId as 24 hexadecimal digits."""

    __slots__ = ()


@dataclass(frozen=True)
class Updated:
    """Result of an update: matched and changed documents, and the `_id` of an inserted one."""

    matched: int
    modified: int
    upserted: Any = None


def to_extended(value: Any) -> Any:
    """Returns a value as Extended JSON."""
    if isinstance(value, ObjectId):
        return {"$oid": str(value)}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, Mapping):
        return {str(name): to_extended(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_extended(one) for one in value]
    if isinstance(value, dt.datetime):
        zoned = value if value.tzinfo else value.replace(tzinfo=dt.timezone.utc)
        text = zoned.astimezone(dt.timezone.utc).isoformat(timespec="milliseconds")
        return {"$date": text.replace("+00:00", "Z")}
    if isinstance(value, (bytes, bytearray)):
        return {"$binary": {"base64": base64.b64encode(value).decode(), "subType": "00"}}
    if isinstance(value, uuid.UUID):
        return {"$binary": {"base64": base64.b64encode(value.bytes).decode(), "subType": "04"}}
    if isinstance(value, Decimal):
        return {"$numberDecimal": str(value)}
    return to_extended(encode(value))


def from_extended(value: Any) -> Any:
    """Returns the value of Extended JSON; types without a form in Python remain objects."""
    if isinstance(value, list):
        return [from_extended(one) for one in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1:
        [(name, one)] = value.items()
        if name == "$oid":
            return ObjectId(one)
        if name == "$date" and isinstance(one, str):
            return time_of(one)
        if name == "$numberDecimal":
            return Decimal(one)
        if name in ("$numberLong", "$numberInt"):
            return int(one)
        if name == "$numberDouble":
            return float(one)
        if name == "$binary" and isinstance(one, dict):
            data = base64.b64decode(one["base64"])
            if one["subType"] == "04":
                return uuid.UUID(bytes=data)
            if one["subType"] == "00":
                return data
    return {name: from_extended(one) for name, one in value.items()}


class Codec(NamedTuple):
    """Conversion of values to their form in requests, and from their form in responses."""

    to: Callable[[Any], Any]
    back: Callable[[Any], Any]

    def fields(self, **fields: Any) -> dict[str, Any]:
        """Returns the fields that are present."""
        return {name: self.to(one) for name, one in fields.items() if one is not None and one is not False}

    def updated(self, raw: Mapping[str, Any]) -> Updated:
        """Returns the result of an update."""
        return Updated(raw["matched"], raw["modified"], self.back(raw.get("upserted")))


#: For HTTP.
EXTENDED = Codec(to_extended, from_extended)


class Collection:
    """A collection of documents, which its first write creates. Thread-safe.

    Reads of a collection that does not exist raise `NotFound`, except `get`, which returns `None`.

    Writes have no idempotency key: after `ConnectionBroken` a write may have been committed. A
    write in `Database.transaction` has one.
    """

    def __init__(self, db: Database, name: str, database: str) -> None:
        self.db = db
        self.name = name
        self.database = database
        self._codec = db.codec
        self._path = f"/v1/databases/{segment(database)}/collections/{segment(name)}"

    def insert(self, documents: Mapping[str, Any] | Iterable[Mapping[str, Any]]) -> list[Any]:
        """Inserts a document or several atomically; returns their `_id`s.

        Raises `AlreadyExists` for a duplicate key, `ValidationFailed` for an invalid document.
        """
        every = [documents] if isinstance(documents, Mapping) else list(documents)
        raw = self._run("insert", {"documents": [self._codec.to(one) for one in every]})
        return [self._codec.back(one) for one in raw["ids"]]

    def get(self, id: Any) -> Document | None:
        """Returns the document with this `_id`."""
        path, query = self._document(id)
        try:
            found: Document = from_extended(self.db.transport.request("GET", path, query=query).json())
            return found
        except NotFound:
            return None

    def put(self, id: Any, document: Mapping[str, Any]) -> None:
        """Stores a complete document, new or in place of the existing one."""
        path, query = self._document(id)
        body = to_extended({name: one for name, one in document.items() if name != "_id"})
        self.db.transport.request("PUT", path, query=query, body=body, is_safe=True)

    def find(
        self,
        filter: Filter | None = None,
        *,
        sort: Mapping[str, int] | None = None,
        projection: Mapping[str, Any] | None = None,
        skip: int | None = None,
        limit: int | None = None,
        hint: str | None = None,
    ) -> Iterator[Document]:
        """Returns an iterator over the matching documents, as a stream."""
        return self._find(
            self._codec.fields(
                filter=filter, sort=sort, projection=projection, skip=skip, limit=limit, hint=hint
            )
        )

    def _find(self, body: dict[str, Any]) -> Iterator[Document]:
        lines = self.db.transport.stream("POST", f"{self._path}/documents:query", body=body)
        return (from_extended(json.loads(line)) for line in lines if line)

    def find_one(
        self,
        filter: Filter | None = None,
        *,
        sort: Mapping[str, int] | None = None,
        projection: Mapping[str, Any] | None = None,
    ) -> Document | None:
        """Returns the first matching document."""
        found = list(self.find(filter, sort=sort, projection=projection, limit=1))
        return found[0] if found else None

    def count(self, filter: Filter | None = None) -> int:
        """Returns the number of matching documents."""
        return int(self._run("count", {"filter": self._codec.to(filter or {})})["count"])

    def distinct(self, field: str, filter: Filter | None = None) -> list[Any]:
        """Returns the distinct values of a field, in the order of values."""
        raw = self._run("distinct", self._codec.fields(field=field, filter=filter))
        return [self._codec.back(one) for one in raw["values"]]

    def aggregate(self, pipeline: Sequence[Mapping[str, Any]], **let: Any) -> list[Document]:
        """Returns the result of a pipeline. With `$out` or `$merge` it is one commit."""
        raw = self._run("aggregate", self._codec.fields(pipeline=pipeline, let=let or None))
        return [self._codec.back(one) for one in raw.get("documents") or ()]

    def update(
        self,
        filter: Filter,
        update: Update,
        *,
        many: bool = False,
        upsert: bool = False,
        array_filters: Sequence[Filter] | None = None,
        sort: Mapping[str, int] | None = None,
        hint: str | None = None,
    ) -> Updated:
        """Updates the first matching document, or all with `many`; inserts one with `upsert`."""
        to = self._codec.to
        options = self._codec.fields(
            many=many, upsert=upsert, array_filters=array_filters, sort=sort, hint=hint
        )
        raw = self._run("update", {"filter": to(filter), "update": to(update)} | options)
        return self._codec.updated(raw)

    def delete(self, filter: Filter, *, many: bool = False) -> int:
        """Deletes the first matching document, or all with `many`; returns their number."""
        body = {"filter": self._codec.to(filter)} | self._codec.fields(many=many)
        return int(self._run("delete", body)["deleted"])

    def modify(
        self,
        filter: Filter,
        update: Update | None = None,
        *,
        delete: bool = False,
        after: bool = False,
        upsert: bool = False,
        sort: Mapping[str, int] | None = None,
    ) -> Document | None:
        """Updates or deletes one document; returns it as it was, or with `after` as it is now."""
        options = self._codec.fields(update=update, delete=delete, after=after, upsert=upsert, sort=sort)
        raw = self._run("modify", {"filter": self._codec.to(filter)} | options)
        found: Document | None = self._codec.back(raw["document"])
        return found

    def configure(self, **options: Any) -> None:
        """Creates the collection, or sets `validator`, `rules`, `references` and other options."""
        self.db.transport.request("PUT", self._path, body=to_extended(options), is_safe=True)

    def create_index(self, *fields: str, **options: Any) -> str:
        """Creates an index; `-field` is descending. Options: `unique`, `sparse`, `name`, …"""
        body = {"fields": list(fields)} | to_extended(options)
        return str(self.db.transport.request("POST", f"{self._path}/indexes", body=body).json()["name"])

    def indexes(self) -> list[dict[str, Any]]:
        """Returns the indexes."""
        raw = self.db.transport.request("GET", f"{self._path}/indexes").json()
        return list(raw["indexes"])

    def drop_index(self, name: str) -> None:
        """Drops an index."""
        self.db.transport.request("DELETE", f"{self._path}/indexes/{segment(name)}")

    def drop(self) -> None:
        """Drops the collection with its documents and indexes."""
        self.db.transport.request("DELETE", self._path)

    def _document(self, id: Any) -> tuple[str, dict[str, str] | None]:
        path = f"{self._path}/documents/"
        if isinstance(id, ObjectId):
            return path + segment(id), {"id": "oid"}
        if isinstance(id, str):
            return path + segment(id), None
        return path + segment(dumps(to_extended(id)).decode()), {"id": "json"}

    def _run(self, action: str, body: Mapping[str, Any]) -> Any:
        path = f"{self._path}/documents" + ("" if action == "insert" else f":{action}")
        is_safe = action in ("count", "distinct")
        return self.db.transport.request("POST", path, body=body, is_safe=is_safe).json()
