"""The package: its types, its stub, the examples of its page."""

from __future__ import annotations

import ast
import contextlib
import importlib.util
import io
import os
import re
import subprocess
import sys
import tempfile
import types
import unittest
from pathlib import Path

import ropewalk
from ropewalk import _core

PACKAGE = Path(ropewalk.__file__).resolve().parent
PAGE = Path(__file__).resolve().parents[3] / "docs" / "python-embedded.md"


class Stub(unittest.TestCase):
    def test_stub_has_what_the_module_has(self) -> None:
        tree = ast.parse((PACKAGE / "_core.pyi").read_text())
        classes = {one.name: one for one in tree.body if isinstance(one, ast.ClassDef)}
        self.assertEqual(set(classes), {name for name in vars(_core) if isinstance(getattr(_core, name), type)})
        for name, stub in classes.items():
            written = {one.name for one in stub.body if isinstance(one, ast.FunctionDef)}
            found = {one for one in vars(getattr(_core, name)) if not one.startswith("__")}
            found |= written & {"__len__", "__arrow_c_stream__"} & set(vars(getattr(_core, name)))
            self.assertEqual(written, found, name)

    def test_stub_documents_every_function(self) -> None:
        tree = ast.parse((PACKAGE / "_core.pyi").read_text())
        for one in ast.walk(tree):
            if isinstance(one, (ast.ClassDef, ast.FunctionDef)):
                self.assertTrue(ast.get_docstring(one), one.name)

    def test_native_classes_cannot_be_made_by_hand(self) -> None:
        for name in ("Database", "Events", "Subscription", "Collection", "Cursor", "Table", "Rows", "Transaction"):
            with self.subTest(name), self.assertRaises(TypeError):
                getattr(_core, name)()

    @unittest.skipUnless(importlib.util.find_spec("mypy"), "mypy is not installed")
    def test_tests_have_complete_types(self) -> None:
        with tempfile.TemporaryDirectory() as cache:
            command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", cache]
            command += sorted(str(one) for one in Path(__file__).parent.glob("*.py"))
            env = os.environ | {"MYPYPATH": str(PACKAGE.parent)}
            run = subprocess.run(command, env=env, capture_output=True, text=True, cwd=cache)
        self.assertEqual(run.returncode, 0, run.stdout + run.stderr)


class Documentation(unittest.TestCase):
    def test_examples_of_the_page_run_in_order(self) -> None:
        blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
        self.assertGreater(len(blocks), 4)
        module = sys.modules["example"] = types.ModuleType("example")
        self.addCleanup(sys.modules.pop, "example")
        before = os.getcwd()
        with tempfile.TemporaryDirectory() as place, contextlib.redirect_stdout(io.StringIO()):
            os.chdir(place)
            try:
                for block in blocks:
                    if "pyarrow" in block and importlib.util.find_spec("pyarrow") is None:
                        continue
                    with self.subTest(block):
                        exec(compile(block, str(PAGE), "exec", dont_inherit=True), module.__dict__)
            finally:
                os.chdir(before)


if __name__ == "__main__":
    unittest.main()
