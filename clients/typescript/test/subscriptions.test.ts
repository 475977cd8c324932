import assert from "node:assert/strict";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { Park, RetryLater, Ropewalk, RopewalkError } from "../src/index.js";
import { shopOf } from "./shop.js";
import { Proxy, startServer, until } from "./server.js";

const server = await startServer();
const db = new Ropewalk({ url: server.url });

const paid = (order: string) => ({ type: "OrderPaid", data: { order } }) as const;

for (const format of ["ndjson", "sse"] as const) {
  test(`subscription (${format}) resumes by position when its connection breaks`, async () => {
    const proxy = await Proxy.start(server.url);
    const shop = shopOf(db, `resumed-${format}`);
    await shop.append([paid("o1"), { type: "ProductAdded", data: { sku: "rope", count: 1 } }, paid("o2")]);
    const stop = new AbortController();
    const orders: string[] = [];
    const heads: number[] = [];
    let breaks = 0;
    const reading = (async () => {
      const through = shopOf(new Ropewalk({ url: proxy.url, retry: { minDelayMs: 1 } }), shop.name);
      const options = { query: { types: ["OrderPaid"] }, format, signal: stop.signal, onCaughtUp: (head: number) => heads.push(head), onDisconnect: () => breaks++ } as const;
      for await (const event of through.subscribe(options)) orders.push(event.data.order);
    })();
    await until(() => orders.length === 2);
    for (let number = 3; number < 13; number++) {
      proxy.break();
      await shop.append(paid(`o${number}`));
      await until(() => orders.length === number);
    }
    stop.abort();
    await reading;
    assert.deepEqual(orders, Array.from({ length: 12 }, (_, index) => `o${index + 1}`));
    assert.equal(heads[0], 3);
    assert.ok(breaks >= 9);
    await proxy.stop();
  });
}

test("subscription from the head delivers new events only, also of a new store", async () => {
  const shop = shopOf(db, "heads");
  const orders: string[] = [];
  const read = async (caughtUp: () => void) => {
    for await (const event of shop.subscribe({ query: { types: ["OrderPaid"] }, after: "head", onCaughtUp: caughtUp })) {
      orders.push(event.data.order);
      break;
    }
  };
  for (const order of ["o1", "o2"]) {
    let reading: Promise<void> | undefined;
    await new Promise<void>((ready) => (reading = read(ready)));
    await shop.append(paid(order));
    await reading;
  }
  assert.deepEqual(orders, ["o1", "o2"]);
});

test("subscription continues over a restart of the server", async () => {
  const shop = shopOf(db, "restarted");
  await shop.append(paid("o1"));
  const orders: string[] = [];
  const stop = new AbortController();
  const reading = (async () => {
    for await (const event of shop.subscribe({ signal: stop.signal })) if (event.type === "OrderPaid") orders.push(event.data.order);
  })();
  await until(() => orders.length === 1);
  await server.stop();
  // The append waits for the server, with its key.
  const append = shop.append(paid("o2"));
  await server.restart();
  await append;
  await until(() => orders.length === 2);
  stop.abort();
  await reading;
});

test("silent connection is replaced", async () => {
  const shop = shopOf(db, "silent");
  const stop = new AbortController();
  const errors: string[] = [];
  const reading = (async () => {
    // The heartbeat of the server is later than this limit.
    for await (const _ of shop.subscribe({ signal: stop.signal, heartbeatTimeoutMs: 20, onDisconnect: (error) => errors.push(error.detail) }));
  })();
  await until(() => errors.length >= 2);
  stop.abort();
  await reading;
  assert.deepEqual(errors.slice(0, 2), ["no data in 20 ms", "no data in 20 ms"]);
});

test("checkpoint stores a position from which a subscription starts", async () => {
  const shop = shopOf(db, "checkpoints");
  await shop.append([paid("o1"), paid("o2")]);
  const board = shop.checkpoint("board");
  assert.equal(await board.get(), 0);
  await board.set(1);
  assert.deepEqual(await shop.checkpoints(), new Map([["board", 1]]));
  for await (const event of shop.subscribe({ checkpoint: "board" })) {
    assert.equal(event.position, 2);
    break;
  }
  await assert.rejects(board.set(9), RopewalkError);
  await board.delete();
  assert.equal(await board.get(), 0);
});

test("checkpoints are read page by page", async () => {
  const pages: Record<string, object> = {
    "": { checkpoints: [{ consumer: "a", position: 1 }], next: "a" },
    a: { checkpoints: [{ consumer: "b", position: 2 }] },
  };
  const paged = createServer((request, response) => {
    const after = new URL(request.url ?? "", "http://host").searchParams.get("after") ?? "";
    response.setHeader("content-type", "application/json").end(JSON.stringify(pages[after]));
  });
  await new Promise<void>((done) => paged.listen(0, "127.0.0.1", done));
  const url = `http://127.0.0.1:${(paged.address() as AddressInfo).port}`;
  assert.deepEqual(await shopOf(new Ropewalk({ url }), "s").checkpoints(), new Map([["a", 1], ["b", 2]]));
  paged.closeAllConnections();
  await new Promise((done) => paged.close(done));
});

