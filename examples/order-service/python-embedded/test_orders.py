"""Tests of the order service in one process, each with a new database."""

from __future__ import annotations

import importlib.util
import tempfile
import threading
import time
import unittest
from pathlib import Path

HAS_MODULE = importlib.util.find_spec("ropewalk") is not None and importlib.util.find_spec("ropewalk._core") is not None

if HAS_MODULE:
    from orders import Service, shared
    from ropewalk import Refused


@unittest.skipUnless(HAS_MODULE, "the package ropewalk with the embedded database is not installed")
class OrderService(unittest.TestCase):
    def setUp(self) -> None:
        place = tempfile.TemporaryDirectory(prefix="ropewalk-orders-")
        self.addCleanup(place.cleanup)
        self.path = Path(place.name, "shop.db")
        self.sent: list[str] = []

    def service(self) -> Service:
        return Service(self.path, lambda to, text: self.sent.append(to))

    def place(self, service: Service, order: str, n: int = 1) -> None:
        service.orders.place(order, "rope", n, 100 * n, f"{order}@example.org")

    def test_order_passes_through_board_and_mailer_and_survives_a_restart(self) -> None:
        with self.service() as service:
            service.orders.add_stock("rope", 10)
            self.place(service, "o1", 3)
            service.orders.pay("o1")
            with self.assertRaisesRegex(Refused, "exists"):
                self.place(service, "o1")
            service.wait_for_board()
            self.assertEqual((service.status("o1"), service.status("o2")), ("paid", None))
            self.assertEqual(shared.revenue(service.db), {"rope": 300})
            end = time.monotonic() + 20
            while not self.sent and time.monotonic() < end:
                time.sleep(0.01)
        with self.service() as service:
            service.orders.ship("o1")
            service.wait_for_board()
            self.assertEqual(service.status("o1"), "shipped")
            self.assertEqual(service.report().dicts(), [{"sku": "rope", "state": "shipped", "orders": 1, "pieces": 3}])
        self.assertEqual(self.sent, ["o1@example.org"])

    def test_concurrent_orders_never_exceed_the_stock(self) -> None:
        placed: list[str] = []
        with self.service() as service:
            service.orders.add_stock("rope", 10)

            def buy(worker: int) -> None:
                for n in range(5):
                    try:
                        self.place(service, f"{worker}-{n}")
                        placed.append(f"{worker}-{n}")
                    except Refused:
                        pass

            threads = [threading.Thread(target=buy, args=[worker]) for worker in range(5)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            service.wait_for_board()
            self.assertEqual([row.orders for row in service.report()], [10])
        self.assertEqual(len(placed), 10)

    def test_imported_orders_are_on_the_board(self) -> None:
        with self.service() as service:
            past = [shared.OrderPlaced(f"p{n}", "rope" if n % 3 else "hook", 1, 100, "a@example.org") for n in range(300)]
            self.assertEqual(service.import_orders(past), 300)
            service.wait_for_board()
            report = [(row.sku, row.orders) for row in service.report()]
            self.assertEqual(report, [("hook", 100), ("rope", 200)])
            if importlib.util.find_spec("pyarrow") is not None:
                self.assertEqual(service.report().arrow().column("orders").to_pylist(), [100, 200])

    def test_correction_changes_all_models_or_none(self) -> None:
        with self.service() as service:
            service.orders.add_stock("rope", 10)
            self.place(service, "o1", 3)
            service.wait_for_board()
            service.correct("o1", 2)
            self.assertEqual([row.pieces for row in service.report()], [2])
            [stored] = service.db.documents("corrections").find()
            self.assertEqual((stored["n"], stored["before"]), (2, 3))
            service.orders.pay("o1")
            service.wait_for_board()
            with self.assertRaisesRegex(Refused, "not open"):
                service.correct("o1", 1)
            self.assertEqual(service.db.documents("corrections").count(), 1)


if __name__ == "__main__":
    unittest.main()
