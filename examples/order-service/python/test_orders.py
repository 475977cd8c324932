"""Tests of the order service, each against a server of its own."""

from __future__ import annotations

import os
import sys
import threading
import time
import unittest
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "clients" / "python"))

import ropewalk  # noqa: E402
from orders import Board, Orders, mailer, revenue  # noqa: E402
from ropewalk import PreconditionFailed, Refused  # noqa: E402
from ropewalk.testing import Server  # noqa: E402

BINARY = os.environ.get("ROPEWALK_BIN") or str(ROOT / "target" / "debug" / "ropewalk")


def wait_until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not holds():
        if time.monotonic() > end:
            raise AssertionError("not within 20 s")
        time.sleep(0.01)


@unittest.skipUnless(Path(BINARY).exists(), f"there is no server at {BINARY}")
class OrderService(unittest.TestCase):
    def setUp(self) -> None:
        self.server = Server(BINARY)
        self.addCleanup(self.server.close)
        self.db = ropewalk.connect(self.server.url, retry_for=60)
        self.addCleanup(self.db.close)
        self.orders = Orders(self.db)
        self.orders.add_stock("rope", 10)

    def place(self, order: str, n: int = 1, email: str = "ann@example.org") -> None:
        self.orders.place(order, "rope", n, 100 * n, email)

    def board(self) -> dict[str, str]:
        return {row.id: row.state for row in self.db.sql("SELECT id, state FROM board")}

    def test_order_is_placed_paid_and_shipped_in_this_order(self) -> None:
        self.place("o1", 3)
        for step, refusal in [(self.orders.ship, "placed"), (self.orders.pay, None), (self.orders.pay, "paid")]:
            if refusal is None:
                step("o1")
            else:
                with self.assertRaisesRegex(Refused, refusal):
                    step("o1")
        self.orders.ship("o1")
        with self.assertRaisesRegex(Refused, "exists"):
            self.place("o1")
        with self.assertRaisesRegex(Refused, "unknown"):
            self.orders.pay("o2")
        self.assertEqual(revenue(self.db), {"rope": 300})

    def test_concurrent_orders_never_exceed_the_stock(self) -> None:
        placed: list[str] = []

        def buy(worker: int) -> None:
            for n in range(5):
                try:
                    self.place(f"{worker}-{n}")
                    placed.append(f"{worker}-{n}")
                except Refused:
                    pass

        threads = [threading.Thread(target=buy, args=[worker]) for worker in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual((len(placed), revenue(self.db)), (10, {"rope": 1000}))

    def test_board_applies_each_event_once_across_a_crash(self) -> None:
        board = Board(self.orders)
        worker = threading.Thread(target=board.run, daemon=True)
        worker.start()
        for n in range(4):
            self.place(f"o{n}")
        self.server.kill()
        self.server.start()
        self.orders.pay("o0")
        self.orders.pay("o1")
        self.orders.ship("o1")
        wait_until(lambda: self.board() == {"o0": "paid", "o1": "shipped", "o2": "placed", "o3": "placed"})
        board.stop()
        worker.join(20)
        self.assertFalse(worker.is_alive())

    def test_second_board_worker_is_fenced(self) -> None:
        first, second = Board(self.orders), Board(self.orders)
        fenced: list[object] = []

        def run(board: Board) -> None:
            try:
                board.run()
            except PreconditionFailed:
                fenced.append(board)

        workers = [threading.Thread(target=run, args=[board], daemon=True) for board in (first, second)]
        for worker in workers:
            worker.start()
        wait_until(lambda: self.orders.shop.checkpoint(Board.NAME) == 1)
        self.place("o1")
        wait_until(lambda: len(fenced) == 1 and self.board() == {"o1": "placed"})
        for board in (first, second):
            board.stop()
        for worker in workers:
            worker.join(20)

    def test_mailer_sends_retries_and_parks(self) -> None:
        sent: list[str] = []
        failures = ["the mail server is down"]

        def send(to: str, text: str) -> None:
            if failures:
                raise RuntimeError(failures.pop())
            sent.append(to)

        with mailer(self.orders, send):
            self.place("o1")
            self.place("o2", email="nonsense")
            self.place("o3", email="bob@example.org")
            wait_until(lambda: len(sent) == 2)
        self.assertEqual(sorted(sent), ["ann@example.org", "bob@example.org"])
        [parked] = self.orders.shop.group("mailer").parked()
        self.assertEqual((parked.event.tags, parked.reason), (("order:o2", "sku:rope"), "no address: nonsense"))


if __name__ == "__main__":
    unittest.main()
