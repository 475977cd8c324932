"""Random queries to our server and to PostgreSQL 15: both must answer the same, ours in each of its executors.

    python3 random_queries --binary PATH [--seconds N | --hours N] [--seed TEXT] [--first N] [--stop N]

A seed makes tables and some hundred queries over them. What differs is made smaller and printed as a script with both answers.
Statements that ours refuses (0A000) are counted by their reasons. Ends with 1 when anything differs.

    --seed      the name that seeds are derived from: today's date unless given; printed
    --first     the number of the first seed
    --stop      ends after so many differences
    --executors those of ours that are asked

known.txt lists differences that are left open, each with its reason; they are counted and do not fail the run.
"""

import argparse
import datetime
import os
import random
import re
import sys
import time
from collections import Counter
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parents[1])]

from chains import chain  # noqa: E402
from cluster import Cluster, is_installed  # noqa: E402
from compare import EXECUTORS, OUR_PATIENCE, PATIENCE, Client, Lost, difference, order_difference, reason  # noqa: E402
from mixed import mixed  # noqa: E402
from queries import Queries  # noqa: E402
from servers import Server  # noqa: E402
from shrink import fewer, shrunk  # noqa: E402
from tables import tables  # noqa: E402

#: Queries over the tables of one seed.
QUERIES = 150
#: Answers that say that a limit was reached.
LIMITS = {"57014": "too slow", "53200": "too large"}
#: How a query is asked.
WAYS = ["simple", "simple", "simple", "parameters", "transaction"]
ZONES = ["UTC", "UTC", "UTC", "Europe/Berlin", "America/New_York"]


class Peers:
    """Both servers, with a connection for each executor of ours."""

    def __init__(self, binary, cluster, executors):
        self.binary, self.cluster, self.executors = binary, cluster, executors
        self.server = None
        self.zone = "UTC"
        self.start()

    def start(self):
        self.server = Server(self.binary, listen="off", options=["--postgres-listen", "127.0.0.1:0"])
        self.connect()

    def connect(self):
        zone = f"SET timezone = '{self.zone}'"
        host, _, port = self.server.postgres.rpartition(":")
        ours = f"host={host} port={port} user=ann dbname=ropewalk"
        self.ours = {name: Client(ours, [zone, f"SET statement_timeout = {OUR_PATIENCE}", f"SET ropewalk.executor = {name}"]) for name in self.executors}
        theirs = f"host={self.cluster.host} port={self.cluster.port} user=ann dbname=ropewalk"
        self.theirs = Client(theirs, [zone, f"SET statement_timeout = {PATIENCE}", "SET jit = off"])

    def stop(self):
        # PostgreSQL waits for its clients to go.
        self.theirs.connection.finish()
        self.server.stop()

    def both(self, sql):
        """Runs a definition on both."""
        for client, patience in ((self.theirs, PATIENCE), (next(iter(self.ours.values())), OUR_PATIENCE)):
            client.ask("SET statement_timeout = 0")
            answer = client.ask(sql)
            assert answer.state is None, f"{sql[:300]}: {answer.message}"
            client.ask(f"SET statement_timeout = {patience}")

    def make(self, made, zone):
        if zone != self.zone:
            self.zone = zone
            self.connect()
        for name in "abcd":
            self.both(f"DROP TABLE IF EXISTS {name}")
        for table in made:
            for statement in table.statements():
                self.both(statement)

    def compare(self, sql, way):
        """What differs, by executor; PostgreSQL's answer; ours."""
        theirs = self.theirs.ask(sql, way)
        if theirs.state == "57014":
            return {}, theirs, {}
        answers, found = {}, {}
        for name in self.executors:
            answers[name] = ours = self.asked(name, sql, way)
            if ours.is_refused or ours.state in LIMITS:
                continue
            what = difference(ours, theirs) or order_difference(ours, theirs, sql)
            if what:
                found[name] = what
        return found, theirs, answers

    def asked(self, name, sql, way):
        try:
            return self.ours[name].ask(sql, way)
        except Lost as lost:
            self.connect_again()
            answer = self.ours[name].ask("SELECT 1")
            answer.state, answer.message = "08006", str(lost)
            return answer

    def connect_again(self):
        try:
            self.connect()
        except Lost:
            raise SystemExit("the server has ended") from None


def known():
    """Patterns of differences that are left open, with their reasons."""
    lines = (HERE / "known.txt").read_text().splitlines()
    entries = [line.rpartition(" # ") for line in lines if line and not line.startswith("#")]
    return [(re.compile(pattern), reason) for pattern, _, reason in entries]


