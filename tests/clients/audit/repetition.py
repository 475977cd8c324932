"""The proof that a repeated request is applied once.

The connections of the writers are cut after a random number of bytes, and the server is killed and started again.
Each writer repeats a request with its idempotency key until it has the response, so in the end every transfer is
acknowledged, and every event belongs to exactly one of them.
"""

import contextlib
import random
import time

import auditors
import bank
import ropewalk
from crew import Crew
from ledger import Ledger
from place import Place
from proxy import CuttingProxy
from report import Kind, Report
from writers import Grpc, Http

#: Balance of every account: no transfer exceeds it. A rejected request may succeed when it is repeated.
INITIAL = 1_000_000_000
#: Most bytes of a connection: a request and its response have about 2,000, over gRPC a few hundred more at its start.
BYTES_MAX = 6_000


def run(binary, rounds, seconds, threads=4):
    """Kills the server in `rounds`, of `seconds` on average; `threads` per protocol."""
    begun = time.monotonic()
    report, ledger, crew = Report(), Ledger(amount_max=100), Crew()
    with contextlib.ExitStack() as stack:
        place = stack.enter_context(Place(binary))
        with ropewalk.connect(place.http) as db:
            bank.create(db, INITIAL)
        addresses = {Http: place.http.removeprefix("http://"), Grpc: place.grpc}
        proxies = {kind: stack.enter_context(CuttingProxy(at, BYTES_MAX)) for kind, at in addresses.items()}
        through = {Http: proxies[Http].url, Grpc: proxies[Grpc].url.removeprefix("http://")}
        writers = [
            kind(place, f"repeating{kind.__name__.lower()}{number}", through[kind])
            for kind in addresses for number in range(threads)
        ]

        def transfer(writer):
            issued = ledger.issue(writer)
            ledger.settle(writer, issued, writer.transfer(issued))

        for writer in writers:
            crew.start(writer.name, lambda writer=writer: transfer(writer))
        for _ in range(rounds):
            time.sleep(seconds * random.uniform(0.5, 1.5))
            place.crash()
        time.sleep(seconds)
        crew.stop()
        for auditor in [one(place) for one in auditors.AUDITORS]:
            start = bank.start(INITIAL)
            view = auditor.view(start)
            problems = bank.disagreements(start, view) + ledger.disagreements(start, view, ledger.acknowledged())
            if not ledger.is_acknowledged():
                problems.append("a transfer was never acknowledged")
            report.audited(auditor.protocol, problems, Kind.COMPLETE)
            auditor.close()
        for writer in writers:
            writer.close()
        report.figures = {"rounds": rounds, "kills": place.kills, "seconds": round(time.monotonic() - begun)}
        for kind, proxy in proxies.items():
            report.figures[f"cuts, {kind.protocol}"] = proxy.cuts
            report.figures[f"again, {kind.protocol}"] = sum(one.repeated for one in writers if type(one) is kind)
    report.transfers, report.failures = ledger.counts, crew.failures
    return report
