"""A database for the tests of a class: on a server, or with `ROPEWALK_EMBEDDED=1` in this process."""

from __future__ import annotations

import itertools
import os
import tempfile
import time
import unittest
from collections.abc import Callable
from pathlib import Path

import ropewalk
from ropewalk import aio, dbapi
from ropewalk.testing import Server

BINARY = os.environ.get("ROPEWALK_BIN") or str(Path(__file__).resolve().parents[3] / "target" / "debug" / "ropewalk")
EMBEDDED = os.environ.get("ROPEWALK_EMBEDDED") == "1"
_numbers = itertools.count(1)


def require_binary() -> str:
    """Returns the path of the server; skips the tests where it is absent."""
    if not Path(BINARY).exists():
        raise unittest.SkipTest(f"there is no server at {BINARY}: set ROPEWALK_BIN")
    return BINARY


def wait_until(holds: Callable[[], bool], seconds: float = 20.0) -> None:
    """Waits until a condition holds."""
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            raise AssertionError(f"not within {seconds} s")
        time.sleep(0.01)


class Case(unittest.TestCase):
    """Tests against one database; each test has new names for its stores and tables."""

    server: Server
    db: ropewalk.Database

    @classmethod
    def setUpClass(cls) -> None:
        if EMBEDDED:
            place = tempfile.TemporaryDirectory(prefix="ropewalk-test-")
            cls.addClassCleanup(place.cleanup)
            cls.db = ropewalk.open(Path(place.name, "db"))
        else:
            cls.server = Server(require_binary())
            cls.addClassCleanup(cls.server.close)
            cls.db = ropewalk.connect(cls.server.url)
        cls.addClassCleanup(cls.db.close)

    def setUp(self) -> None:
        self.name = f"n{next(_numbers)}"
        self.store = self.db.events(self.name)

    def async_database(self) -> aio.AsyncDatabase:
        """Returns a database for asyncio, which the test closes."""
        return aio.AsyncDatabase(ropewalk.open_in_memory()) if EMBEDDED else aio.connect(self.server.url)

    def connection(self) -> dbapi.Connection:
        """Returns a connection of the DB-API, which the test closes."""
        return dbapi.connect(database=self.db) if EMBEDDED else dbapi.connect(self.server.url)
