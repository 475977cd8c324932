"""Event stores."""

from __future__ import annotations

import threading
from typing import Annotated

import ropewalk
from ropewalk import Condition, Model, NewEvent, Refused, Tag, event, where

from .support import EMBEDDED, Case, wait_until


@event
class Added:
    account: Annotated[str, Tag]
    amount: int


def total(account: str) -> Model[int]:
    return Model(where(Added, tags=f"account:{account}"), int, lambda state, one: state + int(one.value.amount))


class Events(Case):
    def test_append_and_read_return_every_field(self) -> None:
        made = NewEvent("A", {"b": [1, 2.5, None]}, ["x:1"], "3f2504e0-4f89-41d3-9a0c-0305e82c3301", {"by": "ann"})
        done = self.store.append([made, {"type": "B"}, NewEvent("C", b"\xff\x00")], tracking=("up", 7))
        self.assertEqual((done.first, done.last), (1, 3))
        with self.store.read() as events:
            self.assertEqual(events.head, 3)
            one, two, three = events
        self.assertEqual((one.type, one.data, one.tags, one.id), ("A", made.data, ("x:1",), made.id))
        self.assertEqual((one.metadata, one.seq, one.recorded_at.utcoffset() is None), ({"by": "ann"}, done.seq, False))
        self.assertEqual((two.data, three.payload), (None, b"\xff\x00"))
        self.assertEqual((self.store.tracking("up"), self.store.head()), (7, 3))
        with self.assertRaises(ropewalk.TrackingConflict):
            self.store.append({"type": "A"}, tracking=("up", 7))

    def test_reads_select_and_bound(self) -> None:
        self.store.append([{"type": "A" if n % 2 else "B", "tags": [f"n:{n}"], "data": n} for n in range(1, 11)])
        self.assertEqual([one.data for one in self.store.read(where("A"), after=3, limit=2)], [5, 7])
        self.assertEqual([one.data for one in self.store.read(backwards=True, start=8, limit=2)], [8, 7])
        self.assertEqual([one.data for one in self.store.read(before=3)], [1, 2])
        self.assertEqual(self.store.count(where("A") | where(tags="n:2")), 6)
        last = self.store.last(where("B"))
        assert last is not None
        self.assertEqual(last.data, 10)
        self.assertIsNone(self.store.last(where("C")))
        self.assertTrue(self.store.exists(where(tags="n:7"), after=6))
        self.assertFalse(self.store.exists(where(tags="n:7"), after=7))

    def test_store_that_does_not_exist_reads_as_empty(self) -> None:
        events = self.store.read()
        self.assertEqual((events.head, list(events), self.store.count(), self.store.head()), (0, [], 0, 0))

    def test_large_read_streams_while_others_are_requested(self) -> None:
        self.store.append([{"type": "A", "data": {"n": n, "text": "x" * 100}} for n in range(20_000)])
        for number, one in enumerate(self.store.read()):
            self.assertEqual(one.data["n"], number)
            if number % 5000 == 0:
                self.assertEqual(self.store.count(), 20_000)
        with self.store.read() as unfinished:
            next(unfinished)

    def test_condition_that_fails_names_the_event(self) -> None:
        self.store.append({"type": "A", "tags": ["x:1"]})
        with self.assertRaises(ropewalk.ConditionFailed) as failed:
            self.store.append({"type": "A"}, conditions=Condition(where(tags="x:1"), after=0))
        error = failed.exception
        self.assertEqual((error.code, error.status), ("condition_failed", 0 if EMBEDDED else 409))
        self.assertEqual(error.conflict, {"condition": 0, "position": 1, "item": 0})
        self.store.append({"type": "A"}, conditions=[Condition(where(tags="x:1"), after=1), Condition(where("Z"))])

    def test_key_appends_once_and_rejects_other_events(self) -> None:
        first = self.store.append({"type": "A"}, idempotency_key="k")
        self.assertEqual(self.store.append({"type": "A"}, idempotency_key="k"), first)
        with self.assertRaises(ropewalk.IdempotencyMismatch):
            self.store.append({"type": "B"}, idempotency_key="k")
        self.store.append({"type": "B"}, conditions=Condition(where(type_prefixes="C")))
        self.assertEqual(self.store.count(), 2)

    def test_typed_events_are_read_as_their_class(self) -> None:
        store = self.db.events(self.name, [Added])
        store.append([Added("ann", 5), NewEvent("Other", 1)])
        self.assertEqual([one.value for one in store.read()], [Added("ann", 5), 1])
        self.assertEqual(next(store.read()).tags, ("account:ann",))

    def test_concurrent_decisions_never_lose_an_update(self) -> None:
        store = self.db.events(self.name, [Added])

        def once(state: int) -> Added | None:
            if state >= 50:
                raise Refused("full")
            return Added("ann", 1)

        def many() -> None:
            for _ in range(10):
                try:
                    store.decide(total("ann"), once)
                except Refused:
                    refused.append(1)

        refused: list[int] = []
        threads = [threading.Thread(target=many) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual((store.load(total("ann")).state, store.count(), len(refused)), (50, 50, 10))

    def test_decision_without_events_appends_nothing(self) -> None:
        self.store.append({"type": "A"})
        done = self.store.decide(where("A"), lambda events: None if events else {"type": "A"})
        self.assertEqual((done.appended, len(done.state), self.store.count()), (None, 1, 1))

    def test_decision_conflict_is_raised_after_the_last_attempt(self) -> None:
        def interfere(events: list[ropewalk.Event]) -> dict[str, str]:
            self.store.append({"type": "A"})
            return {"type": "A"}

        with self.assertRaises(ropewalk.ConditionFailed):
            self.store.decide(where("A"), interfere, attempts=3)
        self.assertEqual(self.store.count(), 3)

    def test_decision_in_transaction_writes_other_models_with_it(self) -> None:
        table = f"t_{self.name}"
        self.db.sql(f"CREATE TABLE {table} (id int PRIMARY KEY)")
        interfered: list[int] = []

        def decide(state: int, tx: ropewalk.Transaction) -> None:
            if not interfered:
                interfered.append(1)
                store.append(Added("ann", 1))
            tx.append(store, Added("ann", 10))
            tx.sql(f"INSERT INTO {table} VALUES ($1)", [state])

        store = self.db.events(self.name, [Added])
        tx = store.decide_in_transaction(total("ann"), decide)
        self.assertTrue(tx.is_committed)
        self.assertEqual([tuple(row) for row in self.db.sql(f"SELECT id FROM {table}")], [(1,)])
        self.assertEqual(store.load(total("ann")).state, 11)

    def test_checkpoints_are_stored(self) -> None:
        self.store.append([{"type": "A"}, {"type": "A"}])
        self.assertEqual(self.store.checkpoint("c"), 0)
        self.store.set_checkpoint("c", 2)
        self.assertEqual((self.store.checkpoint("c"), self.store.checkpoints()), (2, {"c": 2}))
        self.store.delete_checkpoint("c")
        self.assertEqual(self.store.checkpoints(), {})

    def test_lists_are_read_page_by_page(self) -> None:
        self.store.append({"type": "A"})
        for consumer in ("a", "b", "c/d"):
            self.store.set_checkpoint(consumer, 1)
        self.assertEqual(self.store.checkpoints(), {"a": 1, "b": 1, "c/d": 1})
        if not EMBEDDED:
            pages = self.db.transport.pages(f"{self.store._path}/checkpoints", "checkpoints", limit=1)
            self.assertEqual([one["consumer"] for one in pages], ["a", "b", "c/d"])


class Subscriptions(Case):
    def test_subscription_delivers_existing_and_new_events(self) -> None:
        self.store.append([{"type": "A", "data": 1}, {"type": "B"}])
        with self.store.subscribe(where("A")) as events:
            self.assertEqual(next(events).data, 1)
            threading.Timer(0.1, lambda: self.store.append({"type": "A", "data": 2})).start()
            self.assertEqual(next(events).data, 2)
            self.assertEqual(events.position, 3)

    def test_subscription_from_head_skips_existing_events(self) -> None:
        self.store.append({"type": "A", "data": 1})
        found: list[object] = []
        events = self.store.subscribe(after="head")
        thread = threading.Thread(target=lambda: found.extend(one.data for one in events))
        thread.start()
        wait_until(lambda: events.is_caught_up)
        self.store.append({"type": "A", "data": 2})
        wait_until(lambda: found == [2])
        events.close()
        thread.join(10)
        self.assertFalse(thread.is_alive())

    def test_subscription_resumes_after_checkpoint(self) -> None:
        self.store.append([{"type": "A", "data": n} for n in range(3)])
        self.store.set_checkpoint("c", 2)
        with self.store.subscribe(checkpoint="c") as events:
            self.assertEqual(next(events).data, 2)

    def test_subscription_ends_with_the_error_of_an_invalid_request(self) -> None:
        with self.assertRaises(ropewalk.InvalidArgument):
            next(self.store.subscribe(after="nonsense"))
