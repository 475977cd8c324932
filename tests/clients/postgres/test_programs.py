"""PostgreSQL's own programs against `ropewalk serve --postgres-listen`: psql and pgbench, of any version that is here.

What is not installed is skipped, and said so.
"""

import re
import shutil
import subprocess
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from servers import Server, binary  # noqa: E402

#: Longest time of one program, seconds; only to end a hang.
PATIENCE = 120

#: pgbench's tables at scale 1, made by statements of ours; its own are those of PostgreSQL.
TABLES = """
CREATE TABLE pgbench_branches (bid int PRIMARY KEY, bbalance int, filler text);
CREATE TABLE pgbench_tellers (tid int PRIMARY KEY, bid int, tbalance int, filler text);
CREATE TABLE pgbench_accounts (aid int PRIMARY KEY, bid int, abalance int, filler text);
CREATE TABLE pgbench_history (id bigserial PRIMARY KEY, tid int, bid int, aid int, delta int, mtime timestamp, filler text);
INSERT INTO pgbench_branches VALUES (1, 0, NULL);
"""


class Programs(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server(binary(), options=["--postgres-listen", "127.0.0.1:0"])
        cls.host, cls.port = cls.server.postgres.rsplit(":", 1)

    @classmethod
    def tearDownClass(cls):
        assert cls.server.stop()

    def program(self, name, *arguments, stdin=None):
        """Runs a program; answers what it said on both outputs, and whether it was content."""
        path = shutil.which(name)
        if path is None:
            self.skipTest(f"{name} is not installed")
        run = subprocess.run(
            [path, "-h", self.host, "-p", self.port, "-U", "ann", *arguments],
            input=stdin, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=PATIENCE,
            env={"PGDATABASE": "ropewalk", "PATH": "/usr/bin:/bin", "PGCONNECT_TIMEOUT": "20"},
        )
        return run.stdout, run.returncode

    def psql(self, *arguments, stdin=None):
        return self.program("psql", "-X", "-v", "ON_ERROR_STOP=1", *arguments, stdin=stdin)

    def test_psql(self):
        script = """
            CREATE TABLE seats (id int PRIMARY KEY, taken_by text);
            BEGIN;
            INSERT INTO seats VALUES (1, 'ann'), (2, NULL);
            SAVEPOINT s;
            DELETE FROM seats;
            ROLLBACK TO s;
            COMMIT;
            SELECT * FROM seats ORDER BY id;
        """
        said, code = self.psql("-q", stdin=script)
        self.assertEqual(code, 0, said)
        self.assertEqual(said.split(), ["id", "|", "taken_by", "----+----------", "1", "|", "ann", "2", "|", "(2", "rows)"])
        said, code = self.psql("-At", "-c", "SELECT taken_by FROM seats WHERE id = 1")
        self.assertEqual((said, code), ("ann\n", 0))
        said, code = self.psql("-c", "SELECT 1/0")
        self.assertIn("ERROR:  division by zero", said)
        self.assertNotEqual(code, 0)
        said, code = self.psql("-v", "VERBOSITY=verbose", "-c", "INSERT INTO seats VALUES (1, 'bob')")
        self.assertIn("ERROR:  23505", said)
        said, code = self.psql("-At", "-v", "FETCH_COUNT=0", "-c", "\\conninfo")
        self.assertEqual(code, 0, said)

    def test_pgbench(self):
        said, code = self.psql("-q", "-c", TABLES)
        self.assertEqual(code, 0, said)
        rows = ["INSERT INTO pgbench_tellers VALUES " + ",".join(f"({n}, 1, 0, NULL)" for n in range(1, 11)) + ";"]
        for start in range(1, 100_001, 10_000):
            values = ",".join(f"({n}, 1, 0, '')" for n in range(start, start + 10_000))
            rows.append(f"INSERT INTO pgbench_accounts VALUES {values};")
        said, code = self.psql("-q", stdin="\n".join(rows))
        self.assertEqual(code, 0, said)
        for mode in ["simple", "extended", "prepared"]:
            for script in ["select-only", "tpcb-like", "simple-update"]:
                with self.subTest(mode=mode, script=script):
                    said, code = self.program(
                        "pgbench", "-n", "-M", mode, "-b", script, "-c", "4", "-j", "2", "-t", "25", "--max-tries=1000"
                    )
                    self.assertEqual(code, 0, said)
                    self.assertIn("number of transactions actually processed: 100/100", said)
        sums = "SELECT (SELECT sum({0}balance) FROM pgbench_{1}) - (SELECT sum(delta) FROM pgbench_history)"
        # simple-update changes accounts alone.
        self.assertEqual(self.psql("-At", "-c", sums.format("a", "accounts"))[0], "0\n")
        branches, tellers = (
            self.psql("-At", "-c", f"SELECT sum({column}) FROM pgbench_{table}")[0]
            for column, table in [("bbalance", "branches"), ("tbalance", "tellers")]
        )
        self.assertEqual(branches, tellers)

    def test_pg_isready(self):
        said, code = self.program("pg_isready")
        self.assertEqual(code, 0, said)
        self.assertTrue(re.search("accepting connections", said), said)


if __name__ == "__main__":
    unittest.main()
