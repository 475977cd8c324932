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

import cluster  # noqa: E402
from servers import Server, binary  # noqa: E402

#: Longest time of one program, seconds; only to end a hang.
PATIENCE = 120


#: Of everything that a dump has to bring back something.
SHOP = r"""
    CREATE TYPE mood AS ENUM ('sad', 'it''s ok', 'happy');
    CREATE TABLE authors (id serial PRIMARY KEY, name varchar(60) NOT NULL UNIQUE, born date,
        CONSTRAINT authors_named CHECK (name <> ''));
    CREATE TABLE books (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, title text NOT NULL, price numeric(8,2) DEFAULT 0 NOT NULL,
        printed timestamptz DEFAULT now(), author_id integer NOT NULL REFERENCES authors (id) ON DELETE CASCADE, tags text[],
        CONSTRAINT books_price CHECK (price >= 0));
    CREATE INDEX books_author ON books (author_id);
    CREATE UNIQUE INDEX books_title ON books (lower(title)) WHERE price > 0;
    CREATE INDEX books_two ON books (price DESC, printed DESC NULLS LAST);
    CREATE TABLE "Odd ""one" ("select" integer, b boolean DEFAULT true, r real DEFAULT 1.5, d double precision,
        u uuid DEFAULT gen_random_uuid(), y bytea, j json, t time, ts timestamp, sm smallint, c text DEFAULT 'it''s',
        m mood DEFAULT 'happy', ms mood[], CONSTRAINT odd CHECK (m <> 'sad'));
    CREATE INDEX odd_moods ON "Odd ""one" (m);
    COMMENT ON TYPE mood IS 'how it is';
    CREATE VIEW dear AS SELECT b.title, a.name FROM books b JOIN authors a ON a.id = b.author_id WHERE b.price > 10;
    CREATE SEQUENCE tickets START WITH 100 INCREMENT BY 5 MAXVALUE 1000 CYCLE;
    COMMENT ON TABLE books IS 'what is on the shelves';
    COMMENT ON COLUMN books.tags IS 'words; it''s free';
    INSERT INTO authors (name, born) VALUES ('Ann', '1970-01-02'), ('Böb', NULL);
    INSERT INTO books (title, price, printed, author_id, tags) VALUES ('One', 12.5, '2024-02-29 12:00Z', 1, '{a,"b c",NULL}'),
        (E'Two\tx\\', 0, NULL, 2, NULL);
    INSERT INTO "Odd ""one" ("select", u, y, j, m, ms) VALUES (1, '00112233-4455-6677-8899-aabbccddeeff', '\x00ff', '{"a": 1}', 'it''s ok', '{happy,NULL}');
"""


#: Several schemas with tables of one name, and with what refers from one to another.
SCHEMAS = r"""
    CREATE SCHEMA sales;
    CREATE SCHEMA "Odd ""one";
    COMMENT ON SCHEMA sales IS 'what is sold';
    CREATE TYPE sales.state AS ENUM ('open', 'paid');
    CREATE TABLE public.people (id serial PRIMARY KEY, name varchar(20) NOT NULL);
    CREATE TABLE sales.people (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, person integer REFERENCES public.people (id) ON DELETE CASCADE,
        state sales.state DEFAULT 'open', seen timestamp(3) without time zone, since interval year to month, CHECK (person > 0));
    CREATE TABLE "Odd ""one".people (person bigint REFERENCES sales.people (id), state sales.state, UNIQUE (person));
    CREATE INDEX people_states ON sales.people (state, seen DESC);
    CREATE SEQUENCE sales.numbers START WITH 7;
    CREATE TABLE drawn (id bigint DEFAULT nextval('sales.numbers') PRIMARY KEY);
    CREATE VIEW sales.open AS SELECT sales.people.id, public.people.name FROM sales.people JOIN public.people ON sales.people.person = public.people.id
        WHERE sales.people.state = 'open';
    CREATE VIEW all_people AS SELECT p.name, o.id FROM public.people p JOIN sales.open o ON o.name = p.name;
    COMMENT ON VIEW sales.open IS 'not paid';
    INSERT INTO people (name) VALUES ('Ann'), ('Bob');
    INSERT INTO sales.people (person, seen, since) VALUES (1, '2024-02-29 12:00:00.12345', '14 months'), (2, NULL, NULL);
    INSERT INTO "Odd ""one".people VALUES (1, 'paid');
    INSERT INTO drawn DEFAULT VALUES;
"""

