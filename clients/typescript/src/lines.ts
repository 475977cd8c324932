/** Streams of messages: newline-delimited JSON and server-sent events. */
import { RopewalkError } from "./error.js";

/** @internal A message of a subscription. */
export type Message =
  | { kind: "event"; value: unknown }
  | { kind: "control"; name: string; value: Record<string, unknown> };

/** @internal The complete lines of each chunk of a stream. */
export async function* lineChunks(body: ReadableStream<Uint8Array>): AsyncGenerator<string[], void, void> {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let rest = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      const text = done ? decoder.decode() : decoder.decode(value, { stream: true });
      const lines = text.split("\n");
      lines[0] = rest + (lines[0] ?? "");
      rest = lines.pop() ?? "";
      if (lines.length > 0) yield lines;
      if (!done) continue;
      if (rest !== "") throw new RopewalkError({ code: "network", detail: "the stream ended within a line" });
      return;
    }
  } finally {
    // Ends the request when the reader stops early.
    reader.cancel().catch(() => {});
  }
}

/** @internal Messages of an NDJSON subscription. */
export function ndjsonMessages(lines: string[]): Message[] {
  return lines.filter((line) => line !== "").map((line) => {
    const value = JSON.parse(line) as Record<string, unknown>;
    return typeof value["control"] === "string" && !("position" in value)
      ? { kind: "control", name: value["control"], value }
      : { kind: "event", value };
  });
}

/** @internal Parser of server-sent events; a message may extend over several chunks. */
export function sseParser(): (lines: string[]) => Message[] {
  let name = "";
  let data: string[] = [];
  return (lines) => {
    const messages: Message[] = [];
    for (const line of lines) {
      if (line.startsWith("data:")) data.push(line.slice(5).trimStart());
      else if (line.startsWith("event:")) name = line.slice(6).trim();
      else if (line.startsWith(":")) messages.push({ kind: "control", name: "heartbeat", value: {} });
      else if (line === "") {
        if (data.length > 0) {
          const value = JSON.parse(data.join("\n")) as Record<string, unknown>;
          if (name === "") messages.push({ kind: "event", value });
          else messages.push({ kind: "control", name, value: name === "error" ? { problem: value } : value });
        }
        name = "";
        data = [];
      }
    }
    return messages;
  };
}
