"""Results as Arrow."""

from __future__ import annotations

import datetime as dt
import gc
import importlib.util
import unittest
import uuid
from decimal import Decimal
from typing import Any

from support import Case

HAS_PYARROW = importlib.util.find_spec("pyarrow") is not None
TABLE = """CREATE TABLE t (
    id int PRIMARY KEY, small smallint, large bigint, r real, d double precision, b bool, s text, raw bytea,
    day date, clock time, at timestamp, zoned timestamptz, amount numeric(10, 2), free numeric, u uuid, j jsonb,
    list int[], span interval)"""
ROW = """({id}, 1, 2, 1.5, 2.5, true, 'text {id}', '\\x00ff', '2026-01-02', '03:04:05', '2026-01-02 03:04:05',
    '2026-01-02 03:04:05+00', 1.50, 1.5, '00000000-0000-0000-0000-000000000001', '{{"a": 1}}', ARRAY[1, NULL],
    '1 day')"""


class Capsule(Case):
    def test_result_exports_a_stream(self) -> None:
        result = self.db.sql("SELECT 1 AS one")
        self.assertIn("arrow_array_stream", repr(result.__arrow_c_stream__()))
        # Each export is a new stream; one that is not read is released.
        for _ in range(3):
            result.__arrow_c_stream__(None)


@unittest.skipUnless(HAS_PYARROW, "pyarrow is not installed")
class Arrow(Case):
    def setUp(self) -> None:
        super().setUp()
        import pyarrow  # type: ignore[import-not-found,import-untyped,unused-ignore]

        self.pyarrow: Any = pyarrow
        self.db.sql(TABLE)
        rows = ", ".join(ROW.format(id=n) for n in range(1, 4))
        self.db.sql(f"INSERT INTO t VALUES {rows}, (4{', NULL' * 17})")

    def test_columns_have_the_types_of_the_table(self) -> None:
        table = self.db.sql("SELECT * FROM t ORDER BY id").arrow()
        types = {field.name: str(field.type) for field in table.schema}
        expected = {
            "id": "int32",
            "small": "int16",
            "large": "int64",
            "r": "float",
            "d": "double",
            "b": "bool",
            "s": "string_view",
            "raw": "binary_view",
            "day": "date32[day]",
            "clock": "time64[us]",
            "at": "timestamp[us]",
            "zoned": "timestamp[us, tz=UTC]",
            "amount": "decimal128(10, 2)",
            "free": "decimal128(38, 1)",
            "u": "fixed_size_binary[16]",
            "j": "string_view",
            "list": "list<item: int32>",
            "span": "string_view",
        }
        self.assertEqual(types, expected)

    def test_values_are_those_of_the_rows(self) -> None:
        result = self.db.sql("SELECT * FROM t ORDER BY id")
        first, *_, last = result.arrow().to_pylist()
        self.assertEqual(set(last.values()), {4, None})
        at = dt.datetime(2026, 1, 2, 3, 4, 5)
        self.assertEqual((first["s"], first["raw"], first["day"]), ("text 1", b"\x00\xff", dt.date(2026, 1, 2)))
        self.assertEqual((first["at"], first["zoned"]), (at, at.replace(tzinfo=dt.timezone.utc)))
        self.assertEqual((first["amount"], first["free"]), (Decimal("1.50"), Decimal("1.5")))
        self.assertEqual((first["u"], first["list"], first["j"]), (uuid.UUID(int=1).bytes, [1, None], '{"a": 1}'))
        row = result[0]
        for name in ("id", "small", "large", "r", "d", "b", "s", "raw", "day", "clock", "at", "zoned", "amount"):
            self.assertEqual(first[name], row[name], name)

    def test_table_outlives_the_result_and_the_database(self) -> None:
        self.db.sql("CREATE TABLE many (id bigint PRIMARY KEY, x double precision, name text)")
        self.db.sql("INSERT INTO many SELECT n, n / 2.0, 'a name of more than twelve bytes ' || n "
                    "FROM generate_series(1, 50000) AS g(n)")
        result = self.db.sql("SELECT id, x, name FROM many WHERE id % 2 = 0 ORDER BY id")
        one, two = self.pyarrow.table(result), result.arrow()
        del result
        self.db.close()
        gc.collect()
        self.assertEqual((one.num_rows, one), (25000, two))
        self.assertEqual(one.column("id").to_pylist()[-1], 50000)
        self.assertEqual(one.column("name").to_pylist()[0], "a name of more than twelve bytes 2")

    def test_result_without_rows_has_its_columns(self) -> None:
        table = self.db.sql("SELECT id, s FROM t WHERE id > 100").arrow()
        self.assertEqual((table.num_rows, table.column_names), (0, ["id", "s"]))
        self.assertEqual(self.db.sql("CREATE TABLE other (id int)").arrow().num_columns, 0)

    def test_result_in_a_transaction_is_arrow_too(self) -> None:
        with self.db.begin() as tx:
            tx.sql("INSERT INTO t (id, s) VALUES (9, 'new')")
            table = tx.sql("SELECT id, s FROM t WHERE id >= 4 ORDER BY id").arrow()
            returned = tx.sql("UPDATE t SET s = 'x' WHERE id = 9 RETURNING id").arrow()
        self.assertEqual(table.to_pylist(), [{"id": 4, "s": None}, {"id": 9, "s": "new"}])
        self.assertEqual(returned.to_pylist(), [{"id": 9}])

    def test_columns_with_one_name_are_both_exported(self) -> None:
        table = self.db.sql("SELECT 1 AS a, 2 AS a").arrow()
        self.assertEqual((table.column_names, table.column(1).to_pylist()), (["a", "a"], [2]))

    def test_pandas_has_the_rows(self) -> None:
        if importlib.util.find_spec("pandas") is None:
            self.skipTest("pandas is not installed")
        frame = self.db.sql("SELECT id, d, s FROM t WHERE id < 4 ORDER BY id").to_pandas()
        self.assertEqual((list(frame["id"]), list(frame["s"])[0]), ([1, 2, 3], "text 1"))

    def test_polars_has_the_rows(self) -> None:
        if importlib.util.find_spec("polars") is None:
            self.skipTest("polars is not installed")
        frame = self.db.sql("SELECT id, d, s FROM t WHERE id < 4 ORDER BY id").to_polars()
        self.assertEqual((frame["id"].to_list(), frame["s"].to_list()[0]), ([1, 2, 3], "text 1"))


if __name__ == "__main__":
    unittest.main()
