"""Collections of documents of a database in this process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from .._documents import Codec, Collection, Document

if TYPE_CHECKING:
    from .._core import Cursor
    from .database import EmbeddedDatabase


def as_is(value: Any) -> Any:
    """Returns the value: the native module converts it."""
    return value


#: The native module takes and returns Python's values.
NATIVE = Codec(as_is, as_is)


class EmbeddedCollection(Collection):
    """A collection of a database in this process."""

    db: EmbeddedDatabase

    def __init__(self, db: EmbeddedDatabase, name: str, database: str) -> None:
        self.db = db
        self.name = name
        self.database = database
        self._codec = NATIVE
        self._core = db.core.collection(database, name)

    def get(self, id: Any) -> Document | None:
        """Returns the document with this `_id`."""
        return self._core.get(id)

    def put(self, id: Any, document: Mapping[str, Any]) -> None:
        """Stores a complete document, new or in place of the existing one."""
        self._core.run("put", {"id": id, "document": document})

    def configure(self, **options: Any) -> None:
        """Creates the collection, or sets `validator`, `rules`, `references` and other options."""
        self._core.configure(options)

    def create_index(self, *fields: str, **options: Any) -> str:
        """Creates an index; `-field` is descending. Options: `unique`, `sparse`, `name`, …"""
        return self._core.create_index({"fields": list(fields)} | options)

    def indexes(self) -> list[dict[str, Any]]:
        """Returns the indexes."""
        return self._core.indexes()

    def drop_index(self, name: str) -> None:
        """Drops an index."""
        self._core.drop_index(name)

    def drop(self) -> None:
        """Drops the collection with its documents and indexes."""
        self._core.drop()

    def _find(self, body: dict[str, Any]) -> Iterator[Document]:
        return _documents(self._core.find(body))

    def _run(self, action: str, body: Mapping[str, Any]) -> Any:
        return self._core.run(action, dict(body))


def _documents(cursor: Cursor) -> Iterator[Document]:
    try:
        while batch := cursor.next_batch():
            yield from batch
    finally:
        cursor.close()
