"""The asyncio client."""

from __future__ import annotations

import asyncio

import ropewalk
from ropewalk import aio, where

from .support import Case


class Aio(Case):
    def test_database_is_used_from_coroutines(self) -> None:
        asyncio.run(self.use())

    async def use(self) -> None:
        async with self.async_database() as db:
            store = db.events(self.name)
            await asyncio.gather(*[store.append({"type": "A", "data": n}) for n in range(100)])
            self.assertEqual(await store.count(), 100)
            self.assertEqual(sorted([one.data async for one in store.read()]), list(range(100)))
            done = await store.decide(where("A"), lambda events: {"type": "B", "data": len(events)})
            self.assertEqual(done.attempts, 1)
            await db.sql(f"CREATE TABLE {self.name} (n int)")
            async with db.transaction() as tx:
                tx.append(store, {"type": "C"})
                inserted = tx.sql(f"INSERT INTO {self.name} VALUES (0)")
            self.assertEqual(inserted.result.rowcount, 1)
            with self.assertRaises(ZeroDivisionError):
                async with db.transaction() as tx:
                    tx.append(store, {"type": "C"})
                    raise ZeroDivisionError
            async with db.begin() as open_tx:
                await open_tx.append(store, {"type": "D"})
                self.assertEqual(len(await open_tx.read(store, where("D"))), 1)
            with self.assertRaises(ZeroDivisionError):
                async with db.begin() as open_tx:
                    await open_tx.append(store, {"type": "D"})
                    raise ZeroDivisionError

            async def increment(tx: aio.AsyncTransaction) -> None:
                n = (await tx.sql(f"SELECT n FROM {self.name}")).scalar()
                await tx.sql(f"UPDATE {self.name} SET n = $1", [n + 1])

            await asyncio.gather(*[db.run(increment) for _ in range(5)])
            self.assertEqual((await db.sql(f"SELECT n FROM {self.name}")).scalar(), 5)
            self.assertEqual(await store.count(where("C") | where("D")), 2)
            people = db.documents(self.name)
            await people.insert([{"_id": n} for n in range(3)])
            self.assertEqual([one async for one in people.find({"_id": {"$gt": 0}})], [{"_id": 1}, {"_id": 2}])
            self.assertEqual((await db.promql("1"))[0].value, 1)

    def test_subscription_and_group_deliver_events(self) -> None:
        asyncio.run(self.consume())

    async def consume(self) -> None:
        async with self.async_database() as db:
            store = db.events(self.name)
            group = await store.group("g").create(where("A"), pause=0.01)
            seen: list[int] = []
            handled: list[int] = []

            async def follow() -> None:
                async for one in store.subscribe(where("A")):
                    seen.append(one.data)
                    if len(seen) == 20:
                        return

            async def handle(one: ropewalk.Event) -> None:
                await asyncio.sleep(0)
                if one.data == 3 and 3 not in handled:
                    handled.append(3)
                    raise RuntimeError("once")
                handled.append(one.data)

            following = asyncio.create_task(follow())
            endless = asyncio.create_task(group.work(handle, workers=2))
            for n in range(20):
                await store.append({"type": "A", "data": n})
            await asyncio.wait_for(following, 20)
            while len(handled) < 21:
                await asyncio.sleep(0.01)
            endless.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await endless
            self.assertEqual(seen, list(range(20)))
            self.assertEqual(sorted(handled), sorted([*range(20), 3]))
