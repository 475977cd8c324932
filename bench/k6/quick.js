// Section 1: two users append one event and read it back, without a pause.
import { append, clean, handleSummary, read, summaryTrendStats, unique } from "./common.js";

export { handleSummary };
export const options = { vus: 2, duration: `${__ENV.SECONDS || 10}s`, summaryTrendStats };
export const setup = clean;

export default function () {
  const tags = [`test:${unique("quick")}`, `run:${unique("quick")}`];
  append({ type: "TestEvent", data: JSON.stringify({ id: unique("id"), message: "Hello World" }), tags });
  read([{ types: ["TestEvent"], tags: tags.slice(0, 1) }], 1);
}
