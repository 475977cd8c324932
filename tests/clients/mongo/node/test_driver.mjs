// MongoDB's Node driver as it is published, with its defaults, against `ropewalk serve --mongo-listen`.
// Run by `node --test` with MONGO_URL in the environment.

import assert from "node:assert/strict";
import { after, before, beforeEach, test } from "node:test";
import { Binary, Decimal128, Long, MongoClient, MongoServerError, ObjectId } from "mongodb";

let client, db, things;

before(async () => {
  client = await MongoClient.connect(process.env.MONGO_URL);
});

after(() => client.close());

let number = 0;
beforeEach(() => {
  db = client.db(`node_${number++}`);
  things = db.collection("things");
});

test("every type comes back as it went", async () => {
  const document = {
    _id: new ObjectId(), text: "äöü", number: 1.5, int: 7, long: Long.fromString("9007199254740993"), yes: true,
    none: null, date: new Date(1700000000123), binary: new Binary(Buffer.from([0, 255])), list: [1, { a: "b" }],
    decimal: Decimal128.fromString("1.10"), regex: /^a/i,
  };
  await things.insertOne(document);
  assert.deepEqual(await things.findOne({ _id: document._id }, { promoteValues: true, promoteLongs: false }), {
    ...document, int: (await things.findOne({}, { promoteLongs: false })).int,
  });
});

test("documents are made, found, changed, deleted", async () => {
  await things.insertMany(Array.from({ length: 500 }, (_, n) => ({ _id: n, tens: Math.floor(n / 10) })));
  const found = await things.find({ _id: { $gte: 100 } }).sort({ _id: -1 }).batchSize(70).toArray();
  assert.deepEqual([found.length, found[0]._id], [400, 499]);
  assert.equal((await things.updateMany({ tens: 3 }, { $inc: { n: 1 } })).modifiedCount, 10);
  assert.equal((await things.findOneAndUpdate({ _id: 7 }, { $push: { l: 1 } }, { returnDocument: "after" })).l[0], 1);
  assert.deepEqual(await things.distinct("tens", { _id: { $lt: 30 } }), [0, 1, 2]);
  assert.equal((await things.deleteMany({ tens: { $gte: 10 } })).deletedCount, 400);
  assert.equal(await things.countDocuments(), 100);
  const groups = await things.aggregate([{ $group: { _id: { $mod: ["$_id", 3] }, n: { $sum: 1 } } }, { $sort: { _id: 1 } }]);
  assert.deepEqual((await groups.toArray()).map((group) => group.n), [34, 33, 33]);
  await assert.rejects(things.insertOne({ _id: 1 }), (error) => error instanceof MongoServerError && error.code === 11000);
});

test("indexes are made, used and listed", async () => {
  await things.insertMany(Array.from({ length: 50 }, (_, n) => ({ n })));
  assert.equal(await things.createIndex({ n: 1 }, { unique: true }), "n_1");
  const plan = await things.find({ n: 5 }).explain("executionStats");
  assert.equal(plan.executionStats.totalDocsExamined, 1);
  assert.deepEqual((await things.indexes()).map((index) => index.name), ["_id_", "n_1"]);
});

test("a transaction is one or none", async () => {
  await client.withSession((session) =>
    session.withTransaction(async () => {
      await things.insertOne({ _id: 1 }, { session });
      await db.collection("others").insertOne({ _id: 2 }, { session });
      assert.equal(await things.countDocuments(), 0);
    }),
  );
  assert.equal(await things.countDocuments(), 1);
  await assert.rejects(
    client.withSession((session) =>
      session.withTransaction(async () => {
        await things.insertOne({ _id: 3 }, { session });
        throw new Error("no");
      }),
    ),
  );
  assert.equal(await things.countDocuments(), 1);
});

test("a change stream tells what happens and goes on behind its token", async () => {
  const stream = things.watch([], { fullDocument: "updateLookup" });
  await stream.tryNext();
  await things.insertOne({ _id: 1 });
  await things.updateOne({ _id: 1 }, { $set: { a: 1 } });
  assert.equal((await stream.next()).operationType, "insert");
  const update = await stream.next();
  assert.deepEqual(update.fullDocument, { _id: 1, a: 1 });
  await stream.close();
  await things.deleteOne({ _id: 1 });
  const again = things.watch([], { resumeAfter: update._id });
  assert.equal((await again.next()).operationType, "delete");
  await again.close();
});

test("compression and exhausted handshakes work with several connections", async () => {
  const url = new URL(process.env.MONGO_URL);
  url.searchParams.set("compressors", "zlib");
  const other = await MongoClient.connect(url.href, { minPoolSize: 3 });
  const c = other.db(db.databaseName).collection("zipped");
  await Promise.all(Array.from({ length: 30 }, (_, n) => c.insertOne({ _id: n, text: "long ".repeat(1000) })));
  assert.equal(await c.countDocuments(), 30);
  await other.close();
});
