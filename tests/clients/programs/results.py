#!/usr/bin/env python3
"""The results of whole programs: results.json, and the tables of docs/compatibility.md that are made of it.

    results.py              writes the tables into the page
    results.py --check      ends with an error if the page differs from what results.json says

`run.py programs` records each program that it measures, and `replay.py --record` the statements that are rejected; both write the
tables. A program that cannot be installed keeps the result of an earlier run, with its date.
"""

import argparse
import datetime
import json
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results.json"
PAGE = HERE.parents[2] / "docs" / "compatibility.md"
#: Longest message of a rejection in a table.
SHOWN = 150


def read():
    return json.loads(RESULTS.read_text())


def record(kind, name, values):
    """Stores what was measured today of a program (`kind` is `programs`) or of its statements (`replays`), and writes the tables."""
    results = read()
    results[kind][name] = values | {"date": datetime.date.today().isoformat()}
    RESULTS.write_text(json.dumps(results, indent=1, sort_keys=True, ensure_ascii=False) + "\n")
    PAGE.write_text(page(PAGE.read_text(), results))


def cell(text):
    """Text as the cell of a table."""
    return text.replace("|", "\\|").replace("\n", " ")


def code(text):
    """Text as code in the cell of a table."""
    return f"`{cell(text.replace('`', ' '))}`"


def programs(results):
    """The table of programs."""
    yield "| Program | Protocol | Measured | Result | Date |"
    yield "|---|---|---|---|---|"
    for _, found in sorted(results["programs"].items()):
        if found["outcome"] == "works":
            result = f"works: {found['passed']} tests" if found["passed"] != 1 else "works: 1 test"
            if found["skipped"]:
                result += f", {found['skipped']} not run"
        elif found["outcome"] == "stops":
            result = f"stops: {found['reason']}"
        else:
            result = f"not measured: {found['reason']}"
        yield f"| {found['title']} | {found['protocol']} | {found['measured']} | {cell(result)} | {found['date']} |"


def replays(results):
    """The table of replayed statements."""
    yield "| Program | Statements | Rejected | Reasons | Follows | Date |"
    yield "|---|---:|---:|---:|---:|---|"
    for name, found in sorted(results["replays"].items()):
        count = sum(reason["count"] for reason in found["reasons"])
        yield (
            f"| {name} | {found['statements']:,} | {count} | {len(found['reasons'])} | {found['followed']} | {found['date']} |"
        )


def rejections(results):
    """The table of reasons."""
    yield "| Program | Count | SQLSTATE | Message |"
    yield "|---|---:|---|---|"
    for name, found in sorted(results["replays"].items()):
        for reason in found["reasons"]:
            message = reason["message"] if len(reason["message"]) <= SHOWN else reason["message"][:SHOWN] + "…"
            yield f"| {name} | {reason['count']} | {reason['state']} | {code(message)} |"


TABLES = {"programs": programs, "replays": replays, "rejections": rejections}


def page(text, results):
    """The page with its tables, each between two comments with its name."""
    for name, table in TABLES.items():
        begin, end = f"<!-- {name}: made by results.py -->\n", f"<!-- {name}: end -->"
        before, found, rest = text.partition(begin)
        _, ended, after = rest.partition(end)
        if not (found and ended):
            sys.exit(f"{PAGE} has no place for the table {name!r}")
        text = before + begin + "\n".join(table(results)) + "\n" + end + after
    return text


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    text = PAGE.read_text()
    made = page(text, read())
    if args.check and made != text:
        sys.exit(f"{PAGE.name} differs from results.json: run {Path(__file__).name}")
    PAGE.write_text(made)


if __name__ == "__main__":
    main()
