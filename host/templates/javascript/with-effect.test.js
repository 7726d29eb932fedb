// npm install; npm test

import assert from "node:assert/strict";
import test from "node:test";

import { Script } from "holdpoint-guest/testing";

import { handler } from "./index.js";

test("a large refund asks first, and is paid once", () => {
  const script = new Script({ answers: ["refund"], effects: { refund: { receipt: 5 } } });
  const ran = script.run(handler, { order: 17, amount: 250 });
  assert.deepEqual(ran.questions, [{ refund: 250, order: 17 }]);
  assert.deepEqual(ran.effects, [{ name: "refund", key: "refund-order-17", input: { order: 17, amount: 250 } }]);
  assert.deepEqual(ran.returned, { decision: "refund", receipt: { receipt: 5 } });
});

test("what is kept is not paid", () => {
  const ran = new Script({ answers: ["keep"] }).run(handler, { order: 17, amount: 250 });
  assert.deepEqual([ran.effects, ran.returned], [[], { decision: "keep" }]);
});
