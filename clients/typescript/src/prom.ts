/** Time series, by PromQL. */
import { RopewalkError } from "./error.js";
import type { Transport } from "./transport.js";

/** A value of a series. */
export interface Sample {
  readonly labels: Readonly<Record<string, string>>;
  /** Milliseconds since 1970. */
  readonly timeMs: number;
  /** NaN for a native histogram. */
  readonly value: number;
  /** A native histogram, in the form of Prometheus. */
  readonly histogram?: unknown;
}

/** The values of a series over time. */
export interface Series {
  readonly labels: Readonly<Record<string, string>>;
  /** Pairs of milliseconds since 1970 and a value. */
  readonly samples: readonly (readonly [timeMs: number, value: number])[];
  /** Pairs of milliseconds since 1970 and a native histogram. */
  readonly histograms?: readonly (readonly [timeMs: number, histogram: unknown])[];
}

/** A time: a date, or milliseconds since 1970. */
export type Time = Date | number;

type WirePair = [number, string];
interface WireSeries {
  metric: Record<string, string>;
  value?: WirePair;
  histogram?: [number, unknown];
  values?: WirePair[];
  histograms?: [number, unknown][];
}
type WireData =
  | { resultType: "vector" | "matrix"; result: WireSeries[] }
  | { resultType: "scalar" | "string"; result: WirePair };

/** Queries in PromQL. Errors have Prometheus' error type as `code`. */
export class Prom {
  readonly #transport: Transport;

  /** @internal */
  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /** The value of an expression at a time, default now: a sample for each series; one without labels for a scalar. */
  async query(expression: string, options: { time?: Time } = {}): Promise<Sample[]> {
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
  async queryRange(expression: string, range: { start: Time; end?: Time; stepMs: number }): Promise<Series[]> {
    const data = await this.#ask("query_range", {
      query: expression, start: seconds(range.start), end: seconds(range.end ?? Date.now()), step: String(range.stepMs / 1000),
    });
    return data.resultType === "matrix" ? data.result.map(series) : [];
  }

  async #ask(route: string, parameters: Record<string, string | undefined>): Promise<WireData> {
    const given = Object.entries(parameters).filter((entry): entry is [string, string] => entry[1] !== undefined);
    const answer = await this.#transport.json<{ data: WireData }>({
      method: "GET", path: `/api/v1/${route}`, query: new URLSearchParams(given), repeatable: true,
    });
    return answer.data;
  }
}

function seconds(time: Time | undefined): string | undefined {
  return time === undefined ? undefined : String(Number(time) / 1000);
}

/** Prometheus writes infinities as `+Inf` and `-Inf`. */
function number(text: string): number {
  return text.endsWith("Inf") ? (text.startsWith("-") ? -Infinity : Infinity) : Number(text);
}

function milliseconds(time: number): number {
  return Math.round(time * 1000);
}

function sample({ metric, value, histogram }: WireSeries): Sample {
  if (histogram) return { labels: metric, timeMs: milliseconds(histogram[0]), value: NaN, histogram: histogram[1] };
  const [time, text] = value ?? [NaN, "NaN"];
  return { labels: metric, timeMs: milliseconds(time), value: number(text) };
}

function series({ metric, values = [], histograms }: WireSeries): Series {
  return {
    labels: metric,
    samples: values.map(([time, text]) => [milliseconds(time), number(text)] as const),
    ...(histograms && { histograms: histograms.map(([time, histogram]) => [milliseconds(time), histogram] as const) }),
  };
}
