"""The examples of the documentation."""

from __future__ import annotations

import contextlib
import io
import re
import sys
import types
from pathlib import Path

from .support import Case

PAGE = Path(__file__).resolve().parents[3] / "docs" / "clients-python.md"


class Documentation(Case):
    def test_examples_of_the_page_run_in_order(self) -> None:
        blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
        self.assertGreater(len(blocks), 10)
        # Classes of the examples find their annotations by the module.
        module = sys.modules["example"] = types.ModuleType("example")
        self.addCleanup(sys.modules.pop, "example")
        with contextlib.redirect_stdout(io.StringIO()):
            for block in blocks:
                with self.subTest(block):
                    text = block.replace("http://127.0.0.1:4780", self.server.url)
                    exec(compile(text, str(PAGE), "exec", dont_inherit=True), module.__dict__)
