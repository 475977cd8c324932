/** The server of the tests, and a proxy that breaks its connections. */
import { createServer, connect } from "node:net";
import type { AddressInfo, Socket } from "node:net";
import { resolve } from "node:path";
import { after } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { TestServer } from "../testing/index.js";

/** Starts the server that is tested. It stops after the tests of the file. */
export async function startServer(): Promise<TestServer> {
  const server = await TestServer.start(resolve(process.env["ROPEWALK_BIN"] ?? "../../target/debug/ropewalk"));
  after(() => server[Symbol.asyncDispose]());
  return server;
}

/** Forwards connections to a server, and breaks them on request. */
export class Proxy {
  url = "";
  /** So many of the next responses are dropped: the server executes the request, the client gets no response. */
  dropResponses = 0;
  connections = 0;
  readonly #sockets = new Set<Socket>();
  readonly #server;

  private constructor(target: string) {
    const { hostname, port } = new URL(target);
    this.#server = createServer((client) => {
      this.connections++;
      const upstream = connect(Number(port), hostname);
      for (const socket of [client, upstream]) {
        this.#sockets.add(socket);
        socket.on("error", () => {});
        socket.on("close", () => {
          this.#sockets.delete(socket);
          client.destroy();
          upstream.destroy();
        });
      }
      client.on("data", (data) => upstream.write(data));
      upstream.on("data", (data) => {
        if (this.dropResponses > 0) {
          this.dropResponses--;
          client.destroy();
        } else client.write(data);
      });
    });
  }

  static async start(target: string): Promise<Proxy> {
    const proxy = new Proxy(target);
    await new Promise<void>((done) => proxy.#server.listen(0, "127.0.0.1", done));
    proxy.url = `http://127.0.0.1:${(proxy.#server.address() as AddressInfo).port}`;
    return proxy;
  }

  /** Breaks all connections. */
  break(): void {
    for (const socket of this.#sockets) socket.destroy();
  }

  async stop(): Promise<void> {
    this.break();
    await new Promise((done) => this.#server.close(done));
  }
}

/** Waits until the condition holds. */
export async function until(condition: () => boolean | Promise<boolean>): Promise<void> {
  const end = Date.now() + 30_000;
  while (!(await condition())) {
    if (Date.now() > end) throw new Error("the condition does not hold after 30 s");
    await sleep(10);
  }
}
