"""A server for the tests of a class."""

from __future__ import annotations

import itertools
import os
import time
import unittest
from collections.abc import Callable
from pathlib import Path

import ropewalk
from ropewalk.testing import Server

BINARY = os.environ.get("ROPEWALK_BIN") or str(Path(__file__).resolve().parents[3] / "target" / "debug" / "ropewalk")
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
    """Tests against one server; each test has new names for its stores and tables."""

    server: Server
    db: ropewalk.Database

    @classmethod
    def setUpClass(cls) -> None:
        cls.server = Server(require_binary())
        cls.db = ropewalk.connect(cls.server.url)

    @classmethod
    def tearDownClass(cls) -> None:
        cls.db.close()
        cls.server.close()

    def setUp(self) -> None:
        self.name = f"n{next(_numbers)}"
        self.store = self.db.events(self.name)
