/** The examples of docs/clients.md are compiled. */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { test } from "node:test";

/** Names that the examples expect from the application. */
const GIVEN = "declare const signal: AbortSignal;\ndeclare function send(data: unknown): Promise<void>;\n";

test("examples of the documentation compile", () => {
  const page = readFileSync("../../docs/clients.md", "utf8");
  const [first, ...others] = [...page.matchAll(/^```ts\n(.*?)^```/gms)].map((block) => block[1] ?? "");
  assert.ok(first !== undefined && others.length >= 5);
  // Each example has its names, and those of the first one.
  const blocks = others.map((block) => `{\n${block}}\n`);
  mkdirSync("build/docs", { recursive: true });
  writeFileSync("build/docs/examples.ts", GIVEN + first + blocks.join(""));
  const config = { extends: "../../test/tsconfig.json", compilerOptions: { noEmit: true, noUnusedLocals: false, rootDir: "../.." }, include: ["."], exclude: [] };
  writeFileSync("build/docs/tsconfig.json", JSON.stringify(config));
  const run = () => execFileSync("node_modules/.bin/tsc", ["-p", "build/docs"], { encoding: "utf8", stdio: "pipe" });
  try {
    run();
  } catch (error) {
    assert.fail((error as { stdout: string }).stdout);
  }
});
