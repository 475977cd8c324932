import assert from "node:assert/strict";
import { test } from "node:test";
import { Ropewalk, RopewalkError, isConflict } from "../src/index.js";
import { shopOf } from "./shop.js";
import { Proxy, startServer } from "./server.js";

const server = await startServer();
const db = new Ropewalk({ url: server.url });
await db.script("CREATE TABLE stock (sku text PRIMARY KEY, n int NOT NULL CHECK (n >= 0)); INSERT INTO stock VALUES ('rope', 100), ('hook', 1)");

const stock = async (sku: string) => (await db.query<{ n: number }>("SELECT n FROM stock WHERE sku = $1", [sku]))[0]?.n;
const placed = (order: string, count = 1) => ({ type: "OrderPlaced", data: { order, sku: "rope", count } }) as const;

test("transaction over four models is one commit with typed results", async () => {
  const shop = shopOf(db, "four");
  await db.events("four").append({ type: "ProductAdded", data: {} });
  type Order = { _id: string; at: Date };
  const { seq, repeated, results } = await db.transaction((tx) => {
    const orders = tx.documents<Order>("orders");
    const append = tx.append(shop, placed("o1"), { conditions: { failIfEventsMatch: { tags: ["order:o1"] } } });
    const update = tx.sql<{ n: number }>`UPDATE stock SET n = n - ${2} WHERE sku = ${"rope"} RETURNING n`.expect(1);
    orders.insert({ _id: "o1", at: new Date(1_732_406_400_000) });
    const order = orders.get("o1").expect(1);
    tx.samples([{ name: "sold", labels: { sku: "rope" }, value: 2 }, { name: "sold", labels: { sku: "hook" }, samples: [[Date.now() - 1000, 1], [new Date(), 2]] }]);
    tx.checkpoint(shop, "board", 1);
    return [append, update, order, tx.read(shop, { types: ["OrderPlaced"] })];
  });
  const [append, update, order, events] = results;
  assert.deepEqual(append, { first: 2, last: 2 });
  assert.deepEqual([update.command, update.rowCount, update.rows[0]?.n], ["UPDATE 1", 1, 98]);
  assert.equal(order?.at.getTime(), 1_732_406_400_000);
  assert.equal(events[0]?.data.order, "o1");
  assert.ok(seq > 0 && !repeated);
  assert.equal(await shop.checkpoint("board").get(), 1);
  assert.deepEqual(await db.collection<Order>("orders").get("o1"), { _id: "o1", at: new Date(1_732_406_400_000) });
  const sold = await db.prom.query("sold");
  assert.deepEqual(sold.map(({ labels, value }) => [labels["sku"], value]).sort(), [["hook", 2], ["rope", 2]]);
  assert.equal((await db.prom.query("sum(sold)"))[0]?.value, 4);
  const range = await db.prom.queryRange("sold{sku='hook'}", { start: Date.now() - 10_000, stepMs: 1000 });
  assert.ok(range[0] && range[0].samples.some(([, value]) => value === 2));
  await assert.rejects(db.prom.query("sold{"), { code: "bad_data", status: 400 });
  // Without a returned value there is a result for each operation.
  const all = await db.transaction((tx) => {
    tx.sql`SELECT 1 AS one`;
    tx.documents("orders").find({ _id: "none" });
  });
  assert.equal(all.results.length, 2);
  // A single operation.
  const one = await db.transaction((tx) => tx.sql<{ one: number }>`SELECT 1 AS one`);
  assert.equal(one.results.rows[0]?.one, 1);
});

test("failed operation rolls back and is named", async () => {
  const shop = shopOf(db, "failed");
  const failed = async (build: Parameters<typeof db.transaction>[0]) => {
    const error = await db.transaction((tx) => {
      tx.append(shop, placed("o1"));
      build(tx);
    }).catch((error: unknown) => error);
    assert.ok(error instanceof RopewalkError);
    return error;
  };
  const check = await failed((tx) => tx.sql`UPDATE stock SET n = ${-1}`);
  assert.deepEqual([check.status, check.sqlstate, check.constraint, check.operation], [400, "23514", "stock_n_check", 1]);
  const missed = await failed((tx) => tx.sql`UPDATE stock SET n = 0 WHERE sku = ${"none"}`.expect(1));
  assert.deepEqual([missed.code, missed.operation, isConflict(missed)], ["precondition_failed", 1, false]);
  const required = await failed((tx) => tx.require.sql`SELECT 1 FROM stock WHERE sku = ${"none"}`);
  assert.deepEqual([required.code, required.precondition, isConflict(required)], ["precondition_failed", 0, true]);
  const documents = await failed((tx) => tx.require.documents("orders", { _id: "none" }));
  assert.equal(documents.precondition, 0);
  assert.equal(await shop.head(), 0);
  await db.transaction((tx) => {
    tx.require.events(shop, { types: ["OrderPlaced"] });
    tx.require.sql`SELECT sku FROM stock`.expect(2);
    tx.require.documents("orders", { _id: "none" }, 0);
    tx.append(shop, placed("o1"));
  });
  assert.equal(await shop.head(), 1);
});

