/** Time series, by PromQL. */
import { RopewalkError } from "./error.js";
/** Queries in PromQL. Errors have Prometheus' error type as `code`. */
export class Prom {
    #transport;
    /** @internal */
    constructor(transport) {
        this.#transport = transport;
    }
    /** The value of an expression at a time, default now: a sample for each series; one without labels for a scalar. */
    async query(expression, options = {}) {
        const data = await this.#ask("query", { query: expression, time: seconds(options.time) });
        switch (data.resultType) {
            case "vector":
                return data.result.map(sample);
            case "scalar":
                return [sample({ metric: {}, value: data.result })];
            default:
                throw new RopewalkError({ code: "bad_data", detail: `the expression is a ${data.resultType}; queryRange and functions such as last_over_time return values` });
        }
    }
    /** The values of an expression from `start` to `end`, default now, every `stepMs` milliseconds. */
    async queryRange(expression, range) {
        const data = await this.#ask("query_range", {
            query: expression, start: seconds(range.start), end: seconds(range.end ?? Date.now()), step: String(range.stepMs / 1000),
        });
        return data.resultType === "matrix" ? data.result.map(series) : [];
    }
    async #ask(route, parameters) {
        const given = Object.entries(parameters).filter((entry) => entry[1] !== undefined);
        const answer = await this.#transport.json({
            method: "GET", path: `/api/v1/${route}`, query: new URLSearchParams(given), repeatable: true,
        });
        return answer.data;
    }
}
function seconds(time) {
    return time === undefined ? undefined : String(Number(time) / 1000);
}
/** Prometheus writes infinities as `+Inf` and `-Inf`. */
function number(text) {
    return text.endsWith("Inf") ? (text.startsWith("-") ? -Infinity : Infinity) : Number(text);
}
function milliseconds(time) {
    return Math.round(time * 1000);
}
function sample({ metric, value, histogram }) {
    if (histogram)
        return { labels: metric, timeMs: milliseconds(histogram[0]), value: NaN, histogram: histogram[1] };
    const [time, text] = value ?? [NaN, "NaN"];
    return { labels: metric, timeMs: milliseconds(time), value: number(text) };
}
function series({ metric, values = [], histograms }) {
    return {
        labels: metric,
        samples: values.map(([time, text]) => [milliseconds(time), number(text)]),
        ...(histograms && { histograms: histograms.map(([time, histogram]) => [milliseconds(time), histogram]) }),
    };
}
//# sourceMappingURL=prom.js.map