/**
 * Requests to the server: credentials, time limits, and repetition of requests that may be repeated.
 *
 * A request is sent again only if that is safe: it reads, or it has an idempotency key, or it sets a state
 * that a repetition does not change.
 */
import { RopewalkError, errorOf, isRetryable } from "./error.js";

/** How often and after which pauses a request is sent again. */
export interface RetryOptions {
  /** Most attempts, including the first. Default 8. */
  attempts?: number;
  /** Pause before the second attempt, milliseconds; it doubles with each attempt. Default 50. */
  minDelayMs?: number;
  /** Longest pause, milliseconds. Default 2,000. */
  maxDelayMs?: number;
}

/** @internal */
export interface Connection {
  url: string;
  authorization: string | undefined;
  fetch: typeof fetch;
  timeoutMs: number;
  retry: Required<RetryOptions>;
}

/** @internal */
export interface Call {
  method: "GET" | "POST" | "PUT" | "PATCH" | "DELETE";
  path: string;
  query?: URLSearchParams;
  /** Encoded to JSON once, so that each attempt sends the same bytes. */
  body?: unknown;
  headers?: Record<string, string>;
  /** Whether a second execution has no further effect. */
  repeatable: boolean;
  signal?: AbortSignal | undefined;
}

/** @internal A response whose body has not been read yet. */
export interface Stream {
  headers: Headers;
  body: ReadableStream<Uint8Array>;
  /** Ends the connection, also while the body is read. */
  cancel(reason: unknown): void;
}

/** @internal */
export class Transport {
  readonly #connection: Connection;

  constructor(connection: Connection) {
    this.#connection = connection;
  }

  /** Sends the call, and returns the response and its parsed body; null for a response without a body. */
  async send<T>(call: Call): Promise<{ value: T; status: number; headers: Headers }> {
    return this.#attempts(call, async (body) => {
      const clock = new Deadline(this.#connection.timeoutMs, call.signal);
      try {
        const response = await this.#fetch(call, body, clock);
        const text = await clock.guard(response.text());
        return { value: (text === "" ? null : JSON.parse(text)) as T, status: response.status, headers: response.headers };
      } finally {
        clock.end();
      }
    });
  }

  /** Sends the call and returns the parsed body. */
  async json<T>(call: Call): Promise<T> {
    return (await this.send<T>(call)).value;
  }

  /** Sends the call and returns the response as soon as its headers have arrived. */
  async stream(call: Call): Promise<Stream> {
    return this.#attempts(call, async (body) => {
      const clock = new Deadline(this.#connection.timeoutMs, call.signal);
      try {
        const response = await this.#fetch(call, body, clock);
        if (response.body === null) throw new RopewalkError({ code: "network", detail: "a response without a body" });
        clock.stop();
        return { headers: response.headers, body: response.body, cancel: (reason) => clock.abort(reason) };
      } catch (error) {
        clock.end();
        throw error;
      }
    });
  }

  async #attempts<T>(call: Call, attempt: (body: string | undefined) => Promise<T>): Promise<T> {
    const { attempts } = this.#connection.retry;
    const body = call.body === undefined ? undefined : JSON.stringify(call.body);
    for (let number = 1; ; number++) {
      try {
        call.signal?.throwIfAborted();
        return await attempt(body);
      } catch (error) {
        if (!call.repeatable || number >= attempts || !isRetryable(error)) throw error;
        await sleep(Math.max(this.delay(number), error.retryAfterMs ?? 0), call.signal);
      }
    }
  }

  /** Pause after the failed attempt `number`, milliseconds, with a random part so that clients spread out. */
  delay(number: number): number {
    const { minDelayMs, maxDelayMs } = this.#connection.retry;
    return Math.min(maxDelayMs, minDelayMs * 2 ** Math.min(number - 1, 20)) * (0.5 + Math.random() / 2);
  }

  async #fetch(call: Call, body: string | undefined, clock: Deadline): Promise<Response> {
    const { url, authorization } = this.#connection;
    const headers: Record<string, string> = { accept: "application/json", ...call.headers };
    if (authorization !== undefined) headers["authorization"] = authorization;
    if (body !== undefined) headers["content-type"] = "application/json";
    const parameters = call.query?.toString() ?? "";
    const target = url + call.path + (parameters === "" ? "" : `?${parameters}`);
    const init: RequestInit = { method: call.method, headers, signal: clock.signal };
    if (body !== undefined) init.body = body;
    const response = await clock.guard(this.#connection.fetch(target, init));
    // A conditional read returns 304 as a result.
    if (!response.ok && response.status !== 304) throw await clock.guard(errorOf(response));
    return response;
  }
}

/** Aborts at a time limit or with the caller's signal, and tells the two apart. */
class Deadline {
  readonly #controller = new AbortController();
  readonly #outer: AbortSignal | undefined;
  readonly #forward = () => this.#controller.abort(this.#outer?.reason);
  #timer: ReturnType<typeof setTimeout> | undefined;

  constructor(timeoutMs: number, outer: AbortSignal | undefined) {
    this.#outer = outer;
    outer?.addEventListener("abort", this.#forward, { once: true });
    if (Number.isFinite(timeoutMs)) {
      const late = () => this.abort(new RopewalkError({ code: "network", detail: `no complete response in ${timeoutMs} ms` }));
      this.#timer = setTimeout(late, timeoutMs);
    }
  }

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  abort(reason: unknown): void {
    this.end();
    this.#controller.abort(reason);
  }

  /** Ends the time limit; the caller's signal continues to count. */
  stop(): void {
    clearTimeout(this.#timer);
  }

  end(): void {
    this.stop();
    this.#outer?.removeEventListener("abort", this.#forward);
  }

  /** Turns failures of the connection into errors of this client. */
  async guard<T>(work: Promise<T>): Promise<T> {
    try {
      return await work;
    } catch (error) {
      throw networkError(error, this.#outer, this.signal);
    }
  }
}

/** @internal The error of a broken connection; the reason of `outer` if the caller aborted. */
export function networkError(error: unknown, outer: AbortSignal | undefined, inner?: AbortSignal): unknown {
  if (outer?.aborted) return outer.reason;
  if (inner?.aborted && inner.reason instanceof RopewalkError) return inner.reason;
  if (error instanceof RopewalkError) return error;
  const cause = error instanceof Error && error.cause instanceof Error ? error.cause : error;
  return new RopewalkError({ code: "network", detail: cause instanceof Error ? cause.message : String(cause), cause: error });
}

/** @internal Waits; rejects with the reason of the signal if that is aborted. */
export function sleep(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const end = () => {
      clearTimeout(timer);
      reject(signal?.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", end);
      resolve();
    }, ms);
    if (signal?.aborted) end();
    else signal?.addEventListener("abort", end, { once: true });
  });
}

/** @internal A new random key: 128 bits, also where `crypto.randomUUID` needs a secure context. */
export function newKey(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** @internal The key to send: the caller's, none for `false`, otherwise a new one. */
export function chosenKey(key: string | false | undefined): string | undefined {
  if (key === false) return undefined;
  if (key === undefined) return newKey();
  if (!/^[\x20-\x7e]{1,255}$/.test(key)) throw new TypeError("an idempotency key has 1 to 255 printable ASCII characters");
  return key;
}

/** @internal A path of literal parts and names. */
export function path(parts: TemplateStringsArray, ...names: string[]): string {
  return parts.reduce((text, part, index) => text + encodeURIComponent(names[index - 1] ?? "") + part);
}
