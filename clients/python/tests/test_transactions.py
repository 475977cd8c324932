"""Transactions over all models."""

from __future__ import annotations

import datetime
import threading
from decimal import Decimal

import ropewalk
from ropewalk import Condition, OpenTransaction, where

from .support import Case


class Transactions(Case):
    def setUp(self) -> None:
        super().setUp()
        self.stock = f"stock_{self.name}"
        self.db.script(
            f"CREATE TABLE {self.stock} (sku text PRIMARY KEY, n int NOT NULL CONSTRAINT enough CHECK (n >= 0));"
            f"INSERT INTO {self.stock} VALUES ('rope', 3)"
        )
        self.orders = self.db.documents(f"orders_{self.name}")

    def order(self, tx: ropewalk.Transaction, id: str, n: int = 1) -> None:
        tag = f"order:{id}"
        placed = {"type": "OrderPlaced", "tags": [tag], "data": {"n": n}}
        tx.append(self.store, placed, conditions=Condition(where(tags=tag)))
        tx.sql(f"UPDATE {self.stock} SET n = n - %s WHERE sku = %s", [n, "rope"], expect=1)
        tx.documents(self.orders.name).insert({"_id": id, "n": n})
        tx.sample(f"sold_{self.name}", n, {"sku": "rope"}, at=1000)

    def left(self) -> int:
        found: int = self.db.sql(f"SELECT n FROM {self.stock}").scalar()
        return found

    def test_transaction_commits_all_models_and_returns_results(self) -> None:
        with self.db.transaction() as tx:
            self.order(tx, "o1")
            read = tx.read(self.store, where("OrderPlaced"))
            found = tx.documents(self.orders.name).find({"n": 1})
            got = tx.documents(self.orders.name).get("o1")
            changed = tx.documents(self.orders.name).update({"_id": "o1"}, {"$set": {"paid": True}}, expect=1)
            rows = tx.sql(f"SELECT n FROM {self.stock}")
            with self.assertRaises(RuntimeError):
                rows.result
        self.assertEqual((tx.seq > 0, tx.is_repeated, len(tx.results)), (True, False, 9))
        self.assertEqual((tx.results[0].first, tx.results[1].rowcount, tx.results[2], tx.results[3]), (1, 1, "o1", 1))
        self.assertEqual((read.result[0].data, rows.result.scalar()), ({"n": 1}, 2))
        self.assertEqual((found.result, got.result), ([{"_id": "o1", "n": 1}], {"_id": "o1", "n": 1}))
        self.assertEqual(changed.result.modified, 1)
        self.assertEqual((self.left(), self.orders.get("o1")), (2, {"_id": "o1", "n": 1, "paid": True}))
        self.assertEqual(self.db.promql(f"sold_{self.name}", at=1000)[0].value, 1)

    def test_failed_operation_is_named_and_nothing_is_written(self) -> None:
        with self.assertRaises(ropewalk.InvalidArgument) as failed, self.db.transaction() as tx:
            self.order(tx, "o1", n=9)
        error = failed.exception
        self.assertEqual((error.operation, error.sqlstate, error.constraint), (1, "23514", "enough"))
        with self.assertRaises(ropewalk.PreconditionFailed) as unmet, self.db.transaction() as tx:
            self.order(tx, "o1")
            tx.sql(f"UPDATE {self.stock} SET n = 1 WHERE sku = 'x'", expect=1)
        self.assertEqual(unmet.exception.operation, 4)
        self.assertEqual((self.left(), self.store.count(), self.orders.get("o1")), (3, 0, None))

    def test_exception_in_the_block_sends_nothing(self) -> None:
        with self.assertRaises(ZeroDivisionError), self.db.transaction() as tx:
            self.order(tx, "o1")
            raise ZeroDivisionError
        with self.db.transaction() as empty:
            pass
        self.assertEqual((self.left(), empty.seq), (3, 0))

    def test_preconditions_hold_or_nothing_is_written(self) -> None:
        self.store.append({"type": "A"})
        self.orders.insert({"_id": 1})

        def write(tx: ropewalk.Transaction) -> None:
            tx.sql(f"UPDATE {self.stock} SET n = n - 1")

        with self.db.transaction() as tx:
            tx.require_no_events(self.store, where("A"), after=1)
            tx.require_documents(self.orders.name, {"_id": 1})
            tx.require_sql(f"SELECT 1 FROM {self.stock} WHERE n = $1", [3])
            write(tx)
        for kind in range(3):
            with self.subTest(kind), self.assertRaises(ropewalk.PreconditionFailed), self.db.transaction() as tx:
                if kind == 0:
                    tx.require_no_events(self.store, where("A"))
                elif kind == 1:
                    tx.require_documents(self.orders.name, {"_id": 1}, count=0)
                else:
                    tx.require_sql(f"SELECT 1 FROM {self.stock} WHERE n = %s", [3])
                write(tx)
        self.assertEqual(self.left(), 2)

    def test_key_returns_the_first_results(self) -> None:
        at = datetime.datetime(2026, 1, 2, 3, 4, 5, 678000, datetime.timezone.utc)
        self.orders.insert({"_id": "old", "at": at, "bytes": b"\x00\xff", "price": Decimal("1.50")})
        self.store.append({"type": "Seen", "tags": ["a", "b"], "data": {"n": 1}, "metadata": {"by": "ann"}})

        def run(id: str) -> tuple[ropewalk.Transaction, list[object]]:
            with self.db.transaction(idempotency_key=self.name) as tx:
                self.order(tx, id)
                found = tx.documents(self.orders.name).find({"_id": "old"})
                read = tx.read(self.store, where("Seen"))
                rows = tx.sql(f"SELECT sku, n, 1.50::numeric AS price FROM {self.stock}")
                tx.checkpoint(self.store, "board", 1)
            result = rows.result
            return tx, [tx.results[0], found.result, read.result, list(result), result.columns, result.command]

        first, results = run("o1")
        again, repeated = run("o1")
        self.assertEqual((again.seq, first.is_repeated, again.is_repeated), (first.seq, False, True))
        self.assertEqual(repeated, results)
        self.assertEqual((self.left(), self.store.count()), (2, 2))
        with self.assertRaises(ropewalk.IdempotencyMismatch):
            run("o2")
        self.assertEqual((self.left(), self.store.count()), (2, 2))

    def test_key_of_a_failed_transaction_is_free(self) -> None:
        with self.assertRaises(ropewalk.InvalidArgument), self.db.transaction(idempotency_key=self.name) as tx:
            self.order(tx, "o1", n=9)
        with self.db.transaction(idempotency_key=self.name) as tx:
            self.order(tx, "o1")
        self.assertEqual((tx.is_repeated, self.left()), (False, 2))
        for key in ("", "a\n"):
            with self.subTest(key), self.assertRaises((ropewalk.InvalidArgument, ValueError)):
                with self.db.transaction(idempotency_key=key) as tx:
                    self.order(tx, "o2")

    def test_large_results_of_a_write_need_a_transaction_without_key(self) -> None:
        self.store.append([{"type": "A", "data": "x" * 1000} for _ in range(2000)])
        for key in (self.name, None):
            tx = self.db.transaction(idempotency_key=key, automatic_key=False)
            read = tx.read(self.store, where("A"))
            tx.append(self.store, {"type": "B"})
            if key is not None:
                self.assertRaises(ropewalk.TooLarge, tx.commit)
            else:
                tx.commit()
                self.assertEqual(len(read.result), 2000)
        self.assertEqual(self.store.count(where("B")), 1)

    def test_concurrent_copies_with_a_key_are_committed_once(self) -> None:
        done: list[ropewalk.Transaction] = []

        def run() -> None:
            with self.db.transaction(idempotency_key=self.name) as tx:
                tx.sql(f"UPDATE {self.stock} SET n = n - 1 WHERE sku = 'rope'", expect=1)
            done.append(tx)

        threads = [threading.Thread(target=run) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual((self.left(), len(done), sum(not one.is_repeated for one in done)), (2, 8, 1))
        self.assertEqual(len({one.seq for one in done}), 1)

    def test_checkpoint_fences_a_second_worker(self) -> None:
        self.store.append([{"type": "A"}, {"type": "A"}])
        with self.db.transaction() as tx:
            tx.checkpoint(self.store, "board", 1, expect=0)
            tx.sql(f"UPDATE {self.stock} SET n = n + 1")
        with self.assertRaises(ropewalk.PreconditionFailed), self.db.transaction() as tx:
            tx.checkpoint(self.store, "board", 1, expect=0)
            tx.sql(f"UPDATE {self.stock} SET n = n + 1")
        self.assertEqual((self.store.checkpoint("board"), self.left()), (1, 4))

    def test_open_transaction_reads_its_writes_and_commits(self) -> None:
        with self.db.begin() as tx:
            tx.append(self.store, [{"type": "A", "data": 1}])
            tx.documents(self.orders.name).insert({"_id": 1})
            tx.sample(f"sold_{self.name}", 1, at=1)
            self.assertEqual(tx.sql(f"UPDATE {self.stock} SET n = n - $1 RETURNING n", [1]).scalar(), 2)
            self.assertEqual([one.data for one in tx.read(self.store)], [1])
            self.assertEqual(tx.documents(self.orders.name).find(), [{"_id": 1}])
            self.assertEqual((self.left(), self.store.count()), (3, 0))
        self.assertEqual((self.left(), self.store.count(), tx.appended[0].last), (2, 1, 1))

    def test_open_transaction_rolls_back_after_an_exception(self) -> None:
        with self.assertRaises(ZeroDivisionError), self.db.begin() as tx:
            tx.sql(f"UPDATE {self.stock} SET n = 0")
            raise ZeroDivisionError
        with self.assertRaises(ropewalk.InvalidArgument), self.db.begin() as tx:
            tx.sql(f"UPDATE {self.stock} SET n = -1")
        self.assertFalse(tx.is_open)
        with self.assertRaises(ropewalk.NotFound):
            tx.sql("SELECT 1")
        self.assertEqual(self.left(), 3)

    def test_run_repeats_after_a_conflict(self) -> None:
        def increment(tx: OpenTransaction) -> int:
            n: int = tx.sql(f"SELECT n FROM {self.stock}").scalar()
            tx.sql(f"UPDATE {self.stock} SET n = $1", [n + 1])
            return n

        with self.assertRaises(ropewalk.KeyConflict), self.db.begin() as tx:
            increment(tx)
            self.db.run(increment)
        threads = [threading.Thread(target=self.db.run, args=[increment]) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(self.left(), 12)
