// What the four sections share: requests in the shape of the go-crablet web app, counters, the summary.
import http from "k6/http";
import { sleep } from "k6";
import { Counter } from "k6/metrics";

const base = __ENV.BASE_URL;
const params = (headers) => ({ headers: { "Content-Type": "application/json", ...headers } });

// Requests that were not answered 200, or not with what must come.
const wrong = new Counter("wrong_answers");
// Appends that were accepted under a condition that holds once at most.
const once = new Counter("accepted_once_only");

export function post(path, body, headers = {}) {
  const response = http.post(base + path, JSON.stringify(body), params(headers));
  if (response.status !== 200) {
    wrong.add(1);
    return null;
  }
  return response.json();
}

// Appends; `expected` is what `appendConditionFailed` must be, or null when either may come.
export function append(events, condition, headers, expected = false) {
  const body = condition ? { events, condition } : { events };
  const answer = post("/append", body, headers);
  if (answer !== null && expected !== null && answer.appendConditionFailed !== expected) wrong.add(1);
  return answer;
}

// Appends under a condition that the first of all appends makes false for ever.
export function appendOnce(events, condition, headers) {
  const answer = append(events, condition, headers, null);
  if (answer !== null && !answer.appendConditionFailed) once.add(1);
}

// Counts what matches; `expected` is the number, or undefined.
export function read(items, expected) {
  const answer = post("/read", { query: { items } });
  if (answer !== null && expected !== undefined && answer.numberOfMatchingEvents !== expected) wrong.add(1);
}

export const failIf = (types, tags) => ({ failIfEventsMatch: { items: [{ types, tags }] } });

export function clean() {
  if (http.post(base + "/cleanup").status !== 200) throw new Error("the store cannot be emptied");
}

export function pause(seconds) {
  if (__ENV.SLEEP !== "no") sleep(seconds);
}

// No two values are the same: the virtual user, its iteration, and a number within it.
let number = 0;
export const unique = (name) => `${name}-${__VU}-${__ITER}-${number++}`;

// A ramp given as [seconds, virtual users] of the original, scaled to SECONDS in all.
export function stages(original) {
  const total = original.reduce((sum, [seconds]) => sum + seconds, 0);
  const scale = Number(__ENV.SECONDS || total) / total;
  return original.map(([seconds, target]) => ({ duration: `${Math.round(seconds * scale * 1000)}ms`, target }));
}

export function handleSummary(data) {
  const value = (metric, name) => (data.metrics[metric] ? data.metrics[metric].values[name] : 0);
  const summary = {
    rps: value("http_reqs", "rate"),
    p50_ms: value("http_req_duration", "med"),
    p95_ms: value("http_req_duration", "p(95)"),
    p99_ms: value("http_req_duration", "p(99)"),
    errors: value("wrong_answers", "count"),
    accepted_once_only: value("accepted_once_only", "count"),
  };
  return { [__ENV.SUMMARY]: JSON.stringify(summary) };
}

export const summaryTrendStats = ["med", "p(95)", "p(99)"];
