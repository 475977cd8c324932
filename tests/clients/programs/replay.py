#!/usr/bin/env python3
"""Lists the statements of a program that the server refuses, in the order in which they occur, without what follows from them.

    replay.py LOG DATABASE [--binary PATH] [--all] [--record NAME]

LOG is the log of a PostgreSQL server in CSV with `log_statement = all`, on which the program ran in DATABASE. Each statement that
PostgreSQL accepted is sent to a new server, by itself and with its parameters as literals; one line for each different error says
how many statements have it: count, SQLSTATE, message, and the first of them. An error that follows from an earlier one, such as a
table that is not there, is counted and not listed. With --record the counts and reasons are stored in results.json under the name
and version of the program, and the tables of docs/compatibility.md are written.
"""

import argparse
import collections
import csv
import os
import re
import sys
from pathlib import Path

import psycopg

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import results  # noqa: E402
from servers import Server  # noqa: E402

#: Columns of PostgreSQL's CSV log.
DATABASE, PROCESS, SEVERITY, MESSAGE, DETAIL, QUERY = 2, 3, 11, 13, 14, 19
#: Errors that follow from an earlier one if a refused statement has the name that is missing, or there already.
FOLLOWING = {"42P01", "42703", "42704", "42883", "42701", "42P07", "3F000", "23503", "23502", "23505", "55000", "34000"}
NAME = re.compile(r'"([^"]+)"|\b(?:function|relation|column) ([\w.]+)')
#: Statements that mean something inside a transaction only.
OF_TRANSACTIONS = re.compile(r"(begin|commit|rollback|start transaction|savepoint|release|declare|fetch|close)\b", re.IGNORECASE)
PARAMETER = re.compile(r"\$(\d+) = (NULL|'(?:[^']|'')*')")


def accepted(log, database):
    """The statements that PostgreSQL ran in the database, with literals in place of parameters."""
    csv.field_size_limit(1 << 30)
    with open(log, newline="") as rows:
        rows = [row for row in csv.reader(rows) if row[DATABASE] == database]
    failed = collections.Counter((row[PROCESS], row[QUERY].strip()) for row in rows if row[SEVERITY] == "ERROR")
    for row in rows:
        found = re.match(r"(?:statement|execute [^:]*): (.*)", row[MESSAGE], re.DOTALL)
        if row[SEVERITY] != "LOG" or found is None:
            continue
        statement = found.group(1).strip()
        if failed[row[PROCESS], statement]:
            failed[row[PROCESS], statement] -= 1
            continue
        values = dict(PARAMETER.findall(row[DETAIL]))
        yield re.sub(r"\$(\d+)\b", lambda found: values.get(found.group(1), found.group(0)), statement) if values else statement


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("log", type=Path)
    parser.add_argument("database")
    parser.add_argument("--binary", default=os.environ.get("ROPEWALK_BINARY", "target/debug/ropewalk"))
    parser.add_argument("--all", action="store_true", help="also print the errors that follow from others")
    parser.add_argument("--record", metavar="NAME", help='for example "Miniflux 2.3.5"')
    args = parser.parse_args()
    ran, followed, found, refused = 0, 0, {}, ""
    with Server(args.binary, options=["--postgres-listen", "127.0.0.1:0"]) as server:
        with psycopg.connect(f"postgresql://ann@{server.postgres}/ropewalk", autocommit=True) as db:
            for statement in accepted(args.log, args.database):
                if OF_TRANSACTIONS.match(statement):
                    continue
                ran += 1
                try:
                    db.execute(statement.encode(), prepare=False)
                except psycopg.Error as error:
                    message, shown = str(error).splitlines()[0], " ".join(statement.split())
                    names = [(quoted or plain).rpartition(".")[2] for quoted, plain in NAME.findall(message)]
                    if error.sqlstate in FOLLOWING and any(name in refused for name in names):
                        followed += 1
                        if args.all:
                            print(f"after: {error.sqlstate} {message} | {shown[:200]}")
                        refused += shown
                        continue
                    refused += shown
                    # The name of a type says what is missing, that of a table or constraint does not.
                    cause = message if error.sqlstate == "42704" else re.sub(r'"[^"]*"', '"…"', message)
                    found.setdefault((error.sqlstate, cause), []).append(f"{message} | {shown[:200]}")
    for (state, _), statements in found.items():
        print(f"{len(statements):5} {state} {statements[0]}")
    count = sum(map(len, found.values()))
    if args.record:
        # What follows the bar is the first statement, which the page does not show.
        reasons = [
            {"count": len(statements), "state": state, "message": statements[0].partition(" | ")[0]}
            for (state, _), statements in found.items()
        ]
        results.record("replays", args.record, {"statements": ran, "followed": followed, "reasons": reasons})
    print(f"{ran} statements, {count} refused for {len(found)} reasons, {followed} failed after one of these")


if __name__ == "__main__":
    main()
