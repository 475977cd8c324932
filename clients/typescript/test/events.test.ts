import assert from "node:assert/strict";
import { test } from "node:test";
import { Ropewalk, RopewalkError, isConflict, isRetryable } from "../src/index.js";
import { left, shopOf } from "./shop.js";
import { Proxy, startServer } from "./server.js";

const server = await startServer();
const db = new Ropewalk({ url: server.url });

test("append and read return typed events with derived tags", async () => {
  const shop = shopOf(db, "typed");
  const appended = await shop.append([
    { type: "ProductAdded", data: { sku: "rope", count: 3 }, metadata: { by: "ann" } },
    { type: "OrderPlaced", data: { order: "o1", sku: "rope", count: 1 }, tags: ["vip"], id: "5f3c0d2e-93ae-4a64-8f12-9e2a50c9b2d1" },
  ]);
  assert.deepEqual([appended.first, appended.last], [1, 2]);
  const stream = await shop.read({ types: ["OrderPlaced"] });
  assert.equal(stream.head, 2);
  const [order] = await stream.toArray();
  assert.ok(order);
  // The type of the event is that of the query.
  const count: number = order.data.count;
  assert.equal(count, 1);
  assert.deepEqual(order.tags, ["order:o1", "sku:rope", "vip"]);
  assert.equal(order.id, "5f3c0d2e-93ae-4a64-8f12-9e2a50c9b2d1");
  assert.ok(Math.abs(Date.parse(order.recordedAt) - Date.now()) < 60_000);
  const last = await shop.last({ types: ["ProductAdded"] });
  assert.deepEqual(last?.metadata, { by: "ann" });
  assert.equal(await shop.last({ tags: ["none"] }), null);
  assert.equal(await shop.count({ tags: ["sku:rope"] }), 2);
  assert.equal(await shop.count({ typePrefixes: ["Order"] }), 1);
  assert.equal(await shop.exists({ tagPrefixes: ["order:"] }, { after: 1 }), true);
  assert.equal(await shop.exists({ tagPrefixes: ["order:"] }, { after: 2 }), false);
  assert.equal(await shop.head(), 2);
  // @ts-expect-error: no such type of event
  await assert.rejects(() => shop.append({ type: "Nothing", data: {}, tags: [""] }), RopewalkError);
  // @ts-expect-error: the data of another type
  const wrong = () => shop.append({ type: "OrderPaid", data: { sku: "rope" } });
  assert.equal(typeof wrong, "function");
});

test("read streams many events in both directions and stops early", async () => {
  const store = db.events<{ Counted: number }>("many");
  const total = 20_000;
  for (let from = 0; from < total; from += 5_000) {
    await store.append(Array.from({ length: 5_000 }, (_, index) => ({ type: "Counted" as const, data: from + index })));
  }
  const all = await (await store.read()).toArray();
  assert.equal(all.length, total);
  assert.ok(all.every((event, index) => event.data === index && event.position === index + 1));
  const newest = await (await store.read({}, { backwards: true, limit: 3 })).toArray();
  assert.deepEqual(newest.map((event) => event.data), [total - 1, total - 2, total - 3]);
  let seen = 0;
  for await (const event of await store.read({ types: ["Counted"] }, { after: 10, before: 15_000 })) {
    seen = event.position;
    if (seen === 100) break;
  }
  assert.equal(seen, 100);
});

test("read whose connection breaks continues after the last event", async () => {
  const proxy = await Proxy.start(server.url);
  try {
    const store = new Ropewalk({ url: proxy.url }).events<{ Counted: number }>("broken");
    const large = "x".repeat(1_000);
    const direct = db.events("broken");
    for (let from = 0; from < 4; from++) {
      await direct.append(Array.from({ length: 4_000 }, (_, index) => ({ type: "Counted", data: { n: from * 4_000 + index, large } })));
    }
    for (const backwards of [false, true]) {
      const positions: number[] = [];
      const stream = await store.read({}, { backwards, limit: 15_000 });
      // Not part of the snapshot of the read.
      await direct.append({ type: "Counted", data: {} });
      for await (const event of stream) {
        positions.push(event.position);
        if (positions.length === 1_000) proxy.break();
      }
      const start = backwards ? stream.head : 1;
      assert.deepEqual(positions, Array.from({ length: 15_000 }, (_, index) => start + (backwards ? -index : index)));
    }
    assert.ok(proxy.connections >= 3);
  } finally {
    await proxy.stop();
  }
});

test("condition that fails reports the conflicting event", async () => {
  const shop = shopOf(db, "conditions");
  const unused = { failIfEventsMatch: { tags: ["order:o1"] } } as const;
  const placed = { type: "OrderPlaced", data: { order: "o1", sku: "rope", count: 1 } } as const;
  await shop.append(placed, { conditions: unused });
  const error = await shop.append(placed, { conditions: unused }).catch((error: unknown) => error);
  assert.ok(error instanceof RopewalkError);
  assert.deepEqual([error.code, error.status, error.conflict?.position], ["condition_failed", 409, 1]);
  assert.ok(isConflict(error) && !isRetryable(error));
  await shop.append(placed, { conditions: { ...unused, after: 1 } });
  await shop.append(placed, { conditions: { failIfEventsMatch: { tagPrefixes: ["nothing"] } } });
});

test("empty list of items is rejected, not read as every event", async () => {
  const shop = shopOf(db, "conditions");
  await assert.rejects(shop.count([]), TypeError);
  assert.equal(await shop.count({}), await shop.head());
});

