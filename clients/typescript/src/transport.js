/**
 * Requests to the server: credentials, time limits, and repetition of requests that may be repeated.
 *
 * A request is sent again only if that is safe: it reads, or it has an idempotency key, or it sets a state
 * that a repetition does not change.
 */
import { RopewalkError, errorOf, isRetryable } from "./error.js";
/** @internal */
export class Transport {
    #connection;
    constructor(connection) {
        this.#connection = connection;
    }
    /** Sends the call, and returns the response and its parsed body; null for a response without a body. */
    async send(call) {
        return this.#attempts(call, async (body) => {
            const clock = new Deadline(this.#connection.timeoutMs, call.signal);
            try {
                const response = await this.#fetch(call, body, clock);
                const text = await clock.guard(response.text());
                return { value: (text === "" ? null : JSON.parse(text)), status: response.status, headers: response.headers };
            }
            finally {
                clock.end();
            }
        });
    }
    /** Sends the call and returns the parsed body. */
    async json(call) {
        return (await this.send(call)).value;
    }
    /** Sends the call and returns the response as soon as its headers have arrived. */
    async stream(call) {
        return this.#attempts(call, async (body) => {
            const clock = new Deadline(this.#connection.timeoutMs, call.signal);
            try {
                const response = await this.#fetch(call, body, clock);
                if (response.body === null)
                    throw new RopewalkError({ code: "network", detail: "a response without a body" });
                clock.stop();
                return { headers: response.headers, body: response.body, cancel: (reason) => clock.abort(reason) };
            }
            catch (error) {
                clock.end();
                throw error;
            }
        });
    }
    async #attempts(call, attempt) {
        const { attempts } = this.#connection.retry;
        const body = call.body === undefined ? undefined : JSON.stringify(call.body);
        for (let number = 1;; number++) {
            try {
                call.signal?.throwIfAborted();
                return await attempt(body);
            }
            catch (error) {
                if (!call.repeatable || number >= attempts || !isRetryable(error))
                    throw error;
                await sleep(Math.max(this.delay(number), error.retryAfterMs ?? 0), call.signal);
            }
        }
    }
    /** Pause after the failed attempt `number`, milliseconds, with a random part so that clients spread out. */
    delay(number) {
        const { minDelayMs, maxDelayMs } = this.#connection.retry;
        return Math.min(maxDelayMs, minDelayMs * 2 ** Math.min(number - 1, 20)) * (0.5 + Math.random() / 2);
    }
    async #fetch(call, body, clock) {
        const { url, authorization } = this.#connection;
        const headers = { accept: "application/json", ...call.headers };
        if (authorization !== undefined)
            headers["authorization"] = authorization;
        if (body !== undefined)
            headers["content-type"] = "application/json";
        const parameters = call.query?.toString() ?? "";
        const target = url + call.path + (parameters === "" ? "" : `?${parameters}`);
        const init = { method: call.method, headers, signal: clock.signal };
        if (body !== undefined)
            init.body = body;
        const response = await clock.guard(this.#connection.fetch(target, init));
        // A conditional read returns 304 as a result.
        if (!response.ok && response.status !== 304)
            throw await clock.guard(errorOf(response));
        return response;
    }
}
/** Aborts at a time limit or with the caller's signal, and tells the two apart. */
class Deadline {
    #controller = new AbortController();
    #outer;
    #forward = () => this.#controller.abort(this.#outer?.reason);
    #timer;
    constructor(timeoutMs, outer) {
        this.#outer = outer;
        outer?.addEventListener("abort", this.#forward, { once: true });
        if (Number.isFinite(timeoutMs)) {
            const late = () => this.abort(new RopewalkError({ code: "network", detail: `no complete response in ${timeoutMs} ms` }));
            this.#timer = setTimeout(late, timeoutMs);
        }
    }
    get signal() {
        return this.#controller.signal;
    }
    abort(reason) {
        this.end();
        this.#controller.abort(reason);
    }
    /** Ends the time limit; the caller's signal continues to count. */
    stop() {
        clearTimeout(this.#timer);
    }
    end() {
        this.stop();
        this.#outer?.removeEventListener("abort", this.#forward);
    }
    /** Turns failures of the connection into errors of this client. */
    async guard(work) {
        try {
            return await work;
        }
        catch (error) {
            throw networkError(error, this.#outer, this.signal);
        }
    }
}
/** @internal The error of a broken connection; the reason of `outer` if the caller aborted. */
export function networkError(error, outer, inner) {
    if (outer?.aborted)
        return outer.reason;
    if (inner?.aborted && inner.reason instanceof RopewalkError)
        return inner.reason;
    if (error instanceof RopewalkError)
        return error;
    const cause = error instanceof Error && error.cause instanceof Error ? error.cause : error;
    return new RopewalkError({ code: "network", detail: cause instanceof Error ? cause.message : String(cause), cause: error });
}
/** @internal Waits; rejects with the reason of the signal if that is aborted. */
export function sleep(ms, signal) {
    return new Promise((resolve, reject) => {
        const end = () => {
            clearTimeout(timer);
            reject(signal?.reason);
        };
        const timer = setTimeout(() => {
            signal?.removeEventListener("abort", end);
            resolve();
        }, ms);
        if (signal?.aborted)
            end();
        else
            signal?.addEventListener("abort", end, { once: true });
    });
}
/** @internal A new random key: 128 bits, also where `crypto.randomUUID` needs a secure context. */
export function newKey() {
    const bytes = crypto.getRandomValues(new Uint8Array(16));
    return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
/** @internal The key to send: the caller's, none for `false`, otherwise a new one. */
export function chosenKey(key) {
    if (key === false)
        return undefined;
    if (key === undefined)
        return newKey();
    if (!/^[\x20-\x7e]{1,255}$/.test(key))
        throw new TypeError("an idempotency key has 1 to 255 printable ASCII characters");
    return key;
}
/** @internal A path of literal parts and names. */
export function path(parts, ...names) {
    return parts.reduce((text, part, index) => text + encodeURIComponent(names[index - 1] ?? "") + part);
}
//# sourceMappingURL=transport.js.map