import assert from "node:assert/strict";
import { test } from "node:test";
import { Ropewalk } from "../src/index.js";
import { startServer } from "./server.js";

const server = await startServer();
const put = (path: string, body: object, headers = {}) =>
  fetch(server.url + path, { method: "PUT", headers: { "content-type": "application/json", ...headers }, body: JSON.stringify(body) });
const created = await put("/v1/users/root", { password: "correct horse", roles: { "*": ["admin"] } });
assert.equal(created.status, 201, await created.text());

test("user and token authenticate, and rights are those of the server", async () => {
  const root = new Ropewalk({ url: server.url, user: "root", password: "correct horse" });
  await root.events("shop").append({ type: "A", data: null });
  const created = await fetch(`${server.url}/v1/tokens`, {
    method: "POST",
    headers: { "content-type": "application/json", authorization: `Basic ${Buffer.from("root:correct horse").toString("base64")}` },
    body: JSON.stringify({ name: "reader", roles: { shop: ["read"] } }),
  });
  const { token } = (await created.json()) as { token: string };
  const reader = new Ropewalk({ url: server.url, token }).events("shop");
  assert.equal(await reader.count(), 1);
  await assert.rejects(reader.append({ type: "A", data: null }), { code: "permission_denied", status: 403 });
  // Group settings require `admin`.
  await assert.rejects(reader.group("g", {}).each(() => {}), { code: "permission_denied" });
});

test("error that a repetition does not remove ends a subscription", async () => {
  const wrong = new Ropewalk({ url: server.url, token: "rw_wrong" });
  await assert.rejects(wrong.events("shop").head(), { code: "unauthenticated", status: 401 });
  await assert.rejects(async () => {
    for await (const _ of wrong.events("shop").subscribe());
  }, { code: "unauthenticated" });
});
