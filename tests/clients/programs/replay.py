#!/usr/bin/env python3
"""Lists the statements of a program that the server refuses, in the order in which they occur, without what follows from them.

    replay.py LOG DATABASE [--binary PATH] [--all]

LOG is the log of a PostgreSQL server in CSV with `log_statement = all`, on which the program ran in DATABASE. Each statement that
PostgreSQL accepted is sent to a new server, by itself and with its parameters as literals; one line for each different error says
how many statements have it: count, SQLSTATE, message, and the first of them. An error that follows from an earlier one, such as a
table that is not there, is counted and not listed.
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

from servers import Server  # noqa: E402

#: Columns of PostgreSQL's CSV log.
DATABASE, PROCESS, SEVERITY, MESSAGE, DETAIL, QUERY = 2, 3, 11, 13, 14, 19
#: What a statement gets whose table, column, index or function an earlier refused statement would have made.
FOLLOWING = {"42P01", "42703", "42704", "42883", "3F000", "23503", "23502", "23505", "42P07", "55000"}
PARAMETER = re.compile(r"\$(\d+) = (NULL|'(?:[^']|'')*')")


def accepted(log, database):
    """The statements that PostgreSQL ran in the database, with literals in place of parameters."""
    csv.field_size_limit(1 << 30)
    with open(log, newline="") as rows:
        rows = [row for row in csv.reader(rows) if row[DATABASE] == database]
    failed = collections.Counter((row[PROCESS], row[QUERY].strip()) for row in rows if row[SEVERITY] == "ERROR")
    for row in rows:
        said = re.match(r"(?:statement|execute [^:]*): (.*)", row[MESSAGE], re.DOTALL)
        if row[SEVERITY] != "LOG" or said is None:
            continue
        statement = said.group(1).strip()
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
    args = parser.parse_args()
    ran, followed, found = 0, 0, {}
    with Server(args.binary, options=["--postgres-listen", "127.0.0.1:0"]) as server:
        with psycopg.connect(f"postgresql://ann@{server.postgres}/ropewalk", autocommit=True) as db:
            for statement in accepted(args.log, args.database):
                if re.match(r"(begin|commit|rollback|start transaction|savepoint|release)\b", statement, re.IGNORECASE):
                    continue
                ran += 1
                try:
                    db.execute(statement.encode(), prepare=False)
                except psycopg.Error as error:
                    if error.sqlstate in FOLLOWING and not re.search(r"type|collation|operator|syntax", str(error)):
                        followed += 1
                        if args.all:
                            print(f"after: {error.sqlstate} {str(error).splitlines()[0]} | {' '.join(statement.split())[:200]}")
                        continue
                    message = str(error).splitlines()[0]
                    # The name of a type says what is missing, that of a table or constraint does not.
                    cause = message if error.sqlstate == "42704" else re.sub(r'"[^"]*"', '"…"', message)
                    said = f"{message} | {' '.join(statement.split())[:200]}"
                    found.setdefault((error.sqlstate, cause), []).append(said)
    for (state, _), statements in found.items():
        print(f"{len(statements):5} {state} {statements[0]}")
    refused = sum(map(len, found.values()))
    print(f"{ran} statements, {refused} refused for {len(found)} reasons, {followed} failed after one of these")


if __name__ == "__main__":
    main()
