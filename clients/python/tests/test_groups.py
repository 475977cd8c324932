"""Consumer groups."""

from __future__ import annotations

import threading
import time

import ropewalk
from ropewalk import Event, Park, where

from .support import Case, wait_until


class Groups(Case):
    def group(self, **options: float | bool | None) -> ropewalk.Group:
        return self.store.group("g").create(where("A"), pause=0.01, **options)  # type: ignore[arg-type]

    def test_lease_is_taken_extended_and_settled(self) -> None:
        group = self.group(tries=2)
        self.store.append([{"type": "A", "data": n} for n in range(4)] + [{"type": "B"}])
        lease = group.take(10)
        assert lease.number is not None and lease.until is not None
        self.assertEqual([(one.event.data, one.tries) for one in lease.deliveries], [(0, 1), (1, 1), (2, 1), (3, 1)])
        self.assertEqual(group.acknowledge(lease.number, [1]).done, 1)
        self.assertEqual(group.park(lease.number, [2], reason="broken").parked, 1)
        self.assertEqual(group.retry(lease.number, [3], pause=0).done, 1)
        self.assertIsNotNone(group.extend(lease.number, 60))
        self.assertEqual(group.acknowledge(lease.number, [1, 4]).lost, [1])
        [parked] = group.parked()
        self.assertEqual((parked.event.position, parked.reason, parked.tries), (2, "broken", 1))
        group.replay()
        again = group.take(10, wait=5)
        self.assertTrue(again.deliveries)
        self.assertIsNone(group.take(1).number if len(again.deliveries) == 2 else None)
        group.delete()
        with self.assertRaises(ropewalk.NotFound):
            group.state()

    def test_workers_settle_by_return_exception_and_park(self) -> None:
        group = self.group(tries=3)
        self.store.append([{"type": "A", "data": n} for n in range(40)])
        seen: list[int] = []

        def handle(one: Event) -> None:
            seen.append(one.data)
            if one.data == 7:
                raise Park("unusable")
            if one.data == 8:
                raise RuntimeError("mail server is down")
            if one.data == 9 and seen.count(9) == 1:
                raise RuntimeError("once")

        group.work(handle, workers=4, batch=3, until_idle=True)
        self.assertEqual(set(seen), set(range(40)))
        self.assertEqual((seen.count(8), seen.count(9), seen.count(7), seen.count(1)), (3, 2, 1, 1))
        parked = {one.event.data: one.reason for one in group.parked()}
        self.assertEqual(parked, {7: "unusable", 8: "RuntimeError: mail server is down"})

    def test_workers_share_events_and_stop(self) -> None:
        group = self.group()
        seen: list[int] = []
        names: set[str] = set()

        def handle(one: Event) -> None:
            seen.append(one.data)
            names.add(threading.current_thread().name)
            time.sleep(0.01)

        with group.start(handle, workers=4):
            self.store.append([{"type": "A", "data": n} for n in range(100)])
            wait_until(lambda: len(seen) == 100)
        self.assertEqual(sorted(seen), list(range(100)))
        self.assertGreater(len(names), 1)
        self.assertEqual(group.state()["pending"], 0)

    def test_lease_is_extended_while_a_handler_runs(self) -> None:
        group = self.group(lease=0.6)
        self.store.append({"type": "A"})
        seen: list[int] = []

        def handle(one: Event) -> None:
            seen.append(one.position)
            time.sleep(2)

        group.work(handle, workers=2, until_idle=True)
        self.assertEqual(seen, [1])

    def test_group_in_order_delivers_in_order_despite_failures(self) -> None:
        group = self.group(in_order=True, tries=50)
        self.store.append([{"type": "A", "data": n} for n in range(20)])
        done: list[int] = []
        failed: set[int] = set()

        def handle(one: Event) -> None:
            if one.data % 5 == 3 and one.data not in failed:
                failed.add(one.data)
                raise RuntimeError("once")
            done.append(one.data)

        group.work(handle, workers=3, batch=4, until_idle=True)
        self.assertEqual(done, list(range(20)))

    def test_error_that_is_not_transient_ends_the_workers(self) -> None:
        group = self.group()
        running = group.start(lambda one: None)
        group.delete()
        with self.assertRaises(ropewalk.NotFound):
            running.join(20)
        running.stop()
