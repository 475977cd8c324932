"""Databases for the tests, and programs that run in another process."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import textwrap
import time
import unittest
from collections.abc import Callable
from pathlib import Path

import ropewalk
from ropewalk._embedded.database import EmbeddedDatabase


def wait_until(holds: Callable[[], bool], seconds: float = 20.0) -> None:
    """Waits until a condition holds."""
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            raise AssertionError(f"not within {seconds} s")
        time.sleep(0.005)


class Case(unittest.TestCase):
    """Each test has a database in a new directory."""

    def setUp(self) -> None:
        place = tempfile.TemporaryDirectory(prefix="ropewalk-python-")
        self.addCleanup(place.cleanup)
        self.path = Path(place.name, "db")
        self.db: EmbeddedDatabase = self.open()
        self.store = self.db.events("shop")

    def open(self, **options: bool | int) -> EmbeddedDatabase:
        """Opens the database of the test."""
        db = ropewalk.open(self.path, **options)  # type: ignore[arg-type]
        self.addCleanup(db.close)
        return db

    def run_program(self, text: str, *arguments: str) -> str:
        """Runs a program in a new process, and returns what it prints. Fails if the program does."""
        search = os.pathsep.join(sys.path)
        run = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(text), str(self.path), *arguments],
            env=os.environ | {"PYTHONPATH": search},
            capture_output=True,
            text=True,
            timeout=120,
        )
        self.assertEqual(run.returncode, 0, run.stdout + run.stderr)
        return run.stdout
