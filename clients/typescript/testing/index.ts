/** Starts a server for the tests of an application. Needs Node and the program `ropewalk`. */
import { spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";

/** Longest time to start, milliseconds; only to end a hang. */
const START_MS_MAX = 60_000;
/** Pause between two reads of the ready file, milliseconds. */
const PAUSE_MS = 10;

/** A server on a new temporary directory and a free port of the loopback address. */
export class TestServer {
  /** Address for `new Ropewalk({ url })`. */
  url = "";
  readonly #directory: string;
  readonly #binary: string;
  #terminate: (() => Promise<void>) | undefined;

  private constructor(directory: string, binary: string) {
    this.#directory = directory;
    this.#binary = binary;
  }

  /** Starts a server. `binary`: path of `ropewalk`; default: the environment's ROPEWALK_BIN, or PATH. */
  static async start(binary: string = process.env["ROPEWALK_BIN"] ?? "ropewalk"): Promise<TestServer> {
    const server = new TestServer(await mkdtemp(join(tmpdir(), "ropewalk-test-")), binary);
    await server.restart();
    return server;
  }

  /** Starts the server again after {@link TestServer.stop}, on the same data and port. */
  async restart(): Promise<void> {
    const ready = join(this.#directory, "ready.json");
    await rm(ready, { force: true });
    const listen = this.url === "" ? "127.0.0.1:0" : new URL(this.url).host;
    const off = ["--postgres-listen", "off", "--mongo-listen", "off", "--grpc-listen", "off"];
    const command = ["serve", join(this.#directory, "db"), "--http-listen", listen, ...off, "--log-level", "error", "--ready-file", ready];
    const child = spawn(this.#binary, command, { stdio: ["ignore", "ignore", "inherit"] });
    let failure: Error | undefined;
    const ended = new Promise<void>((resolve) => {
      child.once("exit", (code) => {
        failure = new Error(`${this.#binary} ended with ${code}`);
        resolve();
      });
      child.once("error", (error) => {
        failure = error;
        resolve();
      });
    });
    this.#terminate = async () => {
      child.kill("SIGTERM");
      await ended;
    };
    const end = Date.now() + START_MS_MAX;
    while (!existsSync(ready)) {
      if (failure) throw failure;
      if (Date.now() > end) throw new Error(`${this.#binary} is not ready after ${START_MS_MAX} ms`);
      await sleep(PAUSE_MS);
    }
    const { listening } = JSON.parse(await readFile(ready, "utf8")) as { listening: { protocol: string; address: string }[] };
    this.url = `http://${listening.find((port) => port.protocol === "http")?.address}`;
  }

  /** Stops the server. Its data remains. */
  async stop(): Promise<void> {
    await this.#terminate?.();
    this.#terminate = undefined;
  }

  /** Stops the server and removes its data. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop();
    await rm(this.#directory, { recursive: true, force: true });
  }
}
