// npm install; npm test

import assert from "node:assert/strict";
import test from "node:test";

import { Script } from "holdpoint-guest/testing";

import { handler } from "./index.js";

test("a large refund asks first", () => {
  const ran = new Script({ answers: ["keep"] }).run(handler, { amount: 250 });
  assert.deepEqual(ran.questions, [{ refund: 250 }]);
  assert.deepEqual(ran.returned, { decision: "keep" });
});

test("a small one does not", () => {
  const ran = new Script().run(handler, { amount: 50 });
  assert.deepEqual([ran.questions, ran.returned], [[], { decision: "refund" }]);
});
