"""SQL: placeholders, types, rows."""

from __future__ import annotations

import datetime as dt
import unittest
import uuid
from dataclasses import dataclass
from decimal import Decimal

import ropewalk
from ropewalk import Json
from ropewalk._sql import statement

from .support import Case


@dataclass
class Stock:
    sku: str
    n: int


class Placeholders(unittest.TestCase):
    def test_placeholders_are_numbered(self) -> None:
        for sql, params, expected in [
            ("a = %s, b = %s", [1, "x"], ("a = $1, b = $2", [1, "x"])),
            ("a = %(x)s OR b = %(x)s OR c = %(y)s", {"x": 1, "y": 2}, ("a = $1 OR b = $1 OR c = $2", [1, 2])),
            ("a LIKE '5%%' AND b = %s", [1], ("a LIKE '5%' AND b = $1", [1])),
            ("a = $1 AND b LIKE '%s'", [1], ("a = $1 AND b LIKE '%s'", [1])),
            ("a = '$1' AND b = %s", [1], ("a = '$1' AND b = $1", [1])),
            ("a LIKE '5%'", None, ("a LIKE '5%'", None)),
        ]:
            with self.subTest(sql):
                self.assertEqual(statement(sql, params), expected)  # type: ignore[arg-type]

    def test_parameters_that_do_not_fit_are_rejected(self) -> None:
        for sql, params in [("%s", []), ("%s", [1, 2]), ("%d", [1]), ("%(a)s", [1]), ("%s", {"a": 1}), ("%s", "ab")]:
            with self.subTest(sql, params=params), self.assertRaises(ValueError):
                statement(sql, params)  # type: ignore[arg-type]
        with self.assertRaises(KeyError):
            statement("%(a)s", {"b": 1})


class Sql(Case):
    def test_values_of_every_type_are_returned_as_they_were_sent(self) -> None:
        utc = dt.timezone.utc
        for kind, value in [
            ("int", 7),
            ("bigint", 2**62 + 1),
            ("numeric", Decimal("12345678901234567890.50")),
            ("numeric", 2**70),
            ("double precision", 1.25),
            ("double precision", float("inf")),
            ("text", "it's \\ \"q\" ß"),
            ("bool", True),
            ("bytea", b"\x00\xff"),
            ("uuid", uuid.UUID(int=5)),
            ("date", dt.date(2026, 2, 3)),
            ("time", dt.time(1, 2, 3, 500000)),
            ("timestamptz", dt.datetime(2026, 2, 3, 4, 5, 6, 700000, utc)),
            ("timestamp", dt.datetime(2026, 2, 3, 4, 5, 6)),
            ("jsonb", {"a": [1, None]}),
            ("int[]", [1, None, 3]),
            ("text[]", ["a,b", 'q"', "", "NULL", None, "\\", "{}"]),
            ("text[]", []),
            ("bool[]", [True, False]),
            ("numeric[]", [Decimal("1.5")]),
            ("int", None),
        ]:
            with self.subTest(kind, value=value):
                found = self.db.sql(f"SELECT %s::{kind} AS x", [value]).scalar()
                self.assertEqual(found, value)
                self.assertIs(type(found), type(value) if value != 2**70 else Decimal)
        self.assertEqual(self.db.sql("SELECT %s::jsonb", [Json([1, {"a": 2}])]).scalar(), [1, {"a": 2}])
        interval = self.db.sql("SELECT %s::interval", [dt.timedelta(days=1, seconds=5)]).scalar()
        self.assertEqual(interval, "1 day 00:00:05")

    def test_rows_have_names(self) -> None:
        result = self.db.sql("SELECT 'rope' AS sku, 3 AS n UNION ALL SELECT 'hook', 5 ORDER BY n")
        row = result[0]
        self.assertEqual((row, row.sku, row["n"], row[0], row[-1:]), (("rope", 3), "rope", 3, "rope", (3,)))
        self.assertEqual(result.dicts()[1], {"sku": "hook", "n": 5})
        self.assertEqual(result.as_(Stock), [Stock("rope", 3), Stock("hook", 5)])
        self.assertEqual([one.type for one in result.columns], ["text", "integer"])
        self.assertEqual((len(result), result.rowcount), (2, 2))
        with self.assertRaises(AttributeError):
            row.nothing
        with self.assertRaises(KeyError):
            row["nothing"]
        with self.assertRaises(ValueError):
            result.one()
        try:
            import pandas  # type: ignore[import-not-found,import-untyped,unused-ignore]  # noqa: F401
        except ImportError:
            return
        self.assertEqual(list(result.to_pandas()["n"]), [3, 5])

    def test_errors_have_sqlstate_and_constraint(self) -> None:
        self.db.sql(f"CREATE TABLE {self.name} (id int CONSTRAINT only_one PRIMARY KEY)")
        self.db.sql(f"INSERT INTO {self.name} VALUES (1)")
        with self.assertRaises(ropewalk.Error) as failed:
            self.db.sql(f"INSERT INTO {self.name} VALUES (1)")
        self.assertEqual((failed.exception.sqlstate, failed.exception.constraint), ("23505", "only_one"))
        with self.assertRaises(ropewalk.NotFound) as unknown:
            self.db.sql("SELECT * FROM nothing")
        self.assertEqual(unknown.exception.sqlstate, "42P01")

    def test_script_returns_a_result_for_each_statement(self) -> None:
        script = f"CREATE TABLE {self.name} (id int); INSERT INTO {self.name} VALUES (1), (2)"
        self.assertEqual([one.rowcount for one in self.db.script(script)], [-1, 2])