test("group acknowledges, retries with the reason, and parks", async () => {
  const shop = shopOf(db, "groups");
  await shop.append(["o1", "o2", "o3", "o4", "o5"].map(paid));
  const group = shop.group("mailer", { query: { types: ["OrderPaid"] }, tries: 2, pauseMs: 1 });
  await group.create();
  const tries = new Map<string, number>();
  const stop = new AbortController();
  const errors: unknown[] = [];
  const consuming = group.each(async (event, delivery) => {
    const { order } = event.data;
    tries.set(order, delivery.tries);
    await sleep(1);
    if (order === "o2") throw new Error(`no address ${delivery.tries}`);
    if (order === "o3") throw new Park("unknown customer");
    if (order === "o4" && delivery.tries === 1) throw new RetryLater("busy", { pauseMs: 5 });
  }, { concurrency: 3, signal: stop.signal, onError: (error) => errors.push(error) });
  await until(async () => {
    const { waiting, pending, parked } = await group.status();
    return waiting === 0 && pending === 0 && parked === 2;
  });
  stop.abort();
  await consuming;
  assert.deepEqual(Object.fromEntries(tries), { o1: 1, o2: 2, o3: 1, o4: 2, o5: 1 });
  const parked = await group.parked();
  assert.deepEqual(parked.map((one) => [one.event.data.order, one.tries, one.reason]), [["o2", 2, "no address 2"], ["o3", 1, "unknown customer"]]);
  assert.equal(errors.length, 4);
  assert.equal((await group.replayParked([2])).done, 1);
  assert.equal((await group.discardParked()).done, 1);
  const lease = await group.take({ max: 5, waitMs: 1_000 });
  assert.deepEqual(lease?.events.map(({ event }) => event.position), [2]);
  assert.ok(lease && (await group.acknowledge(lease)).done === 1);
  await group.delete();
  await assert.rejects(shop.group("mailer").each(() => {}), { code: "not_found" });
});

test("group in order processes one event at a time, also after a failure", async () => {
  const shop = shopOf(db, "ordered");
  await shop.append(Array.from({ length: 20 }, (_, index) => paid(`o${index}`)));
  const group = shop.group("serial", { query: { types: ["OrderPaid"] }, inOrder: true, pauseMs: 1 });
  const stop = new AbortController();
  const done: number[] = [];
  let running = 0;
  await group.each(async (event, { tries }) => {
    assert.equal(++running, 1);
    await sleep(1);
    running--;
    if (event.position % 7 === 0 && tries === 1) throw new Error("first try");
    done.push(event.position);
    if (done.length === 20) stop.abort();
  }, { concurrency: 5, signal: stop.signal });
  assert.deepEqual(done, Array.from({ length: 20 }, (_, index) => index + 1));
  assert.equal((await group.status()).pending, 0);
});

test("lease is extended while a handler runs", async () => {
  const shop = shopOf(db, "leases");
  await shop.append(paid("o1"));
  const group = shop.group("slow", { leaseMs: 300 });
  const stop = new AbortController();
  let calls = 0;
  await group.each(async () => {
    calls++;
    await sleep(1_000);
    stop.abort();
  }, { signal: stop.signal });
  assert.equal(calls, 1);
  assert.deepEqual([(await group.status()).pending, (await group.status()).waiting], [0, 0]);
});

test("consumers of a group share its events, and each is processed once", async () => {
  const shop = shopOf(db, "shared");
  await shop.append(Array.from({ length: 100 }, (_, index) => paid(`o${index}`)));
  const group = shop.group("shared", {});
  const stop = new AbortController();
  const seen: number[] = [];
  const consumer = () => group.each(async (event) => {
    await sleep(2);
    seen.push(event.position);
    if (seen.length === 100) stop.abort();
  }, { concurrency: 4, signal: stop.signal });
  await Promise.all([consumer(), consumer(), consumer()]);
  assert.deepEqual(seen.sort((a, b) => a - b), Array.from({ length: 100 }, (_, index) => index + 1));
});

test("follow keeps effects and checkpoint in one commit, and fences a second worker", async () => {
  const shop = shopOf(db, "followed");
  await db.sql`CREATE TABLE paid (orders int NOT NULL)`;
  await db.sql`INSERT INTO paid VALUES (0)`;
  await shop.append(Array.from({ length: 250 }, (_, index) => paid(`o${index}`)));
  const proxy = await Proxy.start(server.url);
  const through = shopOf(new Ropewalk({ url: proxy.url, retry: { minDelayMs: 1 } }), "followed");
  const stop = new AbortController();
  const total = async () => (await db.query<{ orders: number }>("SELECT orders FROM paid"))[0]?.orders;
  let delivered = 0;
  const work = (store: typeof shop) => store.follow("board", (_event, tx) => {
    if (++delivered % 50 === 0) proxy.break();
    tx.sql`UPDATE paid SET orders = orders + 1`;
  }, { query: { types: ["OrderPaid"] }, signal: stop.signal, batch: 20 });
  const first = work(through);
  await until(async () => (await total()) === 250);
  // Two workers: one of them meets the checkpoint of the other.
  const second = work(shop);
  const ended = Promise.race([first, second]);
  ended.catch(() => {});
  await Promise.all(Array.from({ length: 20 }, (_, index) => shop.append(paid(`p${index}`))));
  await assert.rejects(ended, { code: "fenced", status: 412 });
  await until(async () => (await total()) === 270);
  stop.abort();
  await Promise.allSettled([first, second]);
  assert.equal(await shop.checkpoint("board").get(), 270);
  await proxy.stop();
});
