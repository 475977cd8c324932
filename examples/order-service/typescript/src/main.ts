/** The service over HTTP: `npm start`, with ROPEWALK_URL and ROPEWALK_TOKEN. */
import { createServer } from "node:http";
import type { IncomingMessage } from "node:http";
import { json } from "node:stream/consumers";
import { Ropewalk } from "@ropewalk/client";
import { OrderService, Refused } from "./service.js";
import type { Place } from "./service.js";

const { ROPEWALK_URL: url = "http://127.0.0.1:4780", ROPEWALK_TOKEN: token, PORT = "8080" } = process.env;
const orders = new OrderService(new Ropewalk({ url, ...(token && { token }) }));
await orders.prepare();

async function answer(request: IncomingMessage): Promise<unknown> {
  const [, kind, id = "", step] = (request.url ?? "").split("/").map(decodeURIComponent);
  const body = async () => (await json(request)) as never;
  switch (`${request.method} ${kind} ${step ?? ""}`) {
    case "POST orders ": return orders.place((await body()) as Place);
    case "POST orders pay": return orders.pay(id, ((await body()) as { payment: string }).payment);
    case "POST orders ship": return orders.ship(id, ((await body()) as { parcel: string }).parcel);
    case "POST stock ": return orders.addStock(id, ((await body()) as { count: number }).count);
    case "GET customers ": return orders.board(id);
    default: throw new Refused("there is no such path");
  }
}

const stop = new AbortController();
const server = createServer((request, response) => {
  answer(request)
    .then((value) => response.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify(value ?? {})))
    .catch((error: Error) => response.writeHead(error instanceof Refused ? 422 : 500).end(error.message));
}).listen(Number(PORT));
process.once("SIGTERM", () => {
  stop.abort();
  server.close();
});
await Promise.all([
  orders.keepBoard(stop.signal),
  orders.sendMails(async (mail) => console.log(`mail to ${mail.to}: ${mail.subject}`), stop.signal),
]);