test("transaction whose response is lost is sent again and takes effect once", async () => {
  const proxy = await Proxy.start(server.url);
  try {
    const through = new Ropewalk({ url: proxy.url, retry: { minDelayMs: 1 } });
    const before = await stock("rope");
    const take = (options?: { idempotencyKey: false }) => through.transaction((tx) => tx.sql`UPDATE stock SET n = n - 1 WHERE sku = 'rope'`, options);
    proxy.dropResponses = 3;
    const { repeated, results } = await take();
    assert.deepEqual([repeated, results.rowCount], [true, 1]);
    assert.equal(await stock("rope"), before! - 1);
    proxy.dropResponses = 1;
    await assert.rejects(take({ idempotencyKey: false }), { code: "network" });
    assert.equal(await stock("rope"), before! - 2);
    const counters = through.collection<{ _id: string; n: number }>("counters");
    await counters.insert({ _id: "c", n: 0 });
    proxy.dropResponses = 1;
    await counters.update({ _id: "c" }, { $inc: { n: 1 } });
    assert.deepEqual(await counters.get("c"), { _id: "c", n: 1 });
  } finally {
    await proxy.stop();
  }
});

test("key of the application repeats the results", async () => {
  const take = () => db.transaction((tx) => tx.sql<{ n: number }>`UPDATE stock SET n = n - 1 WHERE sku = 'rope' RETURNING n`, { idempotencyKey: "take-1" });
  const first = await take();
  const second = await take();
  assert.deepEqual([second.repeated, second.seq, second.results], [true, first.seq, first.results]);
});

test("operation is awaited after its transaction, not before", async () => {
  await assert.rejects(db.transaction(async (tx) => void (await tx.sql`SELECT 1`)), TypeError);
  const { results } = await db.transaction(async (tx) => {
    await Promise.resolve();
    return [tx.sql<{ n: number }>`SELECT 7 AS n`];
  });
  assert.equal(results[0]?.rows[0]?.n, 7);
});

test("interactive transaction reads, decides and commits once", async () => {
  const shop = shopOf(db, "interactive");
  const tx = await db.begin();
  const { rows } = await tx.sql<{ n: number }>`SELECT n FROM stock WHERE sku = ${"rope"}`;
  const left = rows[0]!.n;
  // Three operations in one request.
  const [update, appended, inserted] = await Promise.all([
    tx.sql`UPDATE stock SET n = ${left - 3} WHERE sku = ${"rope"}`.expect(1),
    tx.append(shop, placed("o1", 3)),
    tx.documents("interactive").insert({ _id: "o1" }),
  ]);
  assert.deepEqual([update.rowCount, appended, inserted], [1, { first: null, last: null }, "o1"]);
  assert.equal(await stock("rope"), left);
  const committed = await tx.commit();
  assert.deepEqual(committed.appended, [{ store: "interactive", first: 1, last: 1 }]);
  assert.equal(await stock("rope"), left - 3);
  await assert.rejects(async () => tx.commit(), TypeError);
  assert.throws(() => tx.sql`SELECT 1`, TypeError);
});

test("interactive transaction is rolled back by the end of its block and by an error", async () => {
  const before = await stock("rope");
  {
    await using tx = await db.begin();
    await tx.sql`UPDATE stock SET n = 0`;
  }
  assert.equal(await stock("rope"), before);
  const tx = await db.begin({ isolation: "snapshot" });
  tx.sql`UPDATE stock SET n = -1`;
  await assert.rejects(tx.commit(), { sqlstate: "23514", operation: 0 });
  await tx.rollback();
  assert.equal(await stock("rope"), before);
});

test("retry runs an interactive transaction again after a conflict", async () => {
  const before = (await stock("rope"))!;
  await Promise.all(Array.from({ length: 5 }, () => db.retry(async () => {
    await using tx = await db.begin();
    const { rows } = await tx.sql<{ n: number }>`SELECT n FROM stock WHERE sku = 'rope'`;
    tx.sql`UPDATE stock SET n = ${rows[0]!.n - 1} WHERE sku = 'rope'`;
    await tx.commit();
  }, { attempts: 50 })));
  assert.equal(await stock("rope"), before - 5);
});

