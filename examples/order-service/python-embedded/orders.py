"""The order service in one process: the database is a directory, there is no server.

Commands, read model and mailer are those of `../python/orders.py`. Only here: past orders are
imported in batches, rows are read by key without SQL, reports are Arrow, and a correction is one
transaction over events, a table, a document and a metric.

    import ──► batches of events ──┐
    place, pay, ship ──► decision ─┴─► events ──► board (table) ──► status, report
                                          └─────► e-mails

Run it: `python orders.py shop.db`
"""

from __future__ import annotations

import importlib.util
import sys
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import Any

import ropewalk
from ropewalk import OpenTransaction, Refused

#: Events of one commit of an import.
BATCH = 10_000


def load_shared() -> ModuleType:
    """Loads the commands, the read model and the mailer that also run over a server."""
    path = Path(__file__).resolve().parents[1] / "python" / "orders.py"
    spec = importlib.util.spec_from_file_location("order_service", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Dataclasses look up the module of their annotations.
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


shared = load_shared()


class Service:
    """The service over a database in this process; use it in a `with` block."""

    def __init__(self, path: str | Path, send: Callable[[str, str], None]) -> None:
        self.db = ropewalk.open(path)
        self.orders = shared.Orders(self.db)
        self.board = shared.Board(self.orders)
        self._worker = threading.Thread(target=self.board.run, name="board", daemon=True)
        self._mailer = shared.mailer(self.orders, send)

    def __enter__(self) -> Service:
        self._worker.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Lets the workers finish, and closes the database."""
        self._mailer.stop()
        # A worker that has just begun has nothing to stop yet.
        while self._worker.is_alive():
            self.board.stop()
            self._worker.join(0.1)
        self.db.close()

    def import_orders(self, past: Iterable[Any]) -> int:
        """Appends past orders (`OrderPlaced`) in large commits; returns their number.

        An import that ended early is repeated from the order after the last one in the database.
        """
        rows = iter(past)
        count = 0
        while batch := list(islice(rows, BATCH)):
            self.orders.shop.append_batch(
                [("OrderPlaced", [f"order:{one.order}", f"sku:{one.sku}"], asdict(one)) for one in batch]
            )
            count += len(batch)
        return count

    def status(self, order: str) -> str | None:
        """Returns the state of an order on the board: one lookup by key."""
        row = self.db.table("board").get(order)
        return None if row is None else str(row.state)

    def correct(self, order: str, n: int) -> None:
        """Corrects the quantity of a placed order. Raises `Refused` for another state."""

        def work(tx: OpenTransaction) -> None:
            row = tx.sql("SELECT sku, n, state FROM board WHERE id = %s", [order])
            if len(row) == 0 or row[0].state != "placed":
                raise Refused(f"order {order} is not open")
            tx.append(
                self.orders.shop,
                {"type": "OrderCorrected", "tags": [f"order:{order}"], "data": {"n": n, "before": row[0].n}},
            )
            tx.sql("UPDATE board SET n = %s WHERE id = %s", [n, order], expect=1)
            tx.documents("corrections").insert({"order": order, "n": n, "before": row[0].n})
            tx.sample("order_corrections", 1, {"sku": row[0].sku, "order": order}, at=time.time())

        # Runs again after a conflict, such as with the worker that writes the board.
        self.db.run(work)

    def report(self) -> ropewalk.Result:
        """Returns orders and pieces by product and state; `arrow()`, `to_pandas()` or rows."""
        return self.db.sql(
            "SELECT sku, state, count(*) AS orders, sum(n) AS pieces FROM board GROUP BY sku, state ORDER BY sku, state"
        )

    def wait_for_board(self, seconds: float = 20.0) -> None:
        """Waits until the board shows every event."""
        end = time.monotonic() + seconds
        wanted = self.orders.shop.last(ropewalk.where(*shared.EVENTS))
        while wanted is not None and self.orders.shop.checkpoint(self.board.NAME) < wanted.position:
            if time.monotonic() > end:
                raise TimeoutError(f"the board is not complete within {seconds} s")
            time.sleep(0.01)


def main(path: str) -> None:
    with Service(path, lambda to, text: print(f"to {to}: {text}")) as service:
        order = f"o{time.time_ns()}"
        service.orders.add_stock("rope", 5)
        service.orders.place(order, "rope", 2, 1990, "ann@example.org")
        service.wait_for_board()
        service.correct(order, 1)
        service.orders.pay(order)
        service.orders.ship(order)
        service.wait_for_board()
        print(order, service.status(order), service.report().dicts(), shared.revenue(service.db))


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "shop.db")
