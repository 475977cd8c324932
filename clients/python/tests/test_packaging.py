"""The package: its types and its installation."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def can_build() -> bool:
    """Reports whether there is a setuptools that builds wheels without further packages."""
    try:
        major, minor, *_ = version("setuptools").split(".")
        return (int(major), int(minor)) >= (70, 1)
    except (PackageNotFoundError, ValueError):
        return False


class Packaging(unittest.TestCase):
    @unittest.skipUnless(importlib.util.find_spec("mypy"), "mypy is not installed")
    def test_types_are_complete(self) -> None:
        with tempfile.TemporaryDirectory() as cache:
            command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", cache]
            run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        self.assertEqual(run.returncode, 0, run.stdout + run.stderr)

    @unittest.skipUnless(can_build(), "setuptools from 70.1 is not installed")
    def test_package_installs_without_a_network(self) -> None:
        with tempfile.TemporaryDirectory() as place:
            # A build writes next to its sources.
            source, target = Path(place, "source"), Path(place, "target")
            shutil.copytree(ROOT, source, ignore=shutil.ignore_patterns(".*", "build", "*.egg-info"))
            command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps"]
            command += ["--no-build-isolation", "--target", str(target), str(source)]
            run = subprocess.run(command, capture_output=True, text=True)
            self.assertEqual(run.returncode, 0, run.stderr)
            self.assertTrue((target / "ropewalk" / "py.typed").exists())
            code = "import ropewalk, ropewalk.aio, ropewalk.dbapi, ropewalk.testing; print(ropewalk.__version__)"
            self.assertEqual(self.printed(code, target), "0.1.0\n")
            code = "import ropewalk\ntry: ropewalk.open('db')\nexcept ImportError as error: print(error)"
            self.assertIn("this installation of ropewalk is the client only", self.printed(code, target))

    def printed(self, code: str, packages: Path) -> str:
        env = os.environ | {"PYTHONPATH": str(packages)}
        run = subprocess.run([sys.executable, "-c", code], env=env, cwd=packages, capture_output=True, text=True)
        self.assertEqual(run.returncode, 0, run.stderr)
        return run.stdout
