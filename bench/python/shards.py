#!/usr/bin/env python3
"""Computes what several shared logs give together: the table of docs/scale.md.

    shards.py [--write | --check]

Prints the table. --write puts it into the page, and --check ends with 1 if the page has another one.

The model: every database belongs to one log, and a log accepts so many commits a second. The log with the largest share of
all commits is the first one that is full, so the rate of all logs together is the limit of one divided by that share.
"""

import argparse
import hashlib
import heapq
import math
import sys
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "scale.md"
BEGIN, END = "<!-- shards -->\n", "<!-- end -->"

LOGS = (1, 10, 100, 1000)
DATABASES = 10_000
#: Commits a second that one log accepts. Measured: messages of 256 bytes to JetStream, 3 replicas, `sync_interval: always`,
#: 256 in flight, two processors and one disk for everything.
LOG_COMMITS = 38_000
#: Microseconds of processor time of a commit: the leader (measured: `append/1/c256/cpu` of events-wire), two followers that apply
#: it (computed: 200,000 commits/s on one processor, the goal of `follower/catch_up`), three servers of NATS (assumed).
COMMIT_CPU_US = 29 + 2 * 5 + 3 * 10
#: Processors of a machine (assumed), and the part of them that may be busy when one machine of three is lost.
PROCESSORS, BUSY = 8, 0.6
REPLICAS = 3
#: Entries a second of an idle leader: one each third of the default lease of 3 s.
RENEWALS = 1
#: Syncs a second of a disk. Measured: 4 KiB writes with fdatasync.
SYNCS = 8_200


def equal():
    """Share of each database: all have the same."""
    return [1 / DATABASES] * DATABASES


def skewed():
    """The n-th largest has 1/n of the largest (Zipf with exponent 1)."""
    weights = [1 / n for n in range(1, DATABASES + 1)]
    return [weight / sum(weights) for weight in weights]


def by_hash(shares, logs):
    """The share of the fullest log when the hash of the name selects the log."""
    sums = [0.0] * logs
    for number, share in enumerate(shares):
        digest = hashlib.sha256(f"database-{number}".encode()).digest()
        sums[int.from_bytes(digest[:8], "big") % logs] += share
    return max(sums)


def by_catalogue(shares, logs):
    """The same when a catalogue assigns each database, the largest first, to the log with the smallest share."""
    heap = [0.0] * logs
    for share in sorted(shares, reverse=True):
        heapq.heapreplace(heap, heap[0] + share)
    return max(heap)


def machines(rate):
    """Machines for a rate of all logs; at least three, which have three replicas."""
    return max(REPLICAS, math.ceil(rate * COMMIT_CPU_US / 1e6 / (PROCESSORS * BUSY)))


def number(value):
    """Two significant digits, with commas."""
    if value < 10:
        return f"{value:.2g}"
    digits = len(str(int(value))) - 2
    return f"{int(round(value, -digits)):,}"


def percent(part):
    return f"{100 * part:.0f} %" if part >= 0.1 else f"{100 * part:.2g} %"


def rows():
    for what, shares in (("equal databases", equal()), ("skewed databases", skewed())):
        for how, place in (("by hash", by_hash), ("by catalogue", by_catalogue)):
            largest = [place(shares, logs) for logs in LOGS]
            yield f"{what}, {how}: share of the fullest log", map(percent, largest)
            yield "... commits/s of all logs when it is full", (number(LOG_COMMITS / share) for share in largest)
            if place is by_catalogue:
                needed = [machines(LOG_COMMITS / share) for share in largest]
                yield "... machines for this rate", (f"{count:,}" for count in needed)
                each = [math.ceil(REPLICAS * logs / count) for logs, count in zip(LOGS, needed)]
                yield "... replicas of streams on each machine", (f"{count:,}" for count in each)
    yield "entries/s of idle logs", (f"{RENEWALS * logs:,}" for logs in LOGS)
    yield "... part of the syncs of each of 3 machines, one sync for each entry", (percent(RENEWALS * logs / SYNCS) for logs in LOGS)
    yield "pairs of databases that share a log", (percent(1 / logs) for logs in LOGS)


def table():
    lines = [["Logs", *(f"{logs:,}" for logs in LOGS)], ["---", *["---:"] * len(LOGS)]]
    lines += [[name, *values] for name, values in rows()]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--write", action="store_true")
    mode.add_argument("--check", action="store_true")
    args = parser.parse_args()
    if not args.write and not args.check:
        print(table(), end="")
        return 0
    before, rest = PAGE.read_text().split(BEGIN)
    old, after = rest.split(END)
    if args.write:
        PAGE.write_text(before + BEGIN + table() + END + after)
    elif old != table():
        print(f"{PAGE.name} has another table: run {Path(__file__).name} --write")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
