// npm install; npm test

import assert from "node:assert/strict";
import test from "node:test";

import { Script } from "holdpoint-guest/testing";

import { handler } from "./index.js";

test("a large refund asks first, and is paid once", () => {
  // What the graph's HTTP effect gives: the status, and what the service said.
  const paid = { status: 200, body: { receipt: 5 } };
  const script = new Script({ answers: ["refund"], effects: { refund: paid } });
  const ran = script.run(handler, { order: 17, amount: 250 });
  assert.deepEqual(ran.questions, [{ refund: 250, order: 17 }]);
  assert.deepEqual(ran.effects, [{ name: "refund", key: "refund-order-17", input: { order: 17, amount: 250 } }]);
  assert.deepEqual(ran.returned, { decision: "refund", receipt: paid });
});

test("what is kept is not paid", () => {
  const ran = new Script({ answers: ["keep"] }).run(handler, { order: 17, amount: 250 });
  assert.deepEqual([ran.effects, ran.returned], [[], { decision: "keep" }]);
});