#: A value of every type, the empty, the least and the greatest ones among them.
EVERY_TYPE = r"""
    CREATE TABLE every_type (id integer PRIMARY KEY, b boolean, i2 smallint, i4 integer, i8 bigint, f4 real, f8 double precision,
        n numeric(20,5), m numeric, t text, v varchar(20), y bytea, d date, h time, ts timestamp, tz timestamptz, u uuid, j json, jb jsonb,
        ia integer[], ta text[], ba boolean[], na numeric[], da date[], ya bytea[]);
    INSERT INTO every_type VALUES
        (1, true, -32768, 2147483647, -9223372036854775808, 1.5, 1e300, -12345.67890, 1e-20, E'a\tb\nc\\d\re', 'häuser',
            '\x00ff01', '0044-03-15', '23:59:59.999999', '1999-12-31 23:59:59.5', '2024-02-29 12:00Z', '00112233-4455-6677-8899-aabbccddeeff',
            '{"a": [1, null]}', '{"b": 2, "a": "x"}', '{1,NULL,3}', E'{a,"b c","",NULL,"q\\"","{}","NULL"}', '{t,f}', '{1.50,NaN}', '{2024-01-01}',
            ARRAY['\x00'::bytea]),
        (2, NULL, NULL, NULL, NULL, 'NaN', 'Infinity', 'NaN', NULL, '', '', '', NULL, '00:00', NULL, NULL, NULL, 'null', 'null', '{}', '{}', NULL, NULL,
            NULL, NULL),
        (3, false, 0, 0, 0, -0.0, 0.1, 0, 0, E'\\.', E'\\N', '\x5c', '9999-12-31', NULL, '0001-01-01', '1900-01-01', NULL, '"\\n"', '[]', NULL, NULL, NULL,
            NULL, NULL, NULL);
"""

