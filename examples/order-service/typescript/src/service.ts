/**
 * Orders: placed, paid and shipped.
 *
 *   command ─▶ decide on events ─▶ one commit: event, sample, deleted cart
 *                                    │
 *                                    ├─▶ keepBoard   table `orders`, exactly once
 *                                    └─▶ sendMails   e-mails, at least once
 */
import { Park } from "@ropewalk/client";
import type { EventStore, Ropewalk } from "@ropewalk/client";

export type Line = { sku: string; count: number };
export type Shop = {
  StockAdded: Line;
  OrderPlaced: { order: string; customer: string; email: string; lines: Line[]; cents: number };
  OrderPaid: { order: string; payment: string };
  OrderShipped: { order: string; parcel: string };
};
export type Place = Shop["OrderPlaced"];
export type Status = "placed" | "paid" | "shipped";
export type BoardRow = { order: string; customer: string; cents: number; status: Status };
export type Mail = { to: string; subject: string };

/** A rule of the shop said no. */
export class Refused extends Error {}

export class OrderService {
  readonly events: EventStore<Shop>;

  constructor(readonly db: Ropewalk, store = "shop") {
    this.events = db.events<Shop>(store, {
      tags: {
        StockAdded: (e) => [`sku:${e.sku}`],
        OrderPlaced: (e) => [`order:${e.order}`, `customer:${e.customer}`, ...e.lines.map((line) => `sku:${line.sku}`)],
        OrderPaid: (e) => [`order:${e.order}`],
        OrderShipped: (e) => [`order:${e.order}`],
      },
    });
  }

  /** Creates the table of the board. */
  async prepare(): Promise<void> {
    await this.db.sql`CREATE TABLE IF NOT EXISTS orders ("order" text PRIMARY KEY, customer text NOT NULL, cents bigint NOT NULL, status text NOT NULL)`;
  }

  /** Units of a product that are left. */
  private stock(sku: string) {
    return this.events.model({
      query: { types: ["StockAdded", "OrderPlaced"], tags: [`sku:${sku}`] },
      initial: () => 0,
      evolve: (left, event) => {
        if (event.type === "StockAdded") return left + event.data.count;
        return event.data.lines.filter((line) => line.sku === sku).reduce((left, line) => left - line.count, left);
      },
    });
  }

  private status(order: string) {
    const next = { OrderPlaced: "placed", OrderPaid: "paid", OrderShipped: "shipped" } as const;
    return this.events.model({
      query: { types: ["OrderPlaced", "OrderPaid", "OrderShipped"], tags: [`order:${order}`] },
      initial: (): Status | undefined => undefined,
      evolve: (_, event): Status => next[event.type],
    });
  }

  async addStock(sku: string, count: number): Promise<void> {
    await this.events.append({ type: "StockAdded", data: { sku, count } });
  }

  /** Places an order if every product is in stock. The same order again has no effect. */
  async place(command: Place): Promise<void> {
    const wanted = new Map<string, number>();
    for (const { sku, count } of command.lines) wanted.set(sku, (wanted.get(sku) ?? 0) + count);
    const stock = Object.fromEntries([...wanted.keys()].map((sku) => [sku, this.stock(sku)]));
    await this.events.decide({
      // The queries of these models are the condition of the append: one product sold elsewhere does not conflict.
      model: this.events.combine({ status: this.status(command.order), stock: this.events.combine(stock) }),
      decide: ({ status, stock }, tx) => {
        if (status !== undefined) return [];
        for (const [sku, count] of wanted) {
          if ((stock[sku] ?? 0) < count) throw new Refused(`${sku}: ${stock[sku]} left, ${count} wanted`);
        }
        tx.documents("carts").delete({ _id: command.customer });
        tx.samples({ name: "order_cents", labels: { order: command.order }, value: command.cents });
        return { type: "OrderPlaced", data: command };
      },
    });
  }

  /** Records a payment. */
  async pay(order: string, payment: string): Promise<void> {
    await this.events.decide({
      model: this.status(order),
      decide: (status) => {
        if (status === undefined) throw new Refused(`there is no order ${order}`);
        return status === "placed" ? { type: "OrderPaid", data: { order, payment } } : [];
      },
    });
  }

  /** Ships an order that is paid. */
  async ship(order: string, parcel: string): Promise<void> {
    await this.events.decide({
      model: this.status(order),
      decide: (status) => {
        if (status === "shipped") return [];
        if (status !== "paid") throw new Refused(`the order ${order} is not paid`);
        return { type: "OrderShipped", data: { order, parcel } };
      },
    });
  }

  /** The orders of a customer on the board, which follows the events. */
  async board(customer: string): Promise<BoardRow[]> {
    return this.db.query<BoardRow>('SELECT "order", customer, cents, status FROM orders WHERE customer = $1 ORDER BY "order"', [customer]);
  }

  /** Keeps the table `orders` until the signal. Rows and checkpoint are one commit; a second worker is fenced. */
  async keepBoard(signal: AbortSignal): Promise<void> {
    await this.events.follow("board", (event, tx) => {
      switch (event.type) {
        case "OrderPlaced":
          tx.sql`INSERT INTO orders VALUES (${event.data.order}, ${event.data.customer}, ${event.data.cents}, 'placed')`;
          break;
        case "OrderPaid":
          tx.sql`UPDATE orders SET status = 'paid' WHERE "order" = ${event.data.order}`.expect(1);
          break;
        case "OrderShipped":
          tx.sql`UPDATE orders SET status = 'shipped' WHERE "order" = ${event.data.order}`.expect(1);
      }
    }, { signal });
  }

  /** Sends an e-mail for each order until the signal. Several processes may do so. */
  async sendMails(send: (mail: Mail) => Promise<void>, signal: AbortSignal): Promise<void> {
    const mailer = this.events.group("mailer", { query: { types: ["OrderPlaced"] }, tries: 5, pauseMs: 200 });
    await mailer.each(async ({ data }) => {
      if (!data.email.includes("@")) throw new Park(`no address: ${data.email}`);
      await send({ to: data.email, subject: `Your order ${data.order}` });
    }, { concurrency: 4, signal });
  }

  /** Cents of all orders. */
  async turnover(): Promise<number> {
    return (await this.db.prom.query("sum(order_cents)"))[0]?.value ?? 0;
  }
}
