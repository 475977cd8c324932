"""PostgreSQL's own programs against `ropewalk serve --postgres-listen`: psql and its like, of any version that is here.

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

    def test_pg_isready(self):
        said, code = self.program("pg_isready")
        self.assertEqual(code, 0, said)
        self.assertTrue(re.search("accepting connections", said), said)


if __name__ == "__main__":
    unittest.main()
