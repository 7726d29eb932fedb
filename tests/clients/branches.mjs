// Time travel, as somebody writes it who knows it from the field's own server. Arguments: the server's address,
// the name of a graph of two nodes in a row, `n` and `m`.
import assert from "node:assert/strict";
import { Client } from "@langchain/langgraph-sdk";

const [apiUrl, graph] = process.argv.slice(2);
const client = new Client({ apiUrl });
const input = {
  script: {
    n: [{ put: { a: ["draft"], c: 1 } }],
    m: [{ ask: "right?" }, { put: { c: 10 } }, { put_results: "a" }],
  },
};

const { thread_id: id } = await client.threads.create({ metadata: { of: "branches-js" } });
await client.runs.wait(id, graph, { input });
const first = await client.runs.wait(id, graph, { command: { resume: "yes" } });
assert.deepEqual([first.a, first.c], [["draft", "yes"], 11]);

const history = await client.threads.getHistory(id, { limit: 50 });
const before = history.find((state) => state.next[0] === "m" && state.tasks[0].interrupts.length === 0);
const old = await client.threads.getState(id, before.checkpoint);
assert.deepEqual([old.values.a, old.next], [["draft"], ["m"]]);

// Replay.
const replay = await client.runs.wait(id, graph, { input: null, checkpoint: before.checkpoint });
assert.equal(replay.__interrupt__.length, 1);
const other = await client.runs.wait(id, graph, { command: { resume: "no" } });
assert.deepEqual(other.a, ["draft", "no"]);

// Fork: write into an old state, and run from there.
const fork = await client.threads.updateState(id, { values: { a: ["edited"] }, checkpoint: before.checkpoint });
const state = await client.threads.getState(id);
assert.equal(state.checkpoint.checkpoint_id, fork.checkpoint.checkpoint_id);
assert.deepEqual([state.next, state.values.a], [["m"], ["draft", "edited"]]);
const parts = [];
for await (const part of client.runs.stream(id, graph, { input: null, checkpoint: fork.checkpoint, streamMode: "updates" }))
  parts.push(part);
assert.ok(parts.some((part) => part.event === "updates" && part.data.__interrupt__));
const done = await client.runs.wait(id, graph, { command: { resume: "ok" } });
assert.deepEqual(done.a, ["draft", "edited", "ok"]);

// Copy, and prune.
const copy = await client.threads.copy(id);
assert.notEqual(copy.thread_id, id);
assert.deepEqual((await client.threads.getState(copy.thread_id)).values, done);
assert.deepEqual(await client.threads.prune([id], { strategy: "keep_latest" }), { pruned_count: 1 });
assert.ok((await client.threads.getHistory(id, { limit: 50 })).length < history.length);
assert.deepEqual(await client.threads.prune([id, copy.thread_id]), { pruned_count: 2 });
await assert.rejects(client.threads.get(id), (error) => error.status === 404);
console.log("ok");
