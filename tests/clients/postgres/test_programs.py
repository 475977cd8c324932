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


#: Of everything that a dump has to bring back something.
SHOP = r"""
    CREATE TABLE authors (id serial PRIMARY KEY, name varchar(60) NOT NULL UNIQUE, born date,
        CONSTRAINT authors_named CHECK (name <> ''));
    CREATE TABLE books (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, title text NOT NULL, price numeric(8,2) DEFAULT 0 NOT NULL,
        printed timestamptz DEFAULT now(), author_id integer NOT NULL REFERENCES authors (id) ON DELETE CASCADE, tags text[],
        CONSTRAINT books_price CHECK (price >= 0));
    CREATE INDEX books_author ON books (author_id);
    CREATE UNIQUE INDEX books_title ON books (lower(title)) WHERE price > 0;
    CREATE INDEX books_two ON books (price DESC, printed DESC NULLS LAST);
    CREATE TABLE "Odd ""one" ("select" integer, b boolean DEFAULT true, r real DEFAULT 1.5, d double precision,
        u uuid DEFAULT gen_random_uuid(), y bytea, j json, t time, ts timestamp, sm smallint, c text DEFAULT 'it''s');
    CREATE VIEW dear AS SELECT b.title, a.name FROM books b JOIN authors a ON a.id = b.author_id WHERE b.price > 10;
    CREATE SEQUENCE tickets START WITH 100 INCREMENT BY 5 MAXVALUE 1000 CYCLE;
    COMMENT ON TABLE books IS 'what is on the shelves';
    COMMENT ON COLUMN books.tags IS 'words; it''s free';
    INSERT INTO authors (name, born) VALUES ('Ann', '1970-01-02'), ('Böb', NULL);
    INSERT INTO books (title, price, printed, author_id, tags) VALUES ('One', 12.5, '2024-02-29 12:00Z', 1, '{a,"b c",NULL}'),
        (E'Two\tx\\', 0, NULL, 2, NULL);
    INSERT INTO "Odd ""one" ("select", u, y, j) VALUES (1, '00112233-4455-6677-8899-aabbccddeeff', '\x00ff', '{"a": 1}');
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

    def dumped(self, *options):
        """What pg_dump writes, without comments and its random key."""
        said, code = self.program("pg_dump", *options)
        self.assertEqual(code, 0, said)
        return [line for line in said.splitlines() if line and not line.startswith(("--", "\\restrict", "\\unrestrict"))]

    def test_pg_dump(self):
        if shutil.which("pg_dump") is None:
            self.skipTest("pg_dump is not installed")
        with Server(binary(), listen="off", options=["--postgres-listen", "127.0.0.1:0"]) as first:
            self.host, self.port = first.postgres.rsplit(":", 1)
            said, code = self.psql("-q", stdin=SHOP)
            self.assertEqual((said, code), ("", 0))
            schema = self.dumped("--schema-only", "--no-owner")
        self.assertIn("CREATE TABLE public.books (", schema)
        with Server(binary(), listen="off", options=["--postgres-listen", "127.0.0.1:0"]) as second:
            self.host, self.port = second.postgres.rsplit(":", 1)
            said, code = self.psql("-q", stdin="\n".join(schema))
            self.assertEqual(code, 0, said)
            self.assertEqual(self.dumped("--schema-only", "--no-owner"), schema)

    def test_pg_isready(self):
        said, code = self.program("pg_isready")
        self.assertEqual(code, 0, said)
        self.assertTrue(re.search("accepting connections", said), said)


if __name__ == "__main__":
    unittest.main()