test("append whose response is lost is sent again and takes effect once", async () => {
  const proxy = await Proxy.start(server.url);
  try {
    const shop = shopOf(new Ropewalk({ url: proxy.url }), "once");
    await shop.append({ type: "OrderPaid", data: { order: "o0" } });
    proxy.dropResponses = 2;
    const appended = await shop.append({ type: "OrderPaid", data: { order: "o1" } });
    assert.deepEqual([appended.first, await shop.head(), proxy.dropResponses], [2, 2, 0]);
    // Without a key the outcome is unknown, and the client does not repeat it.
    proxy.dropResponses = 1;
    const error = await shop.append({ type: "OrderPaid", data: { order: "o2" } }, { idempotencyKey: false }).catch((error: unknown) => error);
    assert.ok(error instanceof RopewalkError && error.code === "network" && isRetryable(error));
    assert.equal(await shop.head(), 3);
  } finally {
    await proxy.stop();
  }
});

test("idempotency key of the application is applied once and rejects other events", async () => {
  const shop = shopOf(db, "keys");
  const paid = (order: string) => shop.append({ type: "OrderPaid", data: { order } }, { idempotencyKey: "pay" });
  const first = await paid("o1");
  assert.deepEqual(await paid("o1"), first);
  await assert.rejects(paid("o2"), { code: "idempotency_mismatch", status: 422 });
  await assert.rejects(shop.append({ type: "OrderPaid", data: { order: "" } }, { idempotencyKey: "ü" }), TypeError);
});

test("concurrent decisions never sell more than there is", async () => {
  const shop = shopOf(db, "decisions");
  await shop.append({ type: "ProductAdded", data: { sku: "rope", count: 10 } });
  const buy = (order: string) => shop.decide({
    model: left(shop, "rope"),
    attempts: 100,
    decide: (left) => {
      if (left < 1) throw new Error("out of stock");
      return { type: "OrderPlaced", data: { order, sku: "rope", count: 1 } };
    },
  });
  const results = await Promise.allSettled(Array.from({ length: 25 }, (_, index) => buy(`o${index}`)));
  const refused = results.filter((result) => result.status === "rejected");
  assert.deepEqual(refused.map((result) => (result.reason as Error).message), Array<string>(15).fill("out of stock"));
  assert.equal((await shop.load(left(shop, "rope"))).state, 0);
  assert.ok(results.some((result) => result.status === "fulfilled" && result.value.attempts > 1));
});

test("decision writes other models in the same commit, and only if its state holds", async () => {
  const shop = shopOf(db, "decides");
  await shop.append({ type: "ProductAdded", data: { sku: "rope", count: 1 } });
  const orders = db.collection<{ _id: string; sku: string }>("decided");
  const model = shop.combine({
    rope: left(shop, "rope"),
    used: shop.model({ query: { tags: ["order:o1"] }, initial: () => false, evolve: () => true }),
  });
  let calls = 0;
  const decision = await shop.decide({
    model,
    decide: async ({ rope, used }, tx) => {
      // Another writer, between the read and the commit.
      if (calls++ === 0) await shop.append({ type: "ProductAdded", data: { sku: "rope", count: 5 } });
      assert.equal(used, false);
      tx.documents(orders).insert({ _id: "o1", sku: "rope" });
      return { type: "OrderPlaced", data: { order: "o1", sku: "rope", count: rope } };
    },
  });
  assert.deepEqual([decision.attempts, decision.state.rope, decision.first], [2, 6, 3]);
  assert.deepEqual(await orders.get("o1"), { _id: "o1", sku: "rope" });
  // Without events the state is a precondition.
  calls = 0;
  const noted = await shop.decide({
    model,
    decide: async ({ used }, tx) => {
      if (calls++ === 0) await shop.append({ type: "OrderPaid", data: { order: "o1" } });
      tx.documents(orders).update({ _id: "o1" }, { $set: { used } });
      return [];
    },
  });
  assert.deepEqual([noted.attempts, noted.first], [2, null]);
  const nothing = await shop.decide({ model, decide: () => [] });
  assert.equal(nothing.seq, null);
});

test("errors carry the code and the status of the server", async () => {
  const gone = new Ropewalk({ url: "http://127.0.0.1:9", retry: { attempts: 2, minDelayMs: 1 } });
  await assert.rejects(gone.events("shop").head(), { code: "network", status: 0 });
  const slow = new Ropewalk({ url: server.url, timeoutMs: 50 });
  await assert.rejects(async () => {
    const group = slow.events("slow").group("g", {});
    await group.create();
    await group.take({ waitMs: 10_000 });
  }, { code: "network", detail: "no complete response in 50 ms" });
  await assert.rejects(db.events("shop").read({}, { signal: AbortSignal.abort(new Error("stop")) }), { message: "stop" });
});

test("fetch of the caller is used, with credentials and the path", async () => {
  const seen: [string, string | null][] = [];
  const fetched: typeof fetch = async (input, init) => {
    seen.push([String(input), new Headers(init?.headers).get("authorization")]);
    return Response.json({ head: 7 });
  };
  const client = new Ropewalk({ url: "http://db.example/", user: "ann", password: "pä:ss", fetch: fetched });
  assert.equal(await client.events("a/b").head(), 7);
  assert.deepEqual(seen, [["http://db.example/v1/stores/a%2Fb/head", `Basic ${Buffer.from("ann:pä:ss").toString("base64")}`]]);
});

test("overload is waited out for the time that the server asks for", async () => {
  let calls = 0;
  const fetched: typeof fetch = async () => {
    calls++;
    if (calls < 3) return Response.json({ code: "resource_exhausted", detail: "busy" }, { status: 429, headers: { "retry-after": "0" } });
    return Response.json({ head: 1 });
  };
  const client = new Ropewalk({ url: "http://db.example", fetch: fetched, retry: { minDelayMs: 1 } });
  assert.equal(await client.events("shop").head(), 1);
  assert.equal(calls, 3);
});
