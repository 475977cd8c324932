/** Subscriptions: an endless stream of events that reconnects and resumes by position. */
import { RopewalkError, isRetryable, problemFields } from "./error.js";
import { lineChunks, ndjsonMessages, sseParser } from "./lines.js";
import { recorded, wireQuery } from "./query.js";
import { networkError, path, sleep } from "./transport.js";
/** @internal The events of a subscription, in the batches in which they arrive. */
export async function* batches(transport, store, options) {
    const { signal, onDisconnect } = options;
    const parameters = new URLSearchParams();
    if (options.query !== undefined)
        parameters.set("query", JSON.stringify(wireQuery(options.query)));
    if (options.after === "head") {
        // A position, so that no event is missed if the connection breaks before the first message.
        const head = await transport.json({ method: "GET", path: path `/v1/stores/${store}/head`, repeatable: true, signal });
        parameters.set("after", String(head.head ?? 0));
    }
    else if (options.after !== undefined)
        parameters.set("after", String(options.after));
    else if (options.checkpoint !== undefined)
        parameters.set("checkpoint", options.checkpoint);
    for (let failures = 0; !signal?.aborted; failures++) {
        try {
            for await (const messages of connection(transport, store, parameters, options)) {
                failures = 0;
                const { events, position, caughtUp } = delivered(messages);
                if (position !== undefined) {
                    parameters.set("after", String(position));
                    parameters.delete("checkpoint");
                }
                if (events.length > 0)
                    yield events;
                if (caughtUp !== undefined)
                    options.onCaughtUp?.(caughtUp);
                if (signal?.aborted)
                    return;
            }
            // The stream has no end: a server or a proxy has closed the connection.
            throw new RopewalkError({ code: "network", detail: "the connection was closed" });
        }
        catch (error) {
            if (signal?.aborted)
                return;
            if (!isRetryable(error))
                throw error;
            onDisconnect?.(error);
            const wait = Math.max(transport.delay(failures + 1), error.retryAfterMs ?? 0);
            await sleep(wait, signal).catch(() => { });
        }
    }
}
/** One connection; its messages by chunk. Only failures of the connection become errors of this client. */
async function* connection(transport, store, parameters, { signal, format = "ndjson", heartbeatTimeoutMs = 45_000 }) {
    const accept = format === "sse" ? "text/event-stream" : "application/x-ndjson";
    // The caller reconnects, with a new position.
    const stream = await transport.stream({
        method: "GET", path: path `/v1/stores/${store}/subscribe`, query: parameters, headers: { accept }, repeatable: false, signal,
    });
    const parse = format === "sse" ? sseParser() : ndjsonMessages;
    const chunks = lineChunks(stream.body);
    try {
        for (;;) {
            const chunk = await nextChunk(chunks, stream, heartbeatTimeoutMs, signal);
            if (chunk.done)
                return;
            yield parse(chunk.value);
        }
    }
    finally {
        stream.cancel(new RopewalkError({ code: "network", detail: "the subscription ended" }));
        await chunks.return();
    }
}
async function nextChunk(chunks, stream, timeoutMs, signal) {
    const silent = new RopewalkError({ code: "network", detail: `no data in ${timeoutMs} ms` });
    let isSilent = false;
    const timer = setTimeout(() => {
        isSilent = true;
        stream.cancel(silent);
    }, timeoutMs);
    try {
        return await chunks.next();
    }
    catch (error) {
        throw isSilent ? silent : networkError(error, signal);
    }
    finally {
        clearTimeout(timer);
    }
}
/** Events among messages, and the position after which a new connection resumes. */
function delivered(messages) {
    const events = [];
    let position;
    let caughtUp;
    for (const message of messages) {
        if (message.kind === "event") {
            const event = message.value;
            events.push(recorded(event));
            position = event.position;
        }
        else if (message.name === "error") {
            throw new RopewalkError({ ...problemFields(message.value["problem"]) });
        }
        else if (typeof message.value["head"] === "number" && message.name === "caught-up") {
            caughtUp = position = message.value["head"];
        }
    }
    return { events, position, caughtUp };
}
//# sourceMappingURL=subscription.js.map