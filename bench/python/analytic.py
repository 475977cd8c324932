"""Asks DuckDB or SQLite TPC-H's questions; prints one JSON object.

    analytic.py duckdb|sqlite DIR PASSES < tables and questions as JSON

DIR holds a file for each table, fields between tabs. Both are given the same definitions; SQLite, which makes no hash tables, gets indexes on the
foreign keys as well.
"""

import json
import re
import sys
import time

FNV, PRIME, MASK = 0xCBF29CE484222325, 0x100000001B3, (1 << 64) - 1

INDEXES = """
CREATE INDEX nation_region ON nation (n_regionkey); CREATE INDEX supplier_nation ON supplier (s_nationkey);
CREATE INDEX customer_nation ON customer (c_nationkey); CREATE INDEX partsupp_supplier ON partsupp (ps_suppkey);
CREATE INDEX orders_customer ON orders (o_custkey); CREATE INDEX lineitem_part ON lineitem (l_partkey, l_suppkey);
CREATE INDEX lineitem_supplier ON lineitem (l_suppkey);
"""


def number(value):
    mantissa, exponent = f"{float(value) * 1.0000000123 + 0.0:.6e}".split("e")
    return f"{mantissa}e{int(exponent)}"


def field(value):
    if value is None:
        return "NULL"
    if isinstance(value, str):
        return value
    if hasattr(value, "isoformat"):
        return value.isoformat()
    return number(value)


def digest(rows):
    lines = sorted("|".join(map(field, row)).encode() for row in rows)
    found = FNV
    for byte in b"".join(line + b"\n" for line in lines):
        found = (found ^ byte) * PRIME & MASK
    first = lines[0].decode() if lines else ""
    return f"{len(lines)} rows, {found:016x}, first {first}"


def of_sqlite(sql):
    """What SQLite writes in another way."""
    sql = re.sub(r"date ('\d{4}-\d\d-\d\d')", r"\1", sql)
    sql = re.sub(r"extract\(year FROM (\w+)\)", r"CAST(substr(\1, 1, 4) AS INTEGER)", sql)
    return re.sub(r"substring\((\w+) FROM (\d) FOR (\d)\)", r"substr(\1, \2, \3)", sql)


def sqlite(directory, tables):
    import csv
    import sqlite3

    db = sqlite3.connect(f"{directory}/data.sqlite", isolation_level=None)
    db.executescript("PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA cache_size = -3000000")
    db.execute("PRAGMA mmap_size = 4294967296")
    # As LIKE of the others, which tells a from A.
    db.execute("PRAGMA case_sensitive_like = ON")
    for name, columns in tables:
        db.execute(f"CREATE TABLE {name} ({columns})")
        db.execute("BEGIN")
        with open(f"{directory}/{name}.text", newline="") as file:
            marks = None
            for row in csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE):
                marks = marks or ", ".join("?" * len(row))
                db.execute(f"INSERT INTO {name} VALUES ({marks})", row)
        db.execute("COMMIT")
    db.executescript(INDEXES)
    db.executescript("ANALYZE; PRAGMA wal_checkpoint(TRUNCATE)")
    return lambda sql: db.execute(of_sqlite(sql)).fetchall()


def duckdb(directory, tables):
    import duckdb as module

    db = module.connect(f"{directory}/data.duckdb")
    # It would be shown on the output that the figures go to.
    db.execute("SET enable_progress_bar = false")
    for name, columns in tables:
        db.execute(f"CREATE TABLE {name} ({columns})")
        db.execute(f"COPY {name} FROM '{directory}/{name}.text' (DELIMITER '\t', HEADER false, QUOTE '')")
    db.execute("CHECKPOINT")
    return lambda sql: db.execute(sql).fetchall()


def main():
    system, directory, passes = sys.argv[1], sys.argv[2], int(sys.argv[3])
    task = json.load(sys.stdin)
    started = time.perf_counter()
    ask = {"sqlite": sqlite, "duckdb": duckdb}[system](directory, task["tables"])
    figures = {"load": {"samples": [task["rows"] / (time.perf_counter() - started)]}}
    digests, totals = {}, [0.0] * passes
    for place, sql in enumerate(task["questions"], start=1):
        samples = []
        for turn in range(passes):
            started = time.perf_counter()
            rows = ask(sql)
            samples.append((time.perf_counter() - started) * 1000)
            totals[turn] += samples[-1]
        figures[f"q{place}"] = {"samples": samples}
        digests[f"q{place}"] = digest(rows)
    figures["total"] = {"samples": totals}
    print(json.dumps({"figures": figures, "digests": digests}))


if __name__ == "__main__":
    main()