class Run:
    def __init__(self, peers, name):
        self.peers = peers
        self.name = name
        self.counts = Counter()
        self.refused = Counter()
        self.kinds = Counter()
        self.known = known()

    def seed(self, number):
        """All queries of a seed."""
        generator = random.Random(f"{self.name}/{number}")
        made = tables(generator)
        zone = generator.choice(ZONES)
        self.peers.make(made, zone)
        queries = Queries(generator, made)
        for place in range(QUERIES):
            try:
                kind = generator.randrange(12)
                node = queries.statement() if kind > 2 else self.accepted(chain if kind else mixed, generator)
            except RecursionError:
                continue
            if node.size() > 8000:
                continue
            way = generator.choice(WAYS)
            self.query(node, made, zone, way, f"{self.name}/{number} query {place}, {way}")
            yield

    def accepted(self, make, generator):
        """A statement whose types fit together."""
        while True:
            node = make(generator)
            if self.peers.theirs.ask(node.sql()).state is None:
                return node

    def query(self, node, made, zone, way, title):
        sql = node.sql()
        found, theirs, answers = self.peers.compare(sql, way)
        self.counts["statements"] += 1
        if theirs.state == "57014":
            self.counts["too slow for PostgreSQL"] += 1
            return
        if theirs.state:
            self.counts[f"errors of PostgreSQL {theirs.state}"] += 1
        for answer in answers.values():
            self.counts["runs"] += 1
            if answer.is_refused:
                self.counts["refused"] += 1
                self.refused[reason(answer.message)] += 1
            elif answer.state in LIMITS:
                self.counts[LIMITS[answer.state]] += 1
        if not found:
            self.counts["equal"] += not any(answer.is_refused for answer in answers.values())
            return
        try:
            self.show(node, made, zone, way, title, found)
        finally:
            self.peers.make(made, zone)

    def show(self, node, made, zone, way, title, found):
        kinds = set(found.values())
        print(f"\n==== {title}: {found}", flush=True)

        def holds(sql):
            again, _, _ = self.peers.compare(sql, way)
            return bool(kinds & set(again.values()))

        if holds(node.sql()):
            node = shrunk(node, holds)
            made = self.smaller_tables(node.sql(), made, zone, holds)
        else:
            print("(another answer the second time)")
        again, theirs, answers = self.peers.compare(node.sql(), way)
        print(f"SET timezone = '{zone}';")
        for table in made:
            for statement in table.statements():
                print(f"{statement};")
        print(f"{node.sql()};")
        print(f"-- PostgreSQL\n{theirs.shown()}")
        shown = {}
        for name, answer in answers.items():
            shown.setdefault(answer.shown(), []).append(f"{name}{'' if name not in again else ' (' + again[name] + ')'}")
        for text, names in shown.items():
            print(f"-- ours: {', '.join(names)}\n{text}")
        sys.stdout.flush()
        first = next(iter(again.values()), "?")
        reason = next((reason for pattern, reason in self.known if pattern.search(f"{first}: {node.sql()}")), None)
        if reason is None:
            self.counts["differences"] += 1
            self.kinds[first] += 1
        else:
            print(f"(known: {reason})")
            self.counts["known differences"] += 1

    def smaller_tables(self, sql, made, zone, holds):
        """The tables with as few rows and indexes as show the difference."""
        import copy

        made = copy.deepcopy(made)
        for table in made:
            def attempt(name, value):
                before = getattr(table, name)
                setattr(table, name, value)
                self.peers.make(made, zone)
                if holds(sql):
                    return True
                setattr(table, name, before)
                return False

            attempt("indexes", [])
            if len(table.rows) <= 60:
                fewer(table.rows, lambda rows: attempt("rows", rows))
        for table in list(made):
            rest = [other for other in made if other is not table]
            self.peers.make(rest, zone)
            if holds(sql):
                made = rest
        self.peers.make(made, zone)
        return made

    def figures(self):
        print(f"\nseeds of {self.name}: " + ", ".join(f"{count} {name}" for name, count in sorted(self.counts.items())))
        for why, count in self.refused.most_common():
            print(f"{count:8} refused: {why}")
        for kind, count in self.kinds.most_common():
            print(f"{count:8} differences: {kind}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", type=Path, default=os.environ.get("ROPEWALK_BINARY"), required="ROPEWALK_BINARY" not in os.environ)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--hours", type=float)
    parser.add_argument("--seed", default=datetime.date.today().isoformat())
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--executors", default=",".join(EXECUTORS))
    parser.add_argument("--stop", type=int, default=50)
    args = parser.parse_args()
    if not is_installed():
        print("SKIPPED: PostgreSQL 15 is not installed")
        return
    end = time.monotonic() + (args.hours * 3600 if args.hours else args.seconds)
    with Cluster() as cluster:
        peers = Peers(args.binary, cluster, args.executors.split(","))
        run = Run(peers, args.seed)
        try:
            number = args.first
            while time.monotonic() < end and run.counts["differences"] < args.stop:
                seed = run.seed(number)
                for _ in seed:
                    if time.monotonic() > end or run.counts["differences"] >= args.stop:
                        break
                run.counts["seeds"] += 1
                number += 1
        finally:
            run.figures()
            peers.stop()
    sys.exit(1 if run.counts["differences"] else 0)


if __name__ == "__main__":
    main()
