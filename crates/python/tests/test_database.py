"""Opening, closing, processes, threads, memory."""

from __future__ import annotations

import gc
import os
import sys
import threading
import time
import unittest
from pathlib import Path

import ropewalk
from ropewalk import Condition, NotFound, OpenTransaction, where

from support import Case, wait_until


class Opening(Case):
    def test_database_opened_again_has_what_was_committed(self) -> None:
        self.db.sql("CREATE TABLE t (id int PRIMARY KEY)")
        with self.db.transaction() as tx:
            tx.append(self.store, {"type": "A"})
            tx.sql("INSERT INTO t VALUES (1)")
            tx.documents("d").insert({"_id": 1})
            tx.sample("m", 2, at=1000)
        self.db.close()
        db = self.open(create=False)
        found = (db.events("shop").count(), db.sql("SELECT id FROM t").scalar(), db.documents("d").get(1))
        self.assertEqual(found, (1, 1, {"_id": 1}))
        self.assertEqual(db.promql("m", at=1000)[0].value, 2)
        self.assertEqual(db.stores(), [{"name": "shop", "head": 1, "events": 1}])

    def test_database_that_does_not_exist_is_not_created_against_the_option(self) -> None:
        with self.assertRaises(ropewalk.InvalidArgument):
            ropewalk.open(self.path / "other", create=False)

    def test_close_releases_the_directory_whatever_is_still_referred_to(self) -> None:
        self.store.append([{"type": "A", "data": n} for n in range(500)])
        self.db.documents("d").insert([{"_id": n} for n in range(3000)])
        events, documents = self.store.read(), self.db.documents("d").find()
        next(events), next(documents)
        following, tx, people = self.store.subscribe(), self.db.begin(), self.db.documents("d")
        tx.append(self.store, {"type": "B"})
        self.db.close()
        self.db.close()
        for use in (lambda: list(events), lambda: list(documents), lambda: next(following), tx.commit):
            with self.assertRaises(RuntimeError):
                use()
        for call in (self.store.count, lambda: people.get(1), lambda: self.db.sql("SELECT 1"), self.db.begin):
            with self.assertRaises(RuntimeError):
                call()
        self.assertEqual(self.open().events("shop").count(), 500)

    def test_second_process_cannot_open_the_database(self) -> None:
        printed = self.run_program(
            """
            import sys, ropewalk
            try:
                ropewalk.open(sys.argv[1])
            except ropewalk.ResourceExhausted as error:
                print(error.code)
            """
        )
        self.assertEqual(printed, "resource_exhausted\n")

    def test_end_of_the_program_closes_the_database(self) -> None:
        self.db.close()
        self.run_program(
            """
            import sys, ropewalk
            db = ropewalk.open(sys.argv[1])
            db.events("shop").append({"type": "A"}, durability="async:60000")
            events = db.events("shop").subscribe()
            next(events)
            """
        )
        self.assertEqual(self.open().events("shop").count(), 1)

    def test_backup_is_a_database(self) -> None:
        self.store.append({"type": "A"})
        copy = self.path.with_name("copy")
        self.assertEqual(self.db.backup(copy), self.db.seq)
        with ropewalk.open(copy) as db:
            self.assertEqual(db.events("shop").count(), 1)
        with self.assertRaises(ropewalk.InvalidArgument):
            self.db.backup(copy)

    def test_database_in_memory_is_empty_and_separate(self) -> None:
        with ropewalk.open_in_memory() as one, ropewalk.open_in_memory() as two:
            one.events("s").append({"type": "A"})
            self.assertEqual((one.events("s").count(), two.events("s").count()), (1, 0))


