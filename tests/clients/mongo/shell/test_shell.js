// What somebody types into mongosh, as it comes from MongoDB. Every part that holds prints `ok` and its name.
function part(name, body) {
  db = db.getSiblingDB("shell_" + name);
  db.dropDatabase();
  body();
  print("ok " + name);
}

function same(found, expected) {
  if (EJSON.stringify(found) !== EJSON.stringify(expected)) {
    throw new Error(EJSON.stringify(found) + " is not " + EJSON.stringify(expected));
  }
}

part("documents", () => {
  same(db.people.insertMany([{ _id: "ann", age: 41 }, { _id: "bob", age: 17 }]).acknowledged, true);
  same(db.people.find({ age: { $gt: 18 } }).toArray(), [{ _id: "ann", age: 41 }]);
  same(db.people.updateOne({ _id: "bob" }, { $inc: { age: 1 } }).modifiedCount, 1);
  same(db.people.findOneAndDelete({ _id: "ann" }), { _id: "ann", age: 41 });
  same(db.people.countDocuments(), 1);
  same(db.people.aggregate([{ $group: { _id: null, sum: { $sum: "$age" } } }]).toArray(), [{ _id: null, sum: 18 }]);
});

part("indexes", () => {
  db.people.insertOne({ age: 1 });
  same(db.people.createIndex({ age: 1 }), "age_1");
  same(db.people.getIndexes().map((index) => index.name), ["_id_", "age_1"]);
  same(db.people.find({ age: 1 }).explain().queryPlanner.winningPlan.inputStage.indexName, "age_1");
  same(db.getCollectionNames(), ["people"]);
  same(db.people.stats().count, 1);
});

part("transactions", () => {
  db.people.insertOne({ _id: 1 });
  const session = db.getMongo().startSession();
  const people = session.getDatabase(db.getName()).people;
  session.startTransaction();
  people.insertOne({ _id: 2 });
  session.abortTransaction();
  session.withTransaction(() => people.insertOne({ _id: 3 }));
  session.endSession();
  same(db.people.find().toArray(), [{ _id: 1 }, { _id: 3 }]);
});

part("watching", () => {
  const stream = db.people.watch();
  db.people.insertOne({ _id: 1 });
  same(stream.next().operationType, "insert");
  stream.close();
});
