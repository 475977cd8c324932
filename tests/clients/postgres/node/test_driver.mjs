// node-postgres as it is published, with its defaults, against `ropewalk serve --postgres-listen`.
// Run by `node test_driver.mjs URL`.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import pg from "pg";

let pool;

before(() => {
  pool = new pg.Pool({ connectionString: process.argv[2], max: 4 });
});

after(() => pool.end());

test("values come back as they went", async () => {
  await pool.query(`CREATE TABLE kinds (id bigint PRIMARY KEY, b boolean, i integer, n numeric, f double precision, t text,
    d timestamptz, y bytea, j json, a integer[], ta text[], u uuid)`);
  const at = new Date(1709164800123);
  const row = ["7", true, -5, "12.50", 1.5, "äöü'", at, Buffer.from([0, 255]), { a: [1, null] }, [1, null, 3], ["x", "y z", ""],
    "00112233-4455-6677-8899-aabbccddeeff"];
  const marks = row.map((_, n) => `$${n + 1}`).join(", ");
  await pool.query(`INSERT INTO kinds VALUES (${marks})`, row);
  const { rows, fields } = await pool.query({ text: "SELECT * FROM kinds WHERE id = $1", values: [7], rowMode: "array" });
  assert.deepEqual(rows, [row]);
  assert.deepEqual(fields.map((field) => field.name), ["id", "b", "i", "n", "f", "t", "d", "y", "j", "a", "ta", "u"]);
});

test("named statements are kept", async (t) => {
  const client = await pool.connect();
  t.after(() => client.release());
  for (let n = 0; n < 5; n++) {
    const { rows } = await client.query({ name: "twice", text: "SELECT $1::integer * 2 AS twice", values: [n] });
    assert.deepEqual(rows, [{ twice: n * 2 }]);
  }
});

test("a transaction is one or none", async (t) => {
  const client = await pool.connect();
  t.after(() => client.release());
  await client.query("CREATE TABLE counted (id integer PRIMARY KEY, n integer NOT NULL)");
  await client.query("BEGIN");
  await client.query("INSERT INTO counted VALUES (1, 1)");
  await assert.rejects(client.query("INSERT INTO counted VALUES (1, 1)"), (error) => error.code === "23505");
  await assert.rejects(client.query("SELECT 1"), (error) => error.code === "25P02");
  await client.query("ROLLBACK");
  assert.equal((await client.query("SELECT count(*) AS n FROM counted")).rows[0].n, "0");
});

test("a pool works side by side", async () => {
  await pool.query("CREATE TABLE pooled (id integer PRIMARY KEY)");
  await Promise.all(Array.from({ length: 50 }, (_, n) => pool.query("INSERT INTO pooled VALUES ($1)", [n])));
  const { rows, rowCount } = await pool.query("DELETE FROM pooled WHERE id >= $1 RETURNING id", [40]);
  assert.deepEqual([rowCount, rows.length], [10, 10]);
  const tables = await pool.query("SELECT table_name FROM information_schema.tables WHERE table_schema = $1 ORDER BY 1", ["public"]);
  assert.ok(tables.rows.some((row) => row.table_name === "pooled"));
});