test("parameters and rows of SQL have the types of JavaScript", async () => {
  const bytes = new Uint8Array([0, 255]);
  const { rows, columns } = await db.sql<Record<string, unknown>>`
    SELECT ${1}::int AS i, ${"it's"}::text AS t, ${true}::bool AS b, ${null}::text AS nothing, ${2n ** 60n}::text AS big,
      ${new Date(0)}::timestamptz = 'epoch' AS epoch, ${bytes}::bytea AS bytes, ${["a,b", 'c"\\', null]}::text[] AS texts,
      ${[1, 2]}::int[] AS ints, ${{ a: [1] }}::jsonb AS json, ${1.5}::numeric AS n, ${Infinity}::float8 AS inf`;
  assert.deepEqual(rows[0], {
    i: 1, t: "it's", b: true, nothing: null, big: String(2n ** 60n), epoch: true, bytes: "\\x00ff",
    texts: '{"a,b","c\\"\\\\",NULL}', ints: "{1,2}", json: { a: [1] }, n: "1.5", inf: "Infinity",
  });
  assert.equal(columns[0]?.type, "integer");
  await assert.rejects(db.query("SELECT * FROM missing"), { code: "not_found", sqlstate: "42P01" });
  await assert.rejects(db.sql`SELECT ${undefined as unknown as string}`, TypeError);
  const script = await db.script("SELECT 1; SELECT 2 AS two");
  assert.deepEqual(script.map((result) => result.command), ["SELECT 1", "SELECT 1"]);
});

test("documents are found, changed under conditions, and removed", async () => {
  type Person = { _id: string; age: number; born?: Date; photo?: Uint8Array };
  const people = db.collection<Person>("people", { database: "town" });
  const born = new Date("1984-02-29T00:00:00.000Z");
  assert.deepEqual(await people.insertMany([{ _id: "ann", age: 41, born, photo: new Uint8Array([1, 2]) }, { _id: "bob", age: 17 }]), ["ann", "bob"]);
  await assert.rejects(people.insert({ _id: "ann", age: 1 }), { code: "already_exists" });
  assert.deepEqual(await people.get("ann"), { _id: "ann", age: 41, born, photo: new Uint8Array([1, 2]) });
  assert.equal(await people.get("none"), null);
  const adults: string[] = [];
  for await (const person of people.find({ age: { $gte: 18 } }, { sort: { age: -1 }, limit: 5 })) adults.push(person._id);
  assert.deepEqual(adults, ["ann"]);
  assert.equal((await people.findOne({ born }))?._id, "ann");
  assert.equal(await people.count(), 2);
  assert.deepEqual((await people.distinct<number>("age")).sort(), [17, 41]);
  assert.deepEqual(await people.aggregate([{ $group: { _id: null, total: { $sum: "$age" } } }]), [{ _id: null, total: 58 }]);
  assert.deepEqual(await people.update({ age: { $gt: 0 } }, { $inc: { age: 1 } }, { many: true }), { matched: 2, modified: 2, upsertedId: null });
  assert.deepEqual((await people.update({ _id: "eve" }, { $set: { age: 3 } }, { upsert: true })).upsertedId, "eve");
  const tagged = await people.getTagged("bob");
  assert.ok(tagged);
  const { tag, created } = await people.put("bob", { age: 20 }, { ifMatch: tagged.tag });
  assert.equal(created, false);
  const stale = await people.patch("bob", { $inc: { age: 1 } }, { ifMatch: tagged.tag }).catch((error: unknown) => error);
  assert.ok(isConflict(stale) && stale.status === 412);
  assert.equal((await people.patch("bob", { $inc: { age: 1 } }, { ifMatch: tag })).age, 21);
  await assert.rejects(people.put("bob", { age: 1 }, { ifAbsent: true }), { code: "precondition_failed" });
  assert.equal((await people.modify({ _id: "bob" }, { update: { $set: { age: 5 } }, after: true }))?.age, 5);
  assert.equal((await people.modify({ _id: "eve" }, { delete: true }))?.age, 3);
  assert.equal(await people.createIndex(["age"]), "age_1");
  await people.deleteById("ann");
  assert.equal(await people.delete({}, { many: true }), 1);
  const numbered = db.collection<{ _id: number | { $oid: string } }>("numbered");
  await numbered.insertMany([{ _id: 7 }, { _id: { $oid: "507f1f77bcf86cd799439011" } }]);
  assert.deepEqual(await numbered.get(7), { _id: 7 });
  assert.deepEqual(await numbered.get({ $oid: "507f1f77bcf86cd799439011" }), { _id: { $oid: "507f1f77bcf86cd799439011" } });
});
