/** Starts `ropewalk serve` for tests, and a proxy that breaks connections. */
import { spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { createServer, connect } from "node:net";
import type { AddressInfo, Socket } from "node:net";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";

const BINARY = resolve(process.env["ROPEWALK_BIN"] ?? "../../target/debug/ropewalk");
/** Longest time to start, milliseconds; only to end a hang. */
const START_MS = 60_000;

/** A server on a directory of its own. */
export class Server {
  readonly #directory: string;
  #stop: (() => Promise<void>) | undefined;
  url = "";

  private constructor(directory: string) {
    this.#directory = directory;
  }

  static async start(): Promise<Server> {
    if (!existsSync(BINARY)) throw new Error(`${BINARY} does not exist: cargo build -p ropewalk-cli, or set ROPEWALK_BIN`);
    const server = new Server(await mkdtemp(join(tmpdir(), "ropewalk-ts-")));
    await server.run();
    return server;
  }

  /** Starts the process; at the same port as before, if it ran before. */
  async run(): Promise<void> {
    const ready = join(this.#directory, "ready.json");
    await rm(ready, { force: true });
    const listen = this.url === "" ? "127.0.0.1:0" : new URL(this.url).host;
    const off = ["--postgres-listen", "off", "--mongo-listen", "off", "--grpc-listen", "off"];
    const command = ["serve", join(this.#directory, "db"), "--http-listen", listen, ...off, "--log-level", "error", "--ready-file", ready];
    const child = spawn(BINARY, command, { stdio: ["ignore", "ignore", "inherit"] });
    const ended = new Promise<void>((done) => child.once("exit", () => done()));
    this.#stop = async () => {
      child.kill("SIGTERM");
      await ended;
    };
    const end = Date.now() + START_MS;
    while (!existsSync(ready)) {
      if (child.exitCode !== null || Date.now() > end) throw new Error("the server does not start");
      await sleep(10);
    }
    const { listening } = JSON.parse(await readFile(ready, "utf8")) as { listening: { protocol: string; address: string }[] };
    this.url = `http://${listening.find((port) => port.protocol === "http")?.address}`;
  }

  async stop(): Promise<void> {
    await this.#stop?.();
  }

  async remove(): Promise<void> {
    await this.stop();
    await rm(this.#directory, { recursive: true, force: true });
  }
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
