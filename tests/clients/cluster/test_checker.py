"""The checker of histories accepts those of a register, and rejects those that no register has."""

import random
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import linearizable  # noqa: E402


def write(value, called, returned, version=-1):
    return {"register": "r", "kind": "write", "value": value, "version": version, "called": called, "returned": returned}


def read(version, value, called, returned):
    return {"register": "r", "kind": "read", "version": version, "found": value, "called": called, "returned": returned}


def cas(expected, value, stored, called, returned):
    operation = {"register": "r", "kind": "cas", "value": value, "expected": expected, "stored": stored}
    return operation | {"called": called, "returned": returned}


def simulated(seed, clients=5, operations=120):
    """A history of a real register: each operation takes effect at a moment between its call and its return. Some outcomes are
    unknown, and some of these operations take effect after the client has given up, or never."""
    chosen, pending, history = random.Random(seed), [], []
    free = [0] * clients
    for number in range(operations):
        client = min(range(clients), key=free.__getitem__)
        called = free[client] + chosen.randrange(1, 20)
        effect = called + chosen.randrange(1, 40)
        returned = free[client] = effect + chosen.randrange(1, 40)
        lost = chosen.random() < 0.05
        if lost:
            effect += chosen.choice((0, 100, 10**9))
        pending.append((effect, number, called, None if lost else returned))
    version, value = 0, ""
    for _, number, called, returned in sorted(pending):
        kind = chosen.choice(("read", "write", "cas"))
        if kind == "read" and returned is not None:
            history.append(read(version, value, called, returned))
        elif kind == "cas":
            expected = version - chosen.choice((0, 0, 1))
            history.append(cas(expected, f"v{number}", expected == version, called, returned))
            if expected == version:
                version, value = version + 1, f"v{number}"
        else:
            version, value = version + 1, f"v{number}"
            history.append(write(value, called, returned, version))
    return history


@unittest.skipIf(linearizable.unavailable(), linearizable.unavailable())
class Histories(unittest.TestCase):
    def assert_accepted(self, history):
        self.assertEqual(linearizable.problems(history), [])

    def assert_rejected(self, history):
        [problem] = linearizable.problems(history)
        self.assertIn("the history of r is not linearizable", problem)

    def test_history_of_a_register_is_accepted(self):
        for seed in range(10):
            self.assert_accepted(simulated(seed))

    def test_stale_read_planted_in_a_long_history_is_rejected(self):
        for seed in range(10):
            history = simulated(seed)
            end = max(operation["returned"] or 0 for operation in history)
            first = min(operation["version"] for operation in history if operation["kind"] == "read" and operation["version"])
            found = next(one["found"] for one in history if one["kind"] == "read" and one["version"] == first)
            self.assert_rejected([*history, write("w", end + 1, end + 2), read(first, found, end + 3, end + 4)])

    def test_read_that_began_after_a_write_must_find_it(self):
        self.assert_accepted([write("a", 0, 10), read(0, "", 5, 20)])
        self.assert_rejected([write("a", 0, 10), read(0, "", 15, 20)])

    def test_second_read_must_not_go_back(self):
        self.assert_accepted([write("a", 0, 100), read(0, "", 10, 20), read(1, "a", 30, 40)])
        self.assert_rejected([write("a", 0, 100), read(1, "a", 10, 20), read(0, "", 30, 40)])

    def test_value_that_was_not_written_is_rejected(self):
        self.assert_rejected([write("a", 0, 10), read(1, "b", 20, 30)])

    def test_one_of_two_compare_and_sets_of_a_version_stores(self):
        begun = write("a", 0, 10)
        self.assert_accepted([begun, cas(1, "b", True, 20, 40), cas(1, "c", False, 20, 40)])
        self.assert_rejected([begun, cas(1, "b", True, 20, 40), cas(1, "c", True, 20, 40)])

    def test_compare_and_set_that_failed_must_have_found_another_version(self):
        self.assert_rejected([write("a", 0, 10), cas(1, "b", False, 20, 30)])

    def test_acknowledged_write_that_is_lost_is_rejected(self):
        self.assert_rejected([write("a", 0, 10, 1), write("b", 20, 30, 2), read(1, "a", 40, 50)])

    def test_unknown_write_takes_effect_later_or_never_but_not_before_and_not_twice(self):
        unknown = write("b", 20, None)
        self.assert_accepted([write("a", 0, 10), unknown, read(1, "a", 30, 40), read(2, "b", 50, 60)])
        self.assert_accepted([write("a", 0, 10), unknown, read(1, "a", 30, 40)])
        self.assert_rejected([write("a", 0, 5), read(2, "b", 10, 15), unknown])
        again = [unknown, read(2, "b", 30, 40), write("c", 50, 60), read(4, "b", 70, 80)]
        self.assert_rejected([write("a", 0, 10), *again])

    def test_unknown_compare_and_set_may_take_effect_later(self):
        unknown = cas(1, "b", False, 20, None)
        self.assert_accepted([write("a", 0, 10), unknown, read(1, "a", 30, 40), read(2, "b", 50, 60)])
        self.assert_rejected([write("a", 0, 10), write("c", 11, 12), unknown, read(3, "b", 50, 60)])

    def test_registers_are_separate(self):
        wrong = [write("a", 0, 10), read(0, "", 15, 20)]
        other = [operation | {"register": "other"} for operation in simulated(1)]
        self.assert_rejected(wrong + other)

    def test_operation_that_is_no_operation_is_an_error(self):
        for wrong in ({"kind": "delete"}, {"returned": -1}, {"returned": None, "kind": "read"}, {"surprise": 1}):
            with self.assertRaises(RuntimeError):
                linearizable.check([write("a", 0, 10) | wrong])


if __name__ == "__main__":
    unittest.main()
