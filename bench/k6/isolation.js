// Section 3: up to twenty users append in three ways at three isolation levels, with pauses. The report's script named
// the level in a header that its server did not read; here both headers carry it.
import { append, clean, failIf, handleSummary, pause, stages, summaryTrendStats, unique } from "./common.js";

export { handleSummary };
export const options = {
  stages: stages([[20, 5], [30, 5], [30, 10], [60, 10], [30, 20], [60, 20], [30, 0]]),
  summaryTrendStats,
};
export const setup = clean;

const levels = ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"];
const event = (type, keys) => ({
  type,
  data: JSON.stringify({ timestamp: new Date().toISOString(), id: unique("event"), value: Math.random() }),
  tags: keys.map((key) => `${key}:${unique(key)}`),
});

const shapes = [
  (headers) => append(event("Simple", ["simple", "tenant"]), null, headers),
  (headers) =>
    append(event("Guarded", ["guarded", "tenant"]), failIf(["Guarded"], [`guarded:${unique("guarded")}`]), headers),
  (headers) =>
    append(Array.from({ length: 3 + (__ITER % 2) }, () => event("Batched", ["batch", "tenant"])), null, headers),
];

export default function () {
  const level = levels[Math.floor(Math.random() * levels.length)];
  shapes[Math.floor(Math.random() * shapes.length)]({ "X-Isolation-Level": level, "X-Append-If-Isolation": level });
  pause(0.1);
}
