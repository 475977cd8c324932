"""What goes over the wire beside rows: COPY, notifications, cancelling, many connections; and pgbench from its own tables on.

psycopg 3 and pgbench as they come; pgbench is skipped, and said so, where it is not installed.
"""

import csv
import io
import os
import resource
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import unittest
from pathlib import Path

import psycopg
from psycopg import errors

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from servers import WithPostgres  # noqa: E402

#: Longest time of one program, seconds; only to end a hang.
PATIENCE = 180
#: Columns of every kind of text, number and time, and rows with what is hard to write.
COLUMNS = "id bigint PRIMARY KEY, t text, n numeric, d double precision, at timestamptz, y bytea, a integer[]"
TYPES = ["int8", "text", "numeric", "float8", "timestamptz", "bytea", "int4[]"]
MAKE = f"CREATE TABLE copied ({COLUMNS})"


class Wire(WithPostgres, unittest.TestCase):
    @classmethod
    def connect(cls, **options):
        options = {"user": "ann", "dbname": "ropewalk", "autocommit": True} | options
        return psycopg.connect(host=cls.host, port=cls.port, connect_timeout=20, **options)

    @staticmethod
    def rows(count):
        from datetime import datetime, timedelta, timezone
        from decimal import Decimal

        start = datetime(1999, 12, 31, 23, 59, tzinfo=timezone.utc)
        hard = ["plain", "tab\tand\nline", "back\\slash \\N", 'quo"te, comma', "", "häuser", None]
        for n in range(count):
            yield (
                n, hard[n % len(hard)], Decimal(n) / 8 if n % 5 else None, n / 3, start + timedelta(seconds=n),
                bytes([n % 256, 0, 255]), [n, None, -n] if n % 3 else [],
            )

    def test_copy_there_and_back(self):
        rows = list(self.rows(3000))
        with self.connect() as db:
            for form in ["", " (FORMAT binary)"]:
                db.execute("DROP TABLE IF EXISTS copied")
                db.execute(MAKE)
                with db.cursor() as cursor:
                    with cursor.copy(f"COPY copied FROM STDIN{form}") as copy:
                        copy.set_types(TYPES)
                        for row in rows:
                            copy.write_row(row)
                    self.assertEqual(cursor.statusmessage, "COPY 3000")
                    with cursor.copy(f"COPY (SELECT * FROM copied ORDER BY id) TO STDOUT{form}") as copy:
                        copy.set_types(TYPES)
                        self.assertEqual(list(copy.rows()), rows)
                self.assertEqual(db.execute("SELECT * FROM copied ORDER BY id").fetchall(), rows)
            out = io.BytesIO()
            with db.cursor().copy("COPY (SELECT id, t FROM copied ORDER BY id) TO STDOUT (FORMAT csv, HEADER)") as copy:
                for piece in copy:
                    out.write(piece)
            read = list(csv.reader(io.StringIO(out.getvalue().decode(), newline="")))
            self.assertEqual(read[0], ["id", "t"])
            self.assertEqual(read[1:], [[str(row[0]), row[1] or ""] for row in rows])
            db.execute("DROP TABLE copied")

    def test_a_copy_that_does_not_end_well_leaves_nothing(self):
        with self.connect() as db:
            db.execute("CREATE TABLE partly (id int PRIMARY KEY, t text)")
            with self.assertRaises(ZeroDivisionError), db.cursor().copy("COPY partly FROM STDIN") as copy:
                copy.write_row((1, "x"))
                raise ZeroDivisionError
            with self.assertRaises(errors.InvalidTextRepresentation), db.cursor().copy("COPY partly FROM STDIN") as copy:
                copy.write("1\tone\nx\ttwo\n")
            with self.assertRaises(errors.UniqueViolation), db.cursor().copy("COPY partly FROM STDIN") as copy:
                copy.write("1\tone\n1\ttwo\n")
            self.assertEqual(db.execute("SELECT count(*) FROM partly").fetchone(), (0,))
            with self.connect(autocommit=False) as other:
                with other.cursor().copy("COPY partly FROM STDIN") as copy:
                    copy.write("1\tone\n")
                other.rollback()
            self.assertEqual(db.execute("SELECT count(*) FROM partly").fetchone(), (0,))

    def test_a_client_that_is_killed_in_a_copy(self):
        with self.connect() as db:
            db.execute("CREATE TABLE killed (id int PRIMARY KEY, t text)")
            script = (
                "import psycopg, sys\n"
                f"db = psycopg.connect(host={self.host!r}, port={self.port}, user='ann', dbname='ropewalk')\n"
                "with db.cursor().copy('COPY killed FROM STDIN') as copy:\n"
                "    for n in range(10_000_000):\n"
                "        copy.write(f'{n}\\t{\"x\" * 100}\\n')\n"
                "        if n == 50_000: print('under way', flush=True)\n"
            )
            child = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
            self.assertEqual(child.stdout.readline(), b"under way\n")
            os.kill(child.pid, signal.SIGKILL)
            child.wait()
            child.stdout.close()
            self.assertEqual(db.execute("SELECT count(*) FROM killed").fetchone(), (0,))
            db.execute("INSERT INTO killed VALUES (1, 'there is room')")

    def test_notifications(self):
        with self.connect() as ann, self.connect() as bob:
            ann.execute("LISTEN shop")
            with bob.transaction():
                bob.execute("NOTIFY shop, 'sold'")
                bob.execute("SELECT pg_notify('shop', %s)", (f"by {bob.info.backend_pid}",))
                with self.assertRaises(ZeroDivisionError), bob.transaction():
                    bob.execute("NOTIFY shop, 'never'")
                    raise ZeroDivisionError
            heard = [found.payload for found in ann.notifies(timeout=30, stop_after=2)]
            self.assertEqual(heard, ["sold", f"by {bob.info.backend_pid}"])
            ann.execute("UNLISTEN shop")
            bob.execute("NOTIFY shop, 'late'")
            ann.execute("SELECT 1")
            self.assertEqual(list(ann.notifies(timeout=0)), [])

    def test_sleep_is_cancelled(self):
        with self.connect() as db:
            db.execute("SELECT pg_sleep(0.01)")
            timer = threading.Timer(0.2, db.cancel)
            timer.start()
            with self.assertRaises(errors.QueryCanceled):
                db.execute("SELECT pg_sleep(600)")
            timer.join()
            self.assertEqual(db.execute("SELECT 1").fetchone(), (1,))

    def test_a_thousand_connections(self):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if hard != resource.RLIM_INFINITY and hard < 2000:
            self.skipTest("too few files may be open")
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(4096, hard)) if hard > 0 else 4096, hard))
        with self.connect() as db:
            db.execute("CREATE TABLE crowd (id int PRIMARY KEY)")
            body = struct.pack(">i", 3 << 16) + b"user\0ann\0database\0ropewalk\0\0"
            clients = []
            try:
                for _ in range(1000):
                    client = socket.create_connection((self.host, self.port), timeout=60)
                    client.sendall(struct.pack(">i", len(body) + 4) + body)
                    clients.append(client)
                for client in clients:
                    self.assertEqual(self.until_ready(client)[0], b"R")
                for number, client in enumerate(clients):
                    sql = f"INSERT INTO crowd VALUES ({number})\0".encode()
                    client.sendall(b"Q" + struct.pack(">i", len(sql) + 4) + sql)
                for client in clients:
                    self.assertEqual(self.until_ready(client)[0], b"C")
            finally:
                for client in clients:
                    client.close()
            self.assertEqual(db.execute("SELECT count(*) FROM crowd").fetchone(), (1000,))

    @staticmethod
    def until_ready(client):
        """The tags of messages until the server is ready."""
        tags, waiting = [], b""
        while True:
            while len(waiting) < 5 or len(waiting) < 1 + struct.unpack(">i", waiting[1:5])[0]:
                piece = client.recv(1 << 16)
                if not piece:
                    raise EOFError(tags)
                waiting += piece
            length = 1 + struct.unpack(">i", waiting[1:5])[0]
            tags.append(waiting[:1])
            waiting = waiting[length:]
            if tags[-1] == b"Z":
                return tags

    def pgbench(self, *arguments):
        path = shutil.which("pgbench") or shutil.which("pgbench", path="/usr/lib/postgresql/15/bin")
        if path is None:
            self.skipTest("pgbench is not installed")
        run = subprocess.run(
            [path, "-h", self.host, "-p", str(self.port), "-U", "ann", *arguments],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=PATIENCE,
            env={"PGDATABASE": "ropewalk", "PATH": "/usr/bin:/bin", "PGCONNECT_TIMEOUT": "20"},
        )
        self.assertEqual(run.returncode, 0, run.stdout)
        return run.stdout

    def test_pgbench(self):
        """Its own tables, its own scripts, in all modes; balances are what the history says."""
        self.pgbench("-i", "-q")
        with self.connect() as db:
            counts = "SELECT (SELECT count(*) FROM pgbench_accounts), (SELECT count(*) FROM pgbench_tellers)"
            self.assertEqual(db.execute(counts).fetchone(), (100_000, 10))
            for mode in ["simple", "extended", "prepared"]:
                for script in ["select-only", "tpcb-like", "simple-update"]:
                    with self.subTest(mode=mode, script=script):
                        said = self.pgbench(
                            "-n", "-M", mode, "-b", script, "-c", "4", "-j", "2", "-t", "25", "--max-tries=1000"
                        )
                        self.assertIn("number of transactions actually processed: 100/100", said)
            history, accounts, tellers, branches = (
                db.execute(f"SELECT sum({column}) FROM pgbench_{table}").fetchone()[0]
                for table, column in [
                    ("history", "delta"), ("accounts", "abalance"), ("tellers", "tbalance"), ("branches", "bbalance"),
                ]
            )
            # simple-update changes accounts alone.
            self.assertEqual(accounts, history)
            self.assertEqual(tellers, branches)
            self.assertEqual(db.execute("SELECT count(*) FROM pgbench_history").fetchone(), (600,))


if __name__ == "__main__":
    unittest.main()
