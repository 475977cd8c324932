"""The prompt of `ropewalk sql`, typed at by a person: a pseudo terminal with a terminal's screen (pyte) behind it.

What stands on the screen after each step is kept in screens.txt; `UPDATE=1` writes it anew, to be read as text.
"""

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
import unittest
from pathlib import Path

import pyte

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from servers import binary  # noqa: E402

HERE = Path(__file__).resolve().parent
#: Longest wait for one text, seconds; only to end a hang.
PATIENCE = 60
COLUMNS, LINES = 78, 40
TAB, ENTER, UP, CTRL_C, CTRL_D = "\t", "\r", "\x1b[A", "\x03", "\x04"


class Screen(pyte.Screen):
    """A screen that answers where its cursor is."""

    answer = None

    def write_process_input(self, data):
        self.answer(data.encode())


class Person:
    """Somebody who types at `ropewalk sql`."""

    def __init__(self, place, **environment):
        self.screen = Screen(COLUMNS, LINES)
        self.screen.answer = lambda data: os.write(self.terminal, data)
        self.stream = pyte.ByteStream(self.screen)
        environment = {"HOME": str(place), "TERM": "xterm-256color", "ROPEWALK_HISTORY": str(place / "history"), **environment}
        if not (place / "db").exists():
            subprocess.run([binary(), "--at", place / "db", "init"], check=True, stdout=subprocess.DEVNULL)
        self.process, self.terminal = pty.fork()
        if self.process == 0:
            # As behind nohup: a terminal that goes away is no end by itself.
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
            os.chdir(place)
            os.execve(binary(), ["ropewalk", "--at", "db", "sql"], environment)
        fcntl.ioctl(self.terminal, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))

    def shown(self):
        """The screen as text."""
        return "\n".join(line.rstrip() for line in self.screen.display).rstrip()

    def until(self, is_there):
        """Reads until `is_there` is content with the screen."""
        end = time.monotonic() + PATIENCE
        while not is_there(self.shown()):
            if time.monotonic() > end:
                raise TimeoutError(f"not there after {PATIENCE} s:\n{self.shown()}")
            if select.select([self.terminal], [], [], 0.1)[0]:
                try:
                    self.stream.feed(os.read(self.terminal, 65536))
                except OSError:
                    return
        return

    def types(self, keys):
        os.write(self.terminal, keys.encode())

    def says(self, text, prompts, prompt="ropewalk> "):
        """Types a text, then Enter, until there is the n-th prompt."""
        self.types(text + ENTER)
        self.until(lambda shown: shown.count(prompt.strip()) >= prompts and shown.endswith(prompt.strip()))

    def leaves(self):
        """Reads what is left and answers the exit code."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            if select.select([self.terminal], [], [], 0.1)[0]:
                try:
                    self.stream.feed(os.read(self.terminal, 65536))
                    continue
                except OSError:
                    pass
            done, status = os.waitpid(self.process, os.WNOHANG)
            if done:
                os.close(self.terminal)
                return os.waitstatus_to_exitcode(status)
        os.kill(self.process, signal.SIGKILL)
        raise TimeoutError(self.shown())

    def goes(self):
        """Takes the terminal away and waits until the program has ended."""
        os.close(self.terminal)
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            if os.waitpid(self.process, os.WNOHANG)[0]:
                return
            time.sleep(0.05)
        os.kill(self.process, signal.SIGKILL)
        os.waitpid(self.process, 0)
        raise TimeoutError("it goes on without a terminal")


class Prompt(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        directory = tempfile.TemporaryDirectory(prefix="ropewalk-prompt-")
        self.addCleanup(directory.cleanup)
        self.place = Path(directory.name)

    def asked(self, sql):
        """What a statement answers, as CSV."""
        command = [binary(), "--at", self.place / "db", "--mode", "csv", "sql", "-c", sql]
        return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout

    def golden(self, name, shown):
        """Compares with, or writes, one screen of screens.txt."""
        path = HERE / "screens.txt"
        kept = dict(part.split("\n", 1) for part in path.read_text().split("=== ")[1:]) if path.exists() else {}
        if os.environ.get("UPDATE"):
            kept[name] = shown + "\n\n"
            path.write_text("".join(f"=== {name}\n{text}" for name, text in sorted(kept.items())))
        self.assertEqual(kept.get(name, "").rstrip("\n"), shown)

    def test_statements_over_lines(self):
        person = Person(self.place)
        person.until(lambda shown: shown.endswith("ropewalk>"))
        person.says("CREATE TABLE users (id int PRIMARY KEY, name text);", 2)
        person.types("INSERT INTO users" + ENTER)
        person.until(lambda shown: shown.endswith("…"))
        person.says("VALUES (1, 'Ann;'), (2, 'Bob');", 3)
        person.says("BEGIN;", 1, "ropewalk*>")
        person.says("SELECT 1 / 0;", 1, "ropewalk!>")
        person.says("ROLLBACK;", 4)
        person.says("SELECT * FROM users; SELECT count(*) FROM users;", 5)
        person.says("\\dt", 6)
        person.types("SELECT 'begun" + ENTER)
        person.until(lambda shown: shown.endswith("…"))
        person.types(CTRL_C)
        person.until(lambda shown: shown.endswith("ropewalk>"))
        person.types(CTRL_D)
        self.assertEqual(person.leaves(), 0)
        self.golden("statements over lines", person.shown())

    def test_completion(self):
        person = Person(self.place)
        person.until(lambda shown: shown.endswith("ropewalk>"))
        person.says("CREATE TABLE customers (id int PRIMARY KEY, surname text);", 2)
        person.types("SELECT c.sur" + "\x1b[D" * 8)
        person.types("\x01\x0b")
        person.types("select c.surname from cust" + TAB)
        person.until(lambda shown: shown.endswith("from customers"))
        person.says(" c where c.su" + TAB + " is null;", 3)
        person.types("\\d cu" + TAB)
        person.until(lambda shown: shown.endswith("\\d customers"))
        person.says("", 4)
        person.types("SELECT * FROM customers WHERE id I" + TAB)
        person.until(lambda shown: "initcap" in shown)
        self.golden("a menu of words", person.shown())
        person.types(CTRL_C)
        person.until(lambda shown: shown.endswith("ropewalk>"))
        person.types(".quit" + ENTER)
        self.assertEqual(person.leaves(), 0)

    def test_colours(self):
        person = Person(self.place)
        person.until(lambda shown: shown.endswith("ropewalk>"))
        person.types("SELECT 'text', 12 FROM t -- so")
        person.until(lambda shown: shown.endswith("-- so"))
        line = person.screen.buffer[person.screen.cursor.y]
        begin = len("ropewalk> ")
        colours = [line[begin + column].fg for column in (0, 7, 15, 18, 23, 25)]
        self.assertEqual(colours, ["blue", "green", "cyan", "blue", "default", "brightblack"])
        person.types(CTRL_C)
        person.until(lambda shown: shown.endswith("ropewalk>"))
        person.types(CTRL_D)
        self.assertEqual(person.leaves(), 0)

    def test_history_lasts(self):
        person = Person(self.place)
        person.until(lambda shown: shown.endswith("ropewalk>"))
        person.says("SELECT 41 + 1\r   AS answer;", 2)
        person.types("\\q" + ENTER)
        self.assertEqual(person.leaves(), 0)
        self.assertEqual((self.place / "history").stat().st_mode & 0o777, 0o600)
        person = Person(self.place)
        person.until(lambda shown: shown.endswith("ropewalk>"))
        person.types(UP + UP)
        person.until(lambda shown: shown.endswith("AS answer;"))
        person.says("", 2)
        self.golden("a statement of the history", person.shown().split("\n", 1)[1])
        person.types(CTRL_D)
        self.assertEqual(person.leaves(), 0)

    def test_ctrl_c_ends_the_statement_and_not_the_program(self):
        person = Person(self.place)
        person.until(lambda shown: shown.endswith("ropewalk>"))
        person.types("SELECT count(*) FROM generate_series(1, 100000000) a, generate_series(1, 100000000) b;" + ENTER)
        person.until(lambda shown: "Ctrl-C cancels" in shown)
        person.types(CTRL_C)
        person.until(lambda shown: "57014" in shown and shown.endswith("ropewalk>"))
        person.says("SELECT 7 AS seven;", 3)
        self.assertIn("(1 row)", person.shown())
        person.types(CTRL_D)
        self.assertEqual(person.leaves(), 0)

    def test_a_terminal_that_can_do_nothing(self):
        person = Person(self.place, TERM="dumb")
        person.until(lambda shown: shown.endswith("ropewalk>"))
        person.says("SELECT 1 AS one;", 2)
        person.types(".quit" + ENTER)
        self.assertEqual(person.leaves(), 0)
        self.assertFalse((self.place / "history").exists())

    def test_it_ends_with_its_terminal(self):
        for terminal, begun in [("xterm-256color", ""), ("xterm-256color", "BEGIN; INSERT INTO t VALUES (2);"), ("dumb", "")]:
            with self.subTest(terminal, begun=begun):
                person = Person(self.place, TERM=terminal)
                person.until(lambda shown: shown.endswith("ropewalk>"))
                person.says("CREATE TABLE IF NOT EXISTS t (id int PRIMARY KEY);", 2)
                if begun:
                    person.says(begun, 1, "ropewalk*>")
                person.goes()
                self.assertEqual(self.asked("SELECT count(*) FROM t"), "count\n0\n")

    def test_a_statement_is_finished_when_the_terminal_goes(self):
        person = Person(self.place)
        person.until(lambda shown: shown.endswith("ropewalk>"))
        person.says("CREATE TABLE t (id int PRIMARY KEY);", 2)
        person.types("INSERT INTO t SELECT CASE WHEN pg_sleep(3) IS NULL THEN 1 ELSE 2 END;" + ENTER)
        person.until(lambda shown: "Ctrl-C cancels" in shown)
        person.goes()
        self.assertEqual(self.asked("SELECT count(*) FROM t"), "count\n1\n")


if __name__ == "__main__":
    unittest.main()
