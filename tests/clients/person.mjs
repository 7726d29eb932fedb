// What somebody writes who has a person in the loop, with the field's public client; nothing in it knows
// whose server it is. Arguments: the server's address, a graph's name.
import assert from "node:assert/strict";
import { Client } from "@langchain/langgraph-sdk";

const [apiUrl, graph] = process.argv.slice(2);
const client = new Client({ apiUrl });
const ask = { script: { n: [{ ask: { approve: 12 } }, { put_results: "a" }] } };
const two = { script: { n: [{ ask_all: ["first?", "second?"] }, { put_results: "a" }] } };
const plain = { script: { n: [{ put: { c: 2 } }] } };

async function all(stream) {
  const parts = [];
  for await (const part of stream) parts.push(part);
  return parts;
}
async function failsWith(status, promise) {
  await assert.rejects(promise, (error) => error.status === status || String(error).includes(`${status}`));
}

const [assistant] = await client.assistants.search({ graphId: graph });
assert.equal(assistant.graph_id, graph);
assert.equal((await client.assistants.getSchemas(assistant.assistant_id)).input_schema.properties.a.type, "array");
assert.ok((await client.assistants.getGraph(graph)).nodes.some((node) => node.id === "n"));

const thread = await client.threads.create({ metadata: { by: "js" } });
const id = thread.thread_id;
assert.equal(thread.status, "idle");
const paused = await client.runs.wait(id, graph, { input: ask });
assert.deepEqual(paused.__interrupt__[0].value, { approve: 12 });
const state = await client.threads.getState(id, undefined, { subgraphs: true });
assert.deepEqual(state.next, ["n"]);
assert.equal(state.tasks[0].interrupts[0].id, paused.__interrupt__[0].id);
await failsWith(409, client.runs.create(id, graph, { input: plain }));

const parts = await all(client.runs.stream(id, graph, { command: { resume: false }, streamMode: ["updates", "values"] }));
assert.equal(parts[0].event, "metadata");
assert.deepEqual(parts.at(-1).data.status, "success");
assert.deepEqual(parts.filter((part) => part.event === "updates").map((part) => Object.keys(part.data)), [["n"]]);
const again = await all(client.runs.joinStream(id, parts[0].data.run_id, { streamMode: ["updates", "values"] }));
assert.deepEqual(again.map((part) => part.event), parts.map((part) => part.event));

const other = await client.threads.create();
const both = await client.runs.wait(other.thread_id, graph, { input: two });
const answers = Object.fromEntries(both.__interrupt__.map((question) => [question.id, `${question.value}!`]));
const done = await client.runs.wait(other.thread_id, graph, { command: { resume: answers } });
assert.deepEqual(done.a, [["first?!", "second?!"]]);

const run = await client.runs.create(other.thread_id, graph, { input: plain });
assert.equal((await client.runs.join(other.thread_id, run.run_id)).c, 2);
assert.equal((await client.runs.get(other.thread_id, run.run_id)).status, "success");
assert.equal((await client.runs.list(other.thread_id)).length, 3);
const history = await client.threads.getHistory(other.thread_id);
assert.equal(history[0].values.c, 2);
await client.threads.updateState(other.thread_id, { values: { c: 5 } });
assert.equal((await client.threads.getState(other.thread_id)).values.c, 7);
assert.deepEqual((await client.threads.search({ metadata: { by: "js" } })).map((t) => t.thread_id), [id]);

await client.runs.wait(other.thread_id, graph, { input: ask });
const [waiting] = await client.runs.list(other.thread_id, { limit: 1 });
await client.runs.cancel(other.thread_id, waiting.run_id, true);
assert.equal((await client.threads.get(other.thread_id)).status, "idle");
await client.threads.delete(other.thread_id);
await failsWith(404, client.threads.get(other.thread_id));
console.log("ok");
