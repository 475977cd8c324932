"""Opens a database in this process."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._embedded.database import EmbeddedDatabase


def open(
    path: str | os.PathLike[str],
    *,
    create: bool = True,
    memory: int | None = None,
    statement_memory: int | None = None,
) -> EmbeddedDatabase:
    """Opens the database in a directory, and creates it unless `create` is false.

    `memory` is for recent writes and caches (default 128 MiB), `statement_memory` the most that the
    rows of one SQL statement may take (default 512 MiB), both in bytes. The database has the
    interface of `ropewalk.connect`, and closes at the end of its `with` block or of the program.

    Raises `ResourceExhausted` while another process has the database open, `InvalidArgument` if it
    does not exist and `create` is false, `ServerError` for damaged files, and `ImportError` if this
    installation is the client only.
    """
    return _class().open(path, create, memory, statement_memory)


def open_in_memory(*, memory: int | None = None, statement_memory: int | None = None) -> EmbeddedDatabase:
    """Opens an empty database in memory; see `open`. Closing it drops its contents."""
    return _class().open(None, True, memory, statement_memory)


def _class() -> type[EmbeddedDatabase]:
    try:
        from ._embedded.database import EmbeddedDatabase
    except ModuleNotFoundError as error:
        if error.name != "ropewalk._core":
            raise
        raise ImportError(
            "this installation of ropewalk is the client only; open() needs the package that is built with "
            "the database: pip install ./crates/python in its repository",
            name="ropewalk._core",
        ) from error
    return EmbeddedDatabase
