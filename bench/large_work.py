"""Shows that large legitimate work passes the default limits of a server: prints time and resident memory of each step.

    large_work.py --binary target/release/ropewalk [--rows 10000000] [--series 1000000]

- "load": rows by COPY from a file of psql into a table.
- "sort": a sort of all rows by a column without an index; the last row is returned, so that nothing is left out.
- "ingest": one sample of each series in the text format of Prometheus.
- "select": PromQL queries that read every series.

The server has its default settings. Needs psql. Linux only, because memory is read from /proc. TPC-H is part of
`./run bench sql-analytic`. Exits with 1 if a step fails.
"""

import argparse
import http.client
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.parse

from hostile_connections import AUTHORIZATION, PASSWORD, USER, Server, make_template

#: Series of one ingest request.
BATCH = 50_000


def psql(server, statement, stdin=None):
    host, port = server.addresses["postgres"]
    command = ["psql", "-X", "-q", "-t", "-A", "-v", "ON_ERROR_STOP=1", "-h", host, "-p", str(port), "-U", USER, "-c", statement]
    environment = os.environ | {"PGPASSWORD": PASSWORD, "PGSSLMODE": "disable", "PGDATABASE": "ropewalk"}
    done = subprocess.run(command, env=environment, check=True, stdin=stdin, capture_output=True, text=True)
    return done.stdout.strip()


def request(server, method, path, body=None):
    connection = http.client.HTTPConnection(*server.addresses["http"], timeout=600)
    connection.request(method, path, body, {"Authorization": AUTHORIZATION})
    response = connection.getresponse()
    data = response.read()
    connection.close()
    if response.status >= 300:
        raise RuntimeError(f"{method} {path}: {response.status} {data[:300]!r}")
    return data


def promql(server, query):
    data = request(server, "GET", "/api/v1/query?" + urllib.parse.urlencode({"query": query}))
    return [(row["metric"], row["value"][1]) for row in json.loads(data)["data"]["result"]]


def load(server, rows, directory):
    psql(server, "CREATE TABLE large (id int PRIMARY KEY, k int NOT NULL, name text NOT NULL)")
    path = os.path.join(directory, "rows.csv")
    with open(path, "w") as file:
        # A permutation: 7,919 and the modulus have no common divisor.
        file.writelines(f"{i},{i * 7919 % (rows + 1)},row {i}\n" for i in range(1, rows + 1) if i * 7919 % (rows + 1))
    with open(path) as file:
        psql(server, "COPY large FROM STDIN (FORMAT csv)", file)
    return psql(server, "SELECT count(*) FROM large")


def sort(server, rows, _):
    count = int(psql(server, "SELECT count(*) FROM large"))
    return psql(server, f"SELECT k, name FROM (SELECT k, name FROM large ORDER BY k, name) s OFFSET {count - 1}")


def ingest(server, series, _):
    for start in range(0, series, BATCH):
        lines = (f'large{{host="h{i % 1000}",disk="d{i}"}} {i}\n' for i in range(start, min(start + BATCH, series)))
        request(server, "POST", "/api/v1/import/prometheus", "".join(lines))
    return f"{series} series"


def select(server, series, _):
    count = promql(server, "count(large)")
    if count != [({}, str(series))]:
        raise RuntimeError(f"count: {count}")
    by_host = promql(server, "topk(1, sum by (host) (large))")
    largest = promql(server, "max(large)")
    return f"{count[0][1]} counted, largest {largest[0][1]}, sums of {len(by_host)} of 1000 hosts"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", required=True)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--series", type=int, default=1_000_000)
    arguments = parser.parse_args()
    failed = False
    with tempfile.TemporaryDirectory() as directory:
        server = Server(arguments.binary, make_template(arguments.binary, directory), directory)
        try:
            for step, size in ((load, arguments.rows), (sort, arguments.rows), (ingest, arguments.series), (select, arguments.series)):
                started = time.monotonic()
                try:
                    result = step(server, size, directory)
                except (subprocess.CalledProcessError, RuntimeError) as error:
                    failed, result = True, f"FAILED: {getattr(error, 'stderr', None) or error}"
                seconds, resident = time.monotonic() - started, server.memory_mib("VmRSS")
                print(f"{step.__name__:8} {seconds:7.1f} s  RSS {resident:7.0f} MiB  peak {server.memory_mib('VmHWM'):7.0f} MiB  {result}", flush=True)
        finally:
            server.stop()
    sys.exit(failed)


if __name__ == "__main__":
    main()
