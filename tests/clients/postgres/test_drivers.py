"""psycopg 3 as it comes from its project, with its defaults, against `ropewalk serve --postgres-listen`.

What is tested is what an application does.
"""

import datetime
import decimal
import sys
import threading
import unittest
import uuid
from pathlib import Path

import psycopg
from psycopg import errors

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from servers import WithPostgres  # noqa: E402

#: A value of every type.
VALUES = {
    "b": ("boolean", True),
    "i2": ("smallint", -7),
    "i4": ("integer", 2**31 - 1),
    "i8": ("bigint", -(2**63)),
    "f4": ("real", 0.5),
    "f8": ("double precision", 1e300),
    "n": ("numeric(20,5)", decimal.Decimal("-12345.67890")),
    "t": ("text", "häuser 'and' \\ \n"),
    "y": ("bytea", b"\x00\xff\x01"),
    "d": ("date", datetime.date(1969, 12, 31)),
    "m": ("time", datetime.time(23, 59, 59, 999999)),
    "ts": ("timestamp", datetime.datetime(1999, 12, 31, 23, 59, 59, 500000)),
    "tz": ("timestamptz", datetime.datetime(2024, 2, 29, 12, 0, tzinfo=datetime.timezone.utc)),
    "iv": ("interval", datetime.timedelta(days=-3, hours=4, microseconds=5)),
    "u": ("uuid", uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")),
    "ia": ("integer[]", [1, None, 3]),
    "ta": ("text[]", ["a", "b c", "", "NULL", 'q"']),
}


class Psycopg(WithPostgres, unittest.TestCase):
    @classmethod
    def connect(cls, **options):
        options = {"user": "ann", "dbname": "ropewalk"} | options
        return psycopg.connect(host=cls.host, port=cls.port, connect_timeout=20, **options)

    def test_types_there_and_back_in_both_formats(self):
        columns = ", ".join(f"{name} {kind}" for name, (kind, _) in VALUES.items())
        names, marks = ", ".join(VALUES), ", ".join(["%s"] * len(VALUES))
        values = [value for _, value in VALUES.values()]
        with self.connect(autocommit=True) as db:
            db.execute(f"CREATE TABLE every_type (id integer PRIMARY KEY, {columns})")
            for number, mark in enumerate(["%s", "%t", "%b"]):
                marks = ", ".join([mark] * len(VALUES))
                db.execute(f"INSERT INTO every_type (id, {names}) VALUES ({number}, {marks})", values)
            db.execute("INSERT INTO every_type (id) VALUES (9)")
            for as_binary in [False, True]:
                rows = db.execute(
                    f"SELECT {names} FROM every_type WHERE id < 9 ORDER BY id", binary=as_binary
                ).fetchall()
                for row in rows:
                    self.assertEqual(list(row), values)
                nothing = db.execute(f"SELECT {names} FROM every_type WHERE id = 9", binary=as_binary).fetchone()
                self.assertEqual(set(nothing), {None})

    def test_transactions(self):
        with self.connect() as db, self.connect(autocommit=True) as other:
            other.execute("CREATE TABLE accounts (id integer PRIMARY KEY, balance integer NOT NULL)")
            with db.transaction():
                db.execute("INSERT INTO accounts VALUES (1, 100), (2, 0)")
                self.assertEqual(other.execute("SELECT count(*) FROM accounts").fetchone(), (0,))
            with self.assertRaises(ZeroDivisionError), db.transaction():
                db.execute("UPDATE accounts SET balance = 0")
                raise ZeroDivisionError
            with db.transaction():
                db.execute("UPDATE accounts SET balance = balance - 10 WHERE id = 1")
                with self.assertRaises(errors.UniqueViolation), db.transaction():
                    db.execute("INSERT INTO accounts VALUES (1, 1)")
                db.execute("UPDATE accounts SET balance = balance + 10 WHERE id = 2")
            rows = other.execute("SELECT * FROM accounts ORDER BY id").fetchall()
            self.assertEqual(rows, [(1, 90), (2, 10)])
            other.execute("DROP TABLE accounts")

    def test_prepared_and_pipelined(self):
        with self.connect(autocommit=True) as db:
            db.execute("CREATE TABLE numbers (id integer PRIMARY KEY, square bigint)")
            with db.cursor() as cursor:
                cursor.executemany("INSERT INTO numbers VALUES (%s, %s)", [(n, n * n) for n in range(200)])
            for n in range(20):
                row = db.execute("SELECT square FROM numbers WHERE id = %s", (n,), prepare=True).fetchone()
                self.assertEqual(row, (n * n,))
            with db.pipeline():
                found = [db.execute("SELECT square FROM numbers WHERE id = %s", (n,)) for n in range(50)]
            self.assertEqual([cursor.fetchone()[0] for cursor in found], [n * n for n in range(50)])
            with self.assertRaises(errors.UniqueViolation), db.pipeline():
                db.execute("INSERT INTO numbers VALUES (1000, 0)")
                db.execute("INSERT INTO numbers VALUES (1000, 0)")
            db.execute("DEALLOCATE ALL")
            db.execute("DROP TABLE numbers")

    def test_errors_have_their_classes(self):
        with self.connect(autocommit=True) as db:
            for sql, kind in [
                ("SELECT 1/0", errors.DivisionByZero),
                ("SELECT * FROM nowhere", errors.UndefinedTable),
                ("SELECT nothing", errors.UndefinedColumn),
                ("SELEC", errors.SyntaxError),
                ("SELECT 99999999999::integer", errors.NumericValueOutOfRange),
                ("SET nonsense = 1", errors.UndefinedObject),
            ]:
                with self.assertRaises(kind):
                    db.execute(sql)

    def test_two_that_meet(self):
        with self.connect() as one, self.connect() as two:
            one.execute("CREATE TABLE met (id integer PRIMARY KEY, n integer)")
            one.execute("INSERT INTO met VALUES (1, 0)")
            one.commit()
            one.execute("UPDATE met SET n = n + 1 WHERE id = 1")
            two.execute("UPDATE met SET n = n + 1 WHERE id = 1")
            one.commit()
            with self.assertRaises(errors.SerializationFailure):
                two.commit()
            two.rollback()
            self.assertEqual(two.execute("SELECT n FROM met").fetchone(), (1,))

    def test_cancel_and_time(self):
        with self.connect(autocommit=True) as db:
            db.execute("CREATE TABLE many (id integer PRIMARY KEY)")
            for start in range(0, 4000, 2000):
                values = ",".join(f"({n})" for n in range(start, start + 2000))
                db.execute(f"INSERT INTO many VALUES {values}")
            long = "SELECT count(*) FROM many a, many b, many c WHERE a.id + b.id + c.id < 0"
            timer = threading.Timer(0.3, db.cancel)
            timer.start()
            with self.assertRaises(errors.QueryCanceled):
                db.execute(long)
            timer.join()
            db.execute("SET statement_timeout = '200ms'")
            with self.assertRaises(errors.QueryCanceled):
                db.execute(long)
            db.execute("SET statement_timeout = 0")
            self.assertEqual(db.execute("SELECT count(*) FROM many").fetchone(), (4000,))
            db.execute("DROP TABLE many")

    def test_cursors_of_the_server(self):
        with self.connect() as db:
            db.execute("CREATE TABLE many (id int PRIMARY KEY, word text)")
            db.execute("INSERT INTO many SELECT i, 'word ' || i FROM generate_series(1, 20000) AS s(i)")
            db.commit()
            with db.cursor("portions") as cursor:
                cursor.itersize = 700
                cursor.execute("SELECT id, word FROM many WHERE id > %s ORDER BY id", [100])
                self.assertEqual([c.name for c in cursor.description], ["id", "word"])
                self.assertEqual(sum(number for number, _ in cursor), sum(range(101, 20001)))
            with db.cursor("both ways", scrollable=True) as cursor:
                cursor.execute("SELECT id FROM many ORDER BY id")
                cursor.scroll(9999, mode="absolute")
                self.assertEqual(cursor.fetchmany(2), [(10000,), (10001,)])
                cursor.scroll(-3)
                self.assertEqual(cursor.fetchone(), (9999,))
                cursor.execute("SELECT 1")
                self.assertEqual(cursor.fetchall(), [(1,)])
            with db.cursor("forward", scrollable=False) as cursor:
                cursor.execute("SELECT id FROM many ORDER BY id")
                cursor.fetchone()
                with self.assertRaises(errors.ObjectNotInPrerequisiteState), db.transaction():
                    cursor.scroll(-1)
            held = db.cursor("held", withhold=True)
            held.execute("SELECT id FROM many ORDER BY id LIMIT 3", binary=True)
            db.commit()
            self.assertEqual(held.fetchall(), [(1,), (2,), (3,)])
            held.close()
            self.assertEqual(db.execute("SELECT count(*) FROM pg_cursors").fetchone(), (0,))
            db.execute("DROP TABLE many")

    def test_time_zones(self):
        from zoneinfo import ZoneInfo

        noon = datetime.datetime(2024, 7, 1, 12, tzinfo=datetime.timezone.utc)
        with self.connect(options="-c timezone=America/New_York") as db:
            self.assertEqual(db.info.parameter_status("TimeZone"), "America/New_York")
            for binary in (False, True):
                (at,) = db.execute("SELECT %t::timestamptz", [noon], binary=binary).fetchone()
                self.assertEqual((at, at.tzinfo), (noon, ZoneInfo("America/New_York")))
            self.assertEqual(db.execute("SELECT '2024-07-01 08:00'::timestamptz").fetchone(), (noon,))
            db.execute("SET TIME ZONE 'Asia/Tokyo'")
            self.assertEqual(db.info.parameter_status("TimeZone"), "Asia/Tokyo")
            query = "SELECT %t::timestamptz::text, %t::timestamptz::date, %t::timestamptz AT TIME ZONE 'UTC'"
            found = db.execute(query, [noon] * 3, prepare=True).fetchone()
            self.assertEqual(found, ("2024-07-01 21:00:00+09", datetime.date(2024, 7, 1), datetime.datetime(2024, 7, 1, 12)))
            db.execute("CREATE TABLE moments (at timestamptz, local timestamp DEFAULT localtimestamp)")
            with db.cursor().copy("COPY moments (at) FROM STDIN") as copy:
                copy.write("2024-07-01 21:00\n")
            with db.cursor().copy("COPY moments (at) TO STDOUT") as copy:
                self.assertEqual(b"".join(copy), b"2024-07-01 21:00:00+09\n")
            db.rollback()
            self.assertEqual(db.info.parameter_status("TimeZone"), "America/New_York")

    def test_what_the_connection_tells(self):
        with self.connect(application_name="shop") as db:
            self.assertEqual(db.info.parameter_status("application_name"), "shop")
            self.assertEqual(db.info.server_version // 10000, 15)
            self.assertEqual(db.info.encoding, "utf-8")
        with self.assertRaises(psycopg.OperationalError) as refused:
            self.connect(dbname="elsewhere")
        self.assertIn('database "elsewhere" does not exist', str(refused.exception))


if __name__ == "__main__":
    unittest.main()
