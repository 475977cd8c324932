"""Measures the embedded Python package; prints one JSON object.

    embedded.py [--directory DIR] [--events N] [--rows N] [--gets N]

Needs a package with a native module of a release build in the search path:

    cargo build --release -p ropewalk-python
    python3 crates/python/tests/package.py target/python-release target/release/libropewalk_python.so
    PYTHONPATH=target/python-release python3 bench/python/embedded.py

The database is in DIR, or in memory. The best of five runs counts.

    point_gets      microseconds per call: a document of four fields, a row of three columns, the same row by SQL; `call` is a
                    call of the module that only returns the number of the newest commit. `./run bench bundoc` and
                    `./run bench sql-point` have the point reads of Rust, whose difference is the cost of Python.
    appends         events per second of `append_batch`, in commits of 10,000 events with a tag and 40 bytes, or a dictionary
    arrow           seconds of a query of N rows and three columns, of its export as a stream, and of pyarrow's import of it;
                    gigabytes per second of export and import together
"""

import argparse
import json
import os
import shutil
import sys
import time

import ropewalk

RUNS, BATCH = 5, 10_000


def best(work):
    """The shortest time of several runs in seconds."""
    times = []
    for _ in range(RUNS):
        begin = time.perf_counter()
        work()
        times.append(time.perf_counter() - begin)
    return min(times)


def point_gets(db, count):
    people = db.documents("people")
    people.insert([{"_id": n, "name": f"name {n}", "age": n % 100, "city": "Oslo"} for n in range(BATCH)])
    db.sql("CREATE TABLE people (id bigint PRIMARY KEY, name text, age int)")
    db.sql(f"INSERT INTO people SELECT n, 'name ' || n, n % 100 FROM generate_series(0, {BATCH - 1}) AS g(n)")
    table, core = db.table("people"), db.core

    def calls(call):
        def work():
            for n in range(count):
                call(n % BATCH)

        return best(work) / count * 1e6

    return {
        "call": calls(lambda n: core.seq()),
        "document": calls(people.get),
        "row": calls(table.get),
        "sql": calls(lambda n: db.sql("SELECT id, name, age FROM people WHERE id = $1", [n])),
    }


def appends(db, count):
    found = {}
    payload = b'{"order":"o1","sku":"rope","n":12345678}'
    for name, data in [("bytes", payload), ("dictionaries", {"order": "o1", "sku": "rope", "n": 12345678})]:
        batches = [[("OrderPlaced", [f"order:{n}"], data) for n in range(BATCH)] for _ in range(10)]
        store = db.events(name)
        begin = time.perf_counter()
        for number in range(count // BATCH):
            store.append_batch(batches[number % 10], durability="buffered")
        found[name] = round(count / (time.perf_counter() - begin))
        assert store.count() == count
    return found


def arrow(db, rows):
    sql = f"SELECT n AS id, n * 0.5::double precision AS x, n % 1000 AS k FROM generate_series(1, {rows}) AS g(n)"
    begin = time.perf_counter()
    result = db.sql(sql)
    query = time.perf_counter() - begin
    assert len(result) == rows
    export = best(result.__arrow_c_stream__)
    found = {"rows": rows, "query_seconds": query, "export_seconds": export}
    try:
        import pyarrow
    except ImportError:
        return found | {"note": "pyarrow is not installed: no import"}
    imported = best(lambda: pyarrow.table(result))
    size = pyarrow.table(result).nbytes
    return found | {"import_seconds": imported, "bytes": size, "gigabytes_per_second": size / imported / 1e9}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--directory")
    parser.add_argument("--events", type=int, default=2_000_000)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--gets", type=int, default=200_000)
    args = parser.parse_args()
    options = {"memory": 1 << 30, "statement_memory": 4 << 30}
    if args.directory is None:
        db = ropewalk.open_in_memory(**options)
    else:
        shutil.rmtree(args.directory, ignore_errors=True)
        db = ropewalk.open(args.directory, **options)
    with db:
        found = {
            "python": sys.version.split()[0],
            "processors": os.cpu_count(),
            "point_gets_microseconds": point_gets(db, args.gets),
            "appends_per_second": appends(db, args.events),
            "arrow": arrow(db, args.rows),
        }
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