#: What has to be equal wherever the rows have gone.
CONTENTS = [
    "SELECT * FROM authors ORDER BY id",
    "SELECT id, title, price, printed AT TIME ZONE 'UTC', author_id, tags FROM books ORDER BY id",
    'SELECT * FROM "Odd ""one" ORDER BY 1',
    "SELECT * FROM dear ORDER BY 1",
    "SET timezone = 'UTC'; SELECT * FROM every_type ORDER BY id",
    "SELECT last_value, is_called FROM tickets",
    "SELECT last_value, is_called FROM books_id_seq",
    "SELECT nextval('authors_id_seq')",
]


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

    def at(self, server):
        """Programs speak to this server from now on: ours, or PostgreSQL's."""
        self.host, self.port = (server.host, server.port) if isinstance(server, cluster.Cluster) else server.postgres.rsplit(":", 1)

    @staticmethod
    def ours():
        return Server(binary(), listen="off", options=["--postgres-listen", "127.0.0.1:0"])

    def load(self, text):
        said, code = self.psql("-q", stdin=text)
        self.assertEqual(code, 0, said)
        return said

    def test_pg_dump_of_schemas(self):
        """Several schemas, from one server of ours to another, and to PostgreSQL."""
        if shutil.which("pg_dump") is None:
            self.skipTest("pg_dump is not installed")
        queries = ["SELECT * FROM sales.people ORDER BY id", "SELECT * FROM all_people", "SELECT nextval('sales.numbers')",
            "SELECT table_schema, table_name, column_name, data_type FROM information_schema.columns "
            "WHERE table_name IN ('people', 'drawn') AND table_schema <> 'pg_catalog' ORDER BY 1, 2, ordinal_position"]
        with self.ours() as first, self.ours() as second:
            self.at(first)
            self.load(SCHEMAS)
            schema, whole = self.dumped("--schema-only", "--no-owner"), self.dumped()
            self.assertIn("CREATE TABLE sales.people (", schema)
            self.assertIn("    seen timestamp(3) without time zone,", schema)
            self.assertIn("COMMENT ON SCHEMA sales IS 'what is sold';", schema)
            self.assertEqual([line for line in self.dumped("--schema=sales") if line.startswith("CREATE TABLE")], ["CREATE TABLE sales.people ("])
            self.at(second)
            self.load("\n".join(whole))
            self.assertEqual(self.dumped("--schema-only", "--no-owner"), schema)
            self.assertEqual(self.dumped(), whole)
            answers = [self.psql("-At", "-c", query) for query in queries]
        if cluster.is_installed():
            with cluster.Cluster() as theirs:
                self.at(theirs)
                self.load("\n".join(line for line in whole if not line.startswith("CREATE SCHEMA public")))
                self.assertEqual([self.psql("-At", "-c", query) for query in queries], answers)

    def test_pg_dump_with_rows(self):
        """Rows and what sequences have reached, from one server of ours to another."""
        if shutil.which("pg_dump") is None:
            self.skipTest("pg_dump is not installed")
        with self.ours() as first, self.ours() as second:
            self.at(first)
            self.load(SHOP + "SELECT nextval('tickets'), nextval('tickets'); SELECT setval('authors_id_seq', 40, false);")
            dump = self.dumped()
            self.assertIn("SELECT pg_catalog.setval('public.authors_id_seq', 40, false);", dump)
            self.assertIn("SELECT pg_catalog.setval('public.tickets', 105, true);", dump)
            self.assertIn("COPY public.books (id, title, price, printed, author_id, tags) FROM stdin;", dump)
            self.assertIn("ALTER TABLE public.books OWNER TO ann;", dump)
            authors = self.dumped("--table=authors", "--data-only")
            self.assertEqual([line for line in authors if line.startswith("COPY")], ["COPY public.authors (id, name, born) FROM stdin;"])
            without = self.dumped("--exclude-table=books", "--exclude-table=dear")
            self.assertFalse([line for line in without if "books" in line.split("--")[0]], without)
            self.at(second)
            self.load("\n".join(dump))
            self.assertEqual(self.dumped(), dump)
            said, _ = self.psql("-qAt", "-c", "INSERT INTO authors (name) VALUES ('Cy') RETURNING id; SELECT nextval('tickets')")
            self.assertEqual(said.split(), ["40", "110"])

    def test_pg_dump_as_inserts(self):
        """Rows as INSERT, which pg_dump fetches by a cursor."""
        if shutil.which("pg_dump") is None:
            self.skipTest("pg_dump is not installed")
        with self.ours() as first, self.ours() as second:
            self.at(first)
            self.load(SHOP)
            plain, inserts = self.dumped(), self.dumped("--inserts")
            self.assertTrue([line for line in inserts if line.startswith("INSERT INTO public.authors VALUES")])
            self.at(second)
            self.load("\n".join(inserts))
            self.assertEqual(self.dumped(), plain)
            self.assertEqual(self.dumped("--column-inserts", "--rows-per-insert=2")[:3], plain[:3])

    def test_there_and_back(self):
        """Everything from us to PostgreSQL 15, and from there back to us."""
        if not cluster.is_installed():
            self.skipTest("PostgreSQL 15 is not installed")
        with self.ours() as first, self.ours() as second, cluster.Cluster() as theirs:
            self.at(first)
            self.load(SHOP + EVERY_TYPE)
            first_dump = self.dumped()
            self.at(theirs)
            self.load("\n".join(line for line in first_dump if not line.startswith("CREATE SCHEMA public")))
            their_dump = self.dumped()
            self.at(second)
            said = self.load("\n".join(their_dump))
            self.assertNotIn("ERROR", said)
            for query in CONTENTS:
                answers = []
                for server in (first, theirs, second):
                    self.at(server)
                    said, code = self.psql("-At", "-c", query)
                    self.assertEqual(code, 0, said)
                    answers.append(said)
                self.assertEqual(answers[0], answers[1], query)
                self.assertEqual(answers[0], answers[2], query)

    def test_pg_isready(self):
        said, code = self.program("pg_isready")
        self.assertEqual(code, 0, said)
        self.assertTrue(re.search("accepting connections", said), said)


if __name__ == "__main__":
    unittest.main()
