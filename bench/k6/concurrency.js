// Section 4: up to twenty users on the same tags: six requests each time. The condition holds for the first of all
// appends under it and never again; accepting two of them violates it. The reads grow with the store.
import { append, appendOnce, clean, failIf, handleSummary, pause, read, stages, summaryTrendStats, unique } from "./common.js";

export { handleSummary };
export const options = { stages: stages([[30, 5], [30, 10], [40, 20], [120, 20], [30, 0]]), summaryTrendStats };
export const setup = clean;

const course = "course:contention-course";
const student = "student:contention-student";
const event = (type) => ({ type, data: JSON.stringify({ id: unique("event"), user: __VU }), tags: [course, student] });
const guard = failIf(["AppendIfEvent"], [course]);
const requests = [
  () => append(event("AppendEvent")),
  () => appendOnce(event("AppendIfEvent"), guard),
  () => appendOnce(event("AppendIfEvent"), guard, { "X-Append-If-Isolation": "SERIALIZABLE" }),
  () => append([event("BatchEvent"), event("BatchEvent"), event("BatchEvent")]),
  () => read([{ types: ["AppendEvent", "AppendIfEvent", "BatchEvent"], tags: [] }]),
  () => read([{ types: [], tags: [course] }]),
];

export default function () {
  for (const request of requests) {
    request();
    pause(0.05);
  }
}
