"""The page on compatibility says what results.json says, and both what known.txt and the tests of programs say. No program runs."""

import re
import sys
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import results  # noqa: E402
from foreign import Known  # noqa: E402


class Page(unittest.TestCase):
    def setUp(self):
        self.results = results.read()

    def test_page_has_the_tables_of_the_results(self):
        text = results.PAGE.read_text()
        self.assertEqual(results.page(text, self.results), text, "run tests/clients/programs/results.py")

    def test_changed_result_changes_the_page(self):
        text = results.PAGE.read_text()
        for found in self.results["programs"].values():
            found["date"] = "1999-12-31"
        self.assertNotEqual(results.page(text, self.results), text)

    def test_every_program_has_a_result(self):
        tests = {path.stem.removeprefix("test_") for path in HERE.glob("test_*.py")}
        self.assertEqual(set(self.results["programs"]), tests)

    def test_programs_that_stop_are_the_known_ones(self):
        stopped = {
            name: found["reason"] for name, found in self.results["programs"].items() if found["outcome"] == "stops"
        }
        self.assertEqual(stopped, Known(HERE / "known.txt").reasons)
        for name, reason in stopped.items():
            self.assertRegex(reason, "^`[^`]+`", f"the reason of {name} has no message")

    def test_results_are_of_the_versions_that_the_tests_pin(self):
        for name, found in self.results["programs"].items():
            source = (HERE / f"test_{name}.py").read_text()
            self.assertIn(re.search(r'title = "(.*)"', source).group(1), found["title"])


if __name__ == "__main__":
    unittest.main()
