"""The proof that a repeated request is applied once.

The connections of the writers are cut after a random number of bytes, and the server is killed and started again.
Each writer repeats a request with its idempotency key until it has the response, so in the end every transfer is
acknowledged, and every event belongs to exactly one of them.
"""

import random
import time

import auditors
import bank
import ropewalk
from crew import Crew
from ledger import Ledger
from place import Place
from proxy import CuttingProxy
from report import Report
from writers import Http

#: Balance of every account: no transfer exceeds it. A rejected request may succeed when it is repeated.
INITIAL = 1_000_000_000
#: Most bytes of a connection: a request and its response have about 2,000.
BYTES_MAX = 6_000


def run(binary, rounds, seconds, threads=4):
    """Kills the server in `rounds`, of `seconds` on average."""
    report, ledger, crew = Report(), Ledger(amount_max=100), Crew()
    with Place(binary) as place, CuttingProxy(place.http.removeprefix("http://"), BYTES_MAX) as proxy:
        with ropewalk.connect(place.http) as db:
            bank.create(db, INITIAL)
        writers = [Http(place, f"repeating{number}", proxy.url) for number in range(threads)]

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
            view, start = auditor.view(bank.start(INITIAL)), bank.start(INITIAL)
            problems = bank.disagreements(start, view) + ledger.disagreements(view, ledger.acknowledged())
            if not ledger.is_acknowledged():
                problems.append("a transfer was never acknowledged")
            report.audited(auditor.protocol, problems, is_complete=True)
            auditor.close()
        for writer in writers:
            writer.close()
        repeated = sum(writer.repeated for writer in writers)
        report.figures = {"rounds": rounds, "kills": place.kills, "cuts": proxy.cuts, "repetitions": repeated}
    report.transfers, report.failures = ledger.counts, crew.failures
    return report
