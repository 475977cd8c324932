"""The DB-API driver."""

from __future__ import annotations

import threading

from ropewalk import dbapi

from .support import Case


class DbApi(Case):
    def setUp(self) -> None:
        super().setUp()
        self.session = self.connection()
        self.addCleanup(self.session.close)
        self.db.sql(f"CREATE TABLE {self.name} (id int PRIMARY KEY, text text, amount numeric)")

    def rows(self) -> int:
        found: int = self.db.sql(f"SELECT count(*) FROM {self.name}").scalar()
        return found

    def test_module_has_what_pep_249_requires(self) -> None:
        self.assertEqual((dbapi.apilevel, dbapi.threadsafety, dbapi.paramstyle), ("2.0", 2, "pyformat"))
        for kind in (dbapi.DataError, dbapi.OperationalError, dbapi.IntegrityError, dbapi.NotSupportedError):
            self.assertTrue(issubclass(kind, dbapi.DatabaseError) and issubclass(kind, dbapi.Error))
        self.assertTrue(issubclass(dbapi.InterfaceError, dbapi.Error))
        self.assertTrue("bigint" == dbapi.NUMBER and dbapi.NUMBER != "text" and "text" == dbapi.STRING)
        self.assertIsNotNone(dbapi.TimestampFromTicks(0))

    def test_cursor_describes_and_fetches_rows(self) -> None:
        cursor = self.session.cursor()
        rows = [(n, f"t{n}", "1.5") for n in range(2500)]
        self.assertEqual(cursor.executemany(f"INSERT INTO {self.name} VALUES (%s, %s, %s)", rows).rowcount, 2500)
        self.assertIsNone(cursor.description)
        cursor.execute(f"SELECT id, text, amount FROM {self.name} WHERE id < %(most)s ORDER BY id", {"most": 10})
        assert cursor.description is not None
        columns = [one[:2] for one in cursor.description]
        self.assertEqual(columns, [("id", "integer"), ("text", "text"), ("amount", "numeric")])
        self.assertEqual(cursor.description[2][1], dbapi.NUMBER)
        first = cursor.fetchone()
        assert first is not None
        self.assertEqual((first, first.text, cursor.rowcount), ((0, "t0", first.amount), "t0", 10))
        cursor.arraysize = 3
        self.assertEqual([row.id for row in cursor.fetchmany()], [1, 2, 3])
        self.assertEqual([row.id for row in cursor.fetchmany(2)], [4, 5])
        self.assertEqual([row.id for row in cursor], [6, 7, 8, 9])
        self.assertEqual((cursor.fetchone(), cursor.fetchall()), (None, []))
        self.assertEqual(cursor.execute(f"UPDATE {self.name} SET text = 'x' WHERE id < $1", [5]).rowcount, 5)
        with self.assertRaises(dbapi.ProgrammingError):
            cursor.fetchone()
        cursor.close()
        with self.assertRaises(dbapi.InterfaceError):
            cursor.execute("SELECT 1")

    def test_transaction_is_visible_after_commit_only(self) -> None:
        cursor = self.session.cursor()
        cursor.execute(f"INSERT INTO {self.name} (id) VALUES (1)")
        self.assertEqual(self.rows(), 0)
        self.session.commit()
        self.assertEqual(self.rows(), 1)
        cursor.execute(f"INSERT INTO {self.name} (id) VALUES (2)")
        self.session.rollback()
        self.assertEqual(self.rows(), 1)
        with self.assertRaises(ZeroDivisionError), self.session:
            cursor.execute(f"DELETE FROM {self.name}")
            raise ZeroDivisionError
        with self.session:
            cursor.execute(f"INSERT INTO {self.name} (id) VALUES (3)")
        self.assertEqual(self.rows(), 2)

    def test_autocommit_commits_each_statement(self) -> None:
        self.session.autocommit = True
        self.session.cursor().execute(f"INSERT INTO {self.name} (id) VALUES (1)")
        with self.assertRaises(dbapi.IntegrityError):
            self.session.cursor().executemany(f"INSERT INTO {self.name} (id) VALUES (%s)", [(2,), (1,)])
        self.assertEqual(self.rows(), 1)
        self.session.cursor().executemany(f"INSERT INTO {self.name} (id) VALUES (%s)", [(2,), (3,)])
        self.assertEqual(self.rows(), 3)

    def test_errors_follow_the_sqlstate(self) -> None:
        for sql, kind, state in [
            ("SELEC 1", dbapi.ProgrammingError, "42601"),
            ("SELECT * FROM nothing", dbapi.ProgrammingError, "42P01"),
            ("SELECT 1 / 0", dbapi.DataError, "22012"),
            (f"INSERT INTO {self.name} VALUES (1), (1)", dbapi.IntegrityError, "23505"),
        ]:
            with self.subTest(sql), self.assertRaises(kind) as failed:
                self.session.cursor().execute(sql)
            self.assertEqual(failed.exception.sqlstate, state)
            with self.assertRaises(dbapi.InternalError) as aborted:
                self.session.cursor().execute("SELECT 1")
            self.assertEqual(aborted.exception.sqlstate, "25P02")
            self.session.rollback()
        with self.assertRaises(dbapi.ProgrammingError):
            self.session.cursor().execute("SELECT %s", [])

    def test_conflict_is_an_operational_error(self) -> None:
        self.db.sql(f"INSERT INTO {self.name} (id, amount) VALUES (1, 0)")
        cursor = self.session.cursor()
        cursor.execute(f"UPDATE {self.name} SET amount = amount + 1")
        self.db.sql(f"UPDATE {self.name} SET amount = amount + 1")
        with self.assertRaises(dbapi.OperationalError) as failed:
            self.session.commit()
        self.assertEqual(failed.exception.sqlstate, "40001")
        cursor.execute(f"UPDATE {self.name} SET amount = amount + 1")
        self.session.commit()

    def test_threads_share_a_connection(self) -> None:
        def insert(first: int) -> None:
            for n in range(first, first + 20):
                self.session.cursor().execute(f"INSERT INTO {self.name} (id) VALUES (%s)", [n])

        threads = [threading.Thread(target=insert, args=[n * 100]) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.session.commit()
        self.assertEqual(self.rows(), 80)

    def test_closed_connection_rolls_back_and_rejects_use(self) -> None:
        self.session.cursor().execute(f"INSERT INTO {self.name} (id) VALUES (1)")
        self.session.close()
        self.assertEqual(self.rows(), 0)
        with self.assertRaises(dbapi.InterfaceError):
            self.session.cursor()
