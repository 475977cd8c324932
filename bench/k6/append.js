// Section 2: up to a hundred users append in eight ways, 11.25 events on average, with pauses unless SLEEP=no. All tag
// values are new, so no condition fails.
import { append, clean, failIf, handleSummary, pause, stages, summaryTrendStats, unique } from "./common.js";

export { handleSummary };
export const options = {
  stages: stages([[20, 10], [30, 10], [30, 50], [60, 50], [30, 100], [60, 100], [30, 0]]),
  summaryTrendStats,
};
export const setup = clean;

const event = (type, keys) => ({
  type,
  data: JSON.stringify({ timestamp: new Date().toISOString(), id: unique("event"), value: Math.random() }),
  tags: keys.map((key) => `${key}:${unique(key)}`),
});
const batch = (n, type, keys) => Array.from({ length: n }, () => event(type, keys));

const scenarios = [
  () => append(event("UserCreated", ["user", "tenant"])),
  () => append(batch(2, "OrderCreated", ["order", "tenant"])),
  () => append(batch(5, "ItemAdded", ["order", "item"])),
  () => (append(batch(25, "ItemAdded", ["order", "item", "tenant"])), 0.1),
  () => append(event("AccountOpened", ["account", "tenant"]), failIf(["NeverWritten"], [`account:${unique("account")}`])),
  () => append(event("AccountOpened", ["account", "tenant"]), failIf(["AccountOpened"], [`account:${unique("account")}`])),
  () => append(batch(5, "Mixed", ["order", "user"])),
  () => (append(batch(50, "Measured", ["sensor", "site", "batch"])), 0.1),
];

export default function () {
  const seconds = scenarios[Math.floor(Math.random() * scenarios.length)]();
  pause(seconds === 0.1 ? seconds : 0.05);
}
