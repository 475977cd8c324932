/** Subscriptions: an endless stream of events that reconnects and resumes by position. */
import { RopewalkError, isRetryable, problemFields } from "./error.js";
import type { Problem } from "./error.js";
import { lineChunks, ndjsonMessages, sseParser } from "./lines.js";
import type { Message } from "./lines.js";
import { recorded, wireQuery } from "./query.js";
import type { EventQuery, WireRecorded } from "./query.js";
import { networkError, path, sleep } from "./transport.js";
import type { Stream, Transport } from "./transport.js";

/** Options of a subscription. */
export interface SubscribeOptions<Q> {
  /** Default: every event. */
  query?: Q;
  /** Starts after this position; `"head"`: with the next new event. Default: with the first event. */
  after?: number | "head";
  /** Instead of `after`: starts after the checkpoint of this consumer. */
  checkpoint?: string;
  /** Ends the iteration, without an error. */
  signal?: AbortSignal;
  /** Format of the stream. Default `ndjson`. */
  format?: "ndjson" | "sse";
  /** Called when all events up to `head` were delivered; later events are live. */
  onCaughtUp?: (head: number) => void;
  /** Called when the connection broke, before it is opened again. */
  onDisconnect?: (error: RopewalkError) => void;
  /** Reconnects after so many milliseconds without data. Default 45,000: three heartbeats of the server. */
  heartbeatTimeoutMs?: number;
}

/** @internal The events of a subscription, in the batches in which they arrive. */
export async function* batches<E>(transport: Transport, store: string, options: SubscribeOptions<EventQuery>): AsyncGenerator<E[], void, void> {
  const { signal, onDisconnect } = options;
  const parameters = new URLSearchParams();
  if (options.query !== undefined) parameters.set("query", JSON.stringify(wireQuery(options.query)));
  if (options.after === "head") {
    // A position, so that no event is missed if the connection breaks before the first message.
    const head = await transport.json<{ head: number | null }>({ method: "GET", path: path`/v1/stores/${store}/head`, repeatable: true, signal });
    parameters.set("after", String(head.head ?? 0));
  } else if (options.after !== undefined) parameters.set("after", String(options.after));
  else if (options.checkpoint !== undefined) parameters.set("checkpoint", options.checkpoint);

  for (let failures = 0; !signal?.aborted; failures++) {
    try {
      for await (const messages of connection(transport, store, parameters, options)) {
        failures = 0;
        const { events, position, caughtUp } = delivered<E>(messages);
        if (position !== undefined) {
          parameters.set("after", String(position));
          parameters.delete("checkpoint");
        }
        if (events.length > 0) yield events;
        if (caughtUp !== undefined) options.onCaughtUp?.(caughtUp);
        if (signal?.aborted) return;
      }
      // The stream has no end: a server or a proxy has closed the connection.
      throw new RopewalkError({ code: "network", detail: "the connection was closed" });
    } catch (error) {
      if (signal?.aborted) return;
      if (!isRetryable(error)) throw error;
      onDisconnect?.(error);
      const wait = Math.max(transport.delay(failures + 1), error.retryAfterMs ?? 0);
      await sleep(wait, signal).catch(() => {});
    }
  }
}

/** One connection; its messages by chunk. Only failures of the connection become errors of this client. */
async function* connection(
  transport: Transport,
  store: string,
  parameters: URLSearchParams,
  { signal, format = "ndjson", heartbeatTimeoutMs = 45_000 }: SubscribeOptions<EventQuery>,
): AsyncGenerator<Message[], void, void> {
  const accept = format === "sse" ? "text/event-stream" : "application/x-ndjson";
  // The caller reconnects, with a new position.
  const stream = await transport.stream({
    method: "GET", path: path`/v1/stores/${store}/subscribe`, query: parameters, headers: { accept }, repeatable: false, signal,
  });
  const parse = format === "sse" ? sseParser() : ndjsonMessages;
  const chunks = lineChunks(stream.body);
  try {
    for (;;) {
      const chunk = await nextChunk(chunks, stream, heartbeatTimeoutMs, signal);
      if (chunk.done) return;
      yield parse(chunk.value);
    }
  } finally {
    stream.cancel(new RopewalkError({ code: "network", detail: "the subscription ended" }));
    await chunks.return();
  }
}

async function nextChunk(chunks: AsyncGenerator<string[], void>, stream: Stream, timeoutMs: number, signal: AbortSignal | undefined) {
  const silent = new RopewalkError({ code: "network", detail: `no data in ${timeoutMs} ms` });
  let isSilent = false;
  const timer = setTimeout(() => {
    isSilent = true;
    stream.cancel(silent);
  }, timeoutMs);
  try {
    return await chunks.next();
  } catch (error) {
    throw isSilent ? silent : networkError(error, signal);
  } finally {
    clearTimeout(timer);
  }
}

/** Events among messages, and the position after which a new connection resumes. */
function delivered<E>(messages: Message[]): { events: E[]; position: number | undefined; caughtUp: number | undefined } {
  const events: E[] = [];
  let position: number | undefined;
  let caughtUp: number | undefined;
  for (const message of messages) {
    if (message.kind === "event") {
      const event = message.value as WireRecorded;
      events.push(recorded<E>(event));
      position = event.position;
    } else if (message.name === "error") {
      throw new RopewalkError({ ...problemFields(message.value["problem"] as Problem) });
    } else if (typeof message.value["head"] === "number" && message.name === "caught-up") {
      caughtUp = position = message.value["head"];
    }
  }
  return { events, position, caughtUp };
}
