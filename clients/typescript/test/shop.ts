/** The shop of the tests: its event types. */
import type { EventStore, Ropewalk } from "../src/index.js";

export type Shop = {
  ProductAdded: { sku: string; count: number };
  OrderPlaced: { order: string; sku: string; count: number };
  OrderPaid: { order: string };
};

export function shopOf(db: Ropewalk, name: string): EventStore<Shop> {
  return db.events<Shop>(name, {
    tags: {
      ProductAdded: (e) => [`sku:${e.sku}`],
      OrderPlaced: (e) => [`order:${e.order}`, `sku:${e.sku}`],
      OrderPaid: (e) => [`order:${e.order}`],
    },
  });
}

/** Units of a product that are left. */
export function left(shop: EventStore<Shop>, sku: string) {
  return shop.model({
    query: { types: ["ProductAdded", "OrderPlaced"], tags: [`sku:${sku}`] },
    initial: () => 0,
    evolve: (left, event) => left + (event.type === "ProductAdded" ? event.data.count : -event.data.count),
  });
}
