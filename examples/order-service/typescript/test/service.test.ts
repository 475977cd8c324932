import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { Ropewalk } from "@ropewalk/client";
import { TestServer } from "@ropewalk/client/testing";
import { OrderService, Refused } from "../src/service.js";
import type { Mail } from "../src/service.js";

let server: TestServer;
let orders: OrderService;
before(async () => {
  server = await TestServer.start();
  orders = new OrderService(new Ropewalk({ url: server.url }));
  await orders.prepare();
});
after(() => server[Symbol.asyncDispose]());

const order = (id: string, count = 1, email = "ann@example.org") =>
  ({ order: id, customer: "ann", email, lines: [{ sku: "rope", count }], cents: 1000 * count });

async function until(condition: () => boolean | Promise<boolean>): Promise<void> {
  for (const end = Date.now() + 30_000; !(await condition()); await sleep(10)) assert.ok(Date.now() < end, "the condition holds within 30 s");
}

test("order is placed, paid and shipped, and the board and the mailer follow", async () => {
  await orders.addStock("rope", 5);
  const carts = orders.db.collection<{ _id: string }>("carts");
  await carts.insert({ _id: "ann" });
  const stop = new AbortController();
  const mails: Mail[] = [];
  let failures = 1;
  const workers = [
    orders.keepBoard(stop.signal),
    orders.sendMails(async (mail) => {
      if (failures-- > 0) throw new Error("the mail server is away");
      mails.push(mail);
    }, stop.signal),
  ];
  await orders.place(order("o1", 2));
  await orders.place(order("o1", 2));
  await orders.place(order("o2", 1, "nowhere"));
  assert.equal(await carts.get("ann"), null);
  assert.equal(await orders.turnover(), 3000);
  await assert.rejects(orders.place(order("o3", 3)), new Refused("rope: 2 left, 3 wanted"));
  await assert.rejects(orders.ship("o1", "p1"), Refused);
  await orders.pay("o1", "card-7");
  await orders.pay("o1", "card-7");
  await orders.ship("o1", "p1");
  await assert.rejects(orders.pay("o9", "card-7"), Refused);
  await until(async () => (await orders.board("ann"))[0]?.status === "shipped");
  assert.deepEqual((await orders.board("ann")).map(({ order, cents, status }) => [order, cents, status]), [["o1", 2000, "shipped"], ["o2", 1000, "placed"]]);
  const mailer = orders.events.group("mailer");
  await until(async () => mails.length === 1 && (await mailer.status()).parked === 1);
  assert.deepEqual(mails, [{ to: "ann@example.org", subject: "Your order o1" }]);
  assert.deepEqual((await mailer.parked()).map((one) => one.reason), ["no address: nowhere"]);
  stop.abort();
  await Promise.all(workers);
});

test("concurrent orders never sell more than the stock", async () => {
  await orders.addStock("hook", 7);
  const place = (number: number) => orders.place({ ...order(`h${number}`), lines: [{ sku: "hook", count: 1 }] });
  const results = await Promise.allSettled(Array.from({ length: 20 }, (_, number) => place(number)));
  assert.equal(results.filter((result) => result.status === "fulfilled").length, 7);
  for (const result of results) if (result.status === "rejected") assert.ok(result.reason instanceof Refused, String(result.reason));
});