class Transactions(Case):
    def setUp(self) -> None:
        super().setUp()
        self.db.sql("CREATE TABLE t (id int PRIMARY KEY, n int NOT NULL)")
        self.db.sql("INSERT INTO t VALUES (1, 0)")

    def test_exception_in_the_block_rolls_all_models_back(self) -> None:
        with self.assertRaises(ZeroDivisionError), self.db.begin() as tx:
            tx.append(self.store, {"type": "A"})
            tx.sql("UPDATE t SET n = 1")
            tx.documents("d").insert({"_id": 1})
            tx.sample("m", 1, at=1000)
            raise ZeroDivisionError
        self.assertEqual((self.store.count(), self.db.sql("SELECT n FROM t").scalar()), (0, 0))
        self.assertEqual((self.db.documents("d").get(1), self.db.promql("m", at=1000)), (None, []))

    def test_dropped_transaction_is_rolled_back(self) -> None:
        tx = self.db.begin()
        tx.sql("UPDATE t SET n = 1")
        del tx
        gc.collect()
        self.assertEqual(self.db.sql("SELECT n FROM t").scalar(), 0)

    def test_conflict_is_raised_and_run_repeats(self) -> None:
        def increment(tx: OpenTransaction) -> int:
            n: int = tx.sql("SELECT n FROM t").scalar()
            tx.sql("UPDATE t SET n = $1", [n + 1])
            return n

        with self.assertRaises(ropewalk.KeyConflict), self.db.begin() as tx:
            increment(tx)
            self.db.run(increment)
        threads = [threading.Thread(target=self.db.run, args=[increment]) for _ in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(self.db.sql("SELECT n FROM t").scalar(), 21)

    def test_collected_transaction_repeats_after_conflicts(self) -> None:
        def increment() -> None:
            with self.db.transaction() as tx:
                tx.sql("UPDATE t SET n = n + 1 WHERE id = 1", expect=1)
                tx.append(self.store, {"type": "A"})

        threads = [threading.Thread(target=increment) for _ in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual((self.db.sql("SELECT n FROM t").scalar(), self.store.count()), (20, 20))

    def test_modes_of_a_transaction_are_checked(self) -> None:
        for isolation, durability in [("loose", None), (None, "soon"), (None, "async:x")]:
            with self.subTest(isolation, durability=durability), self.assertRaises(ropewalk.InvalidArgument):
                self.db.begin(isolation=isolation, durability=durability)
        with self.db.begin(isolation="snapshot", durability="async:10") as tx:
            tx.sql("UPDATE t SET n = 1")
        self.assertEqual(self.db.sql("SELECT n FROM t").scalar(), 1)

    def test_key_of_a_transaction_is_known_after_reopening(self) -> None:
        def increment(db: ropewalk.Database) -> ropewalk.Transaction:
            with db.transaction(idempotency_key="k") as tx:
                tx.sql("UPDATE t SET n = n + 1 RETURNING n")
            return tx

        first = increment(self.db)
        self.db.close()
        db = self.open()
        again = increment(db)
        self.assertEqual((again.is_repeated, again.seq, again.results[0].scalar()), (True, first.seq, 1))
        self.assertEqual(db.sql("SELECT n FROM t").scalar(), 1)

    def test_statement_that_ends_the_transaction_is_rejected(self) -> None:
        for sql in ("COMMIT", "ROLLBACK", "BEGIN", "SAVEPOINT a"):
            with self.subTest(sql), self.assertRaises(ropewalk.Error) as failed, self.db.begin() as tx:
                tx.sql(sql)
            self.assertEqual(failed.exception.sqlstate, "0A000")
        with self.assertRaises(ropewalk.Error) as left:
            self.db.script("BEGIN; UPDATE t SET n = 5")
        self.assertEqual(left.exception.sqlstate, "25001")
        self.db.script("BEGIN; UPDATE t SET n = 6; COMMIT")
        self.assertEqual(self.db.sql("SELECT n FROM t").scalar(), 6)

    def test_settings_of_a_text_end_with_it(self) -> None:
        self.db.sql("SET work_mem = '2MB'")
        self.assertNotEqual(self.db.sql("SHOW work_mem").scalar(), "2MB")

    def test_document_of_a_collected_transaction_is_that_of_the_call(self) -> None:
        document = {"_id": 1, "list": [1]}
        with self.db.transaction() as tx:
            tx.documents("d").insert(document)
            document["list"].append(2)  # type: ignore[attr-defined]
        self.assertEqual(self.db.documents("d").get(1), {"_id": 1, "list": [1]})

    def test_transaction_includes_a_commit(self) -> None:
        done = self.store.append({"type": "A"})
        with self.db.transaction(includes=done.seq) as tx:
            read = tx.read(self.store)
        self.assertEqual(len(read.result), 1)


class Threads(Case):
    def test_other_threads_run_while_the_database_works(self) -> None:
        group = self.store.group("g").create()
        taking = threading.Thread(target=lambda: group.take(1, wait=1.0))
        taking.start()
        gaps, last = [], time.monotonic()
        while taking.is_alive():
            time.sleep(0.001)
            gaps.append(time.monotonic() - last)
            last = time.monotonic()
        self.assertLess(max(gaps), 0.5)
        self.assertGreater(len(gaps), 50)

    def test_threads_append_and_read_at_once(self) -> None:
        def work(worker: int) -> None:
            for n in range(50):
                self.store.append({"type": "A", "tags": [f"w:{worker}"], "data": n}, durability="async:50")
                self.assertEqual(self.store.count(where(tags=f"w:{worker}")), n + 1)

        threads = [threading.Thread(target=work, args=[worker]) for worker in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(self.store.count(), 400)

    def test_close_ends_calls_that_wait(self) -> None:
        ended: list[type[BaseException]] = []

        def follow() -> None:
            try:
                next(self.store.subscribe())
            except RuntimeError as error:
                ended.append(type(error))

        thread = threading.Thread(target=follow)
        thread.start()
        time.sleep(0.2)
        self.db.close()
        thread.join(10)
        self.assertEqual(ended, [RuntimeError])


class Processes(Case):
    @unittest.skipUnless(hasattr(os, "fork"), "this system has no fork")
    def test_use_after_a_fork_raises(self) -> None:
        printed = self.run_program(
            """
            import os, sys, ropewalk
            ropewalk_path = sys.argv[1] + "-forked"
            db = ropewalk.open(ropewalk_path)
            store, people = db.events("shop"), db.documents("people")
            store.append([{"type": "A"}] * 300)
            people.insert({"_id": 1})
            db.sql("CREATE TABLE t (id int PRIMARY KEY)")
            table, events, following = db.table("t"), store.read(), store.subscribe()
            next(events), next(following)
            tx = db.begin()
            child = os.fork()
            if child == 0:
                uses = [
                    store.count, lambda: store.append({"type": "B"}), lambda: people.get(1), lambda: table.get(1),
                    lambda: db.sql("SELECT 1"), lambda: list(events), lambda: next(following), db.begin,
                    lambda: tx.sql("SELECT 1"), lambda: db.seq,
                ]
                for use in uses:
                    try:
                        use()
                        print("no error", flush=True)
                    except RuntimeError as error:
                        assert "fork" in str(error), error
                del tx, events, following, table, people
                db.close()
                # A database that the child opens itself works.
                with ropewalk.open_in_memory() as own:
                    own.events("s").append({"type": "A"})
                sys.exit(0)
            _, status = os.waitpid(child, 0)
            assert status == 0, status
            assert store.append({"type": "C"}).last == 301
            tx.rollback()
            db.close()
            print(ropewalk.open(ropewalk_path).events("shop").count())
            """
        )
        self.assertEqual(printed, "301\n")

    @unittest.skipUnless(sys.platform.startswith("linux"), "memory is read from /proc")
    def test_memory_does_not_grow_over_many_calls(self) -> None:
        self.store.append([{"type": "A", "tags": ["x:1"], "data": {"n": n, "text": "x" * 50}} for n in range(100)])
        people = self.db.documents("people")
        people.insert([{"_id": n, "name": f"name {n}", "tags": ["a", "b"]} for n in range(100)])
        self.db.sql("CREATE TABLE t (id int PRIMARY KEY, name text)")
        self.db.sql("INSERT INTO t SELECT n, 'name ' || n FROM generate_series(1, 100) AS g(n)")
        table = self.db.table("t")

        def calls() -> None:
            for n in range(50):
                people.get(n)
                table.get(n)
                self.db.sql("SELECT id, name FROM t WHERE id = $1", [n])
            list(self.store.read(where(tags="x:1")))
            list(people.find({"tags": "a"}))
            self.db.sql("SELECT count(*), max(name) FROM t").one()
            self.db.sql("SELECT id, name FROM t").__arrow_c_stream__()
            tx = self.db.begin()
            tx.append(self.store, {"type": "B"})
            tx.documents("people").insert({"_id": "new"})
            tx.rollback()
            for fails in (
                lambda: self.store.append({"type": "A"}, conditions=Condition(where(tags="x:1"))),
                lambda: self.db.sql("SELECT nothing"),
                lambda: people.insert({"_id": 1}),
            ):
                with self.assertRaises(ropewalk.Error):
                    fails()
            next(self.store.subscribe())

        for _ in range(20):
            calls()
        gc.collect()
        before = resident()
        for _ in range(100):
            calls()
        gc.collect()
        self.assertLess(resident() - before, 24 << 20)

    def test_reader_that_is_not_read_to_its_end_is_released(self) -> None:
        self.store.append([{"type": "A", "data": n} for n in range(1000)])
        with self.store.read() as events:
            next(events)
        with self.assertRaises(RuntimeError):
            list(events)


def resident() -> int:
    """Resident memory of this process in bytes."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


class Subscriptions(Case):
    def test_subscription_delivers_in_order_while_threads_append(self) -> None:
        seen: list[int] = []
        events = self.store.subscribe(where("A"))

        def follow() -> None:
            seen.extend(one.position for one in events)

        follower = threading.Thread(target=follow)
        follower.start()
        writers = [
            threading.Thread(
                target=lambda: [self.store.append({"type": "A"}, durability="async:50") for _ in range(200)]
            )
            for _ in range(4)
        ]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join()
        wait_until(lambda: len(seen) == 800)
        events.close()
        follower.join(10)
        self.assertFalse(follower.is_alive())
        self.assertEqual(seen, list(range(1, 801)))

    def test_head_is_that_of_the_call(self) -> None:
        self.store.append({"type": "A"})
        events = self.store.subscribe(after="head")
        self.store.append({"type": "A", "data": 2})
        self.assertEqual(next(events).data, 2)
        with self.assertRaises(ropewalk.InvalidArgument):
            self.store.subscribe(after=1, checkpoint="c")


class Tables(Case):
    def test_row_is_read_by_its_key(self) -> None:
        self.db.sql("CREATE TABLE t (a text, b int, c numeric, d timestamptz, PRIMARY KEY (a, b))")
        self.db.sql("INSERT INTO t VALUES ('x', 1, 1.50, '2026-01-02T03:04:05Z'), ('x', 2, NULL, NULL)")
        table = self.db.table("t")
        row = table.get("x", 1)
        assert row is not None
        self.assertEqual(row, self.db.sql("SELECT * FROM t WHERE b = 1").one())
        self.assertEqual((row.a, row["b"], str(row.c), row.d.year), ("x", 1, "1.50", 2026))
        self.assertEqual((table.get("x", 2), table.get("y", 1), table.get(None, 1)), (("x", 2, None, None), None, None))
        with self.assertRaises(ropewalk.InvalidArgument):
            table.get("x")
        with self.assertRaises(ropewalk.InvalidArgument):
            table.get("x", "one")
        with self.assertRaises(NotFound):
            self.db.table("nothing")

    def test_row_has_the_columns_of_the_current_definition(self) -> None:
        self.db.sql("CREATE TABLE t (id int PRIMARY KEY, old int)")
        self.db.sql("INSERT INTO t VALUES (1, 2)")
        table = self.db.table("t")
        self.assertEqual(table.get(1), (1, 2))
        self.db.script("ALTER TABLE t RENAME COLUMN old TO fresh; ALTER TABLE t ADD COLUMN more text DEFAULT 'x'")
        row = table.get(1)
        assert row is not None
        self.assertEqual((row.fresh, row.more), (2, "x"))


if __name__ == "__main__":
    unittest.main()
