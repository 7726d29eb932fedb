// Tests of the SDK itself: `node --test tests/sdk.test.js` in this folder.

import assert from "node:assert/strict";
import test from "node:test";

import {
  Approval, EffectError, Fail, Outcome, Question, Retry, approve, effect, events, interrupt, interruptAll, log, node,
  steering,
} from "../src/index.js";
import { fromText, toText } from "../src/json.js";
import { failed } from "../src/node.js";
import { seed } from "../src/random.js";
import { Diverged, Script } from "../src/testing.js";

test("keys are sorted and large whole numbers come through", () => {
  assert.equal(toText({ b: [1n << 70n, 1.5], a: "ä\u2028", c: undefined }, "it"), '{"a":"ä\u2028","b":[1180591620717411303424,1.5]}');
  const text = '{ "a": [1180591620717411303424, -12345678901234567890, 1.5e3, "x\\"\\u00e4 ]", {}, [] , true, null], "__proto__": 1 }';
  const value = fromText(text);
  assert.deepEqual(value.a, [1n << 70n, -12345678901234567890n, 1500, 'x"ä ]', {}, [], true, null]);
  assert.deepEqual(Object.keys(value), ["a", "__proto__"]);
  assert.deepEqual(fromText('{"a": 9007199254740991}'), { a: Number.MAX_SAFE_INTEGER });
  assert.equal(fromText("1180591620717411303424"), 1n << 70n);
});

test("what JSON would drop or change in silence is refused", () => {
  const loop = {};
  loop.self = loop;
  for (const [value, part] of [
    [NaN, "NaN is no JSON number"],
    [{ a: [1, Infinity] }, "at a[1]: Infinity is no JSON number"],
    [{ a: new Map() }, "at a: a Map would be written as {}"],
    [() => 1, "function is no JSON type"],
    [loop, "at self: it holds itself"],
  ]) {
    assert.throws(() => toText(value, "the update"), (error) => error.message.includes(part));
  }
  assert.equal(toText({ at: new Date(0) }, "it"), '{"at":"1970-01-01T00:00:00.000Z"}');
});

function whole(amount) {
  log.info("begins");
  const approved = interrupt(new Question({ refund: amount }, { schema: { type: "boolean" }, expiresAfterMs: 2000, defaultAnswer: null }));
  const receipt = effect("refund", "order-17", { cents: amount });
  events.emit(receipt);
  const marks = interruptAll(["speed", "taste"]);
  log.info("ends");
  return [approved, receipt, marks, steering.instructions().map((given) => given.text)];
}

test("a node is run again after each answer and does everything once", () => {
  const script = new Script({
    answers: [true, 1, 2],
    effects: { refund: { no: 5 } },
    steering: [{ after: 1, actor: "ada", text: "be quick" }],
  });
  const ran = script.run(whole, 12);
  assert.deepEqual(ran.returned, [true, { no: 5 }, [1, 2], ["be quick"]]);
  assert.deepEqual(ran.questions, [{ refund: 12 }, "speed", "taste"]);
  assert.deepEqual([ran.asked[0].expiresAfterMs, ran.asked[0].defaultAnswer], [2000, "null"]);
  assert.deepEqual(ran.effects, [{ name: "refund", key: "order-17", input: { cents: 12 } }]);
  assert.deepEqual(ran.logs.map(({ message }) => message), ["begins", "ends"]);
  assert.deepEqual(ran.events, [{ no: 5 }]);
});

test("without an answer it waits", () => {
  const ran = new Script().run(whole, 12);
  assert.deepEqual([ran.paused, ran.questions.length], [true, 1]);
});

test("what differs on the second pass is told", () => {
  let passes = 0;
  const careless = () => interrupt((passes += 1));
  assert.throws(() => new Script({ answers: [1] }).run(careless, {}), Diverged);
});

test("an effect that fails is thrown with what is known", () => {
  for (const error of [new EffectError("failed", "no", { status: 500 }), new EffectError("denied", "no"), new EffectError("in-doubt", "no")]) {
    assert.throws(
      () => new Script({ effects: { e: error } }).run(() => effect("e", "k", 1), {}),
      (thrown) => thrown instanceof Fail && thrown.kind === error.kind && JSON.stringify(thrown.outcome) === JSON.stringify(error.outcome),
    );
  }
  const twice = () => [effect("e", "k", 1), effect("e", "k", 2)];
  assert.throws(() => new Script({ effects: { e: 1 } }).run(twice, {}), (thrown) => thrown.kind === "key-conflict" && /^the idempotency key ".+" of the effect "e" was used before/.test(thrown.message));
});

test("an answer that the schema does not take fails the test", () => {
  for (const [schema, answer, said] of [
    [{ type: "boolean" }, "yes", 'at /: expected boolean, and it is "yes"'],
    [{ required: ["a"] }, {}, "at /: expected an object with `a`, and it is {}"],
    [{ properties: { a: { items: { maximum: 5 } } } }, { a: [6] }, "at /a/0: expected at most 5, and it is 6"],
    [{ additionalProperties: false }, { a: 1 }, "at /a: expected nothing, and it is 1"],
    [{ enum: ["a", 1] }, true, 'at /: expected one of "a", 1, and it is true'],
    [{ oneOf: [{ const: 1 }, { minLength: 2 }] }, "a", "at least 2 characters"],
    [{ $defs: { n: { type: "null" } }, $ref: "#/$defs/n" }, 1, "expected null"],
    [{ $ref: "#", pattern: "^a$" }, "b", undefined],
    [{ type: "integer", multipleOf: 5 }, 10, undefined],
  ]) {
    const run = () => new Script({ answers: [answer] }).run(() => interrupt(new Question("ok?", { schema })), {});
    if (said === undefined) {
      assert.deepEqual(run().returned, answer);
      continue;
    }
    assert.throws(run, ({ message }) => {
      assert.ok(message.startsWith('answer 0 of the script is not one that its question takes, "ok?": at'), message);
      return message.includes(said);
    });
  }
});

test("clock and random numbers are the same in each pass", () => {
  const asks = () => {
    const [began, code] = [Date.now(), Math.random()];
    interrupt({ at: new Date().toISOString(), code });
    return { began, took: new Date() - began, code };
  };
  const run = () => new Script({ answers: [true] }).run(asks, {}).returned;
  const { began, took } = run();
  assert.equal(began, Date.UTC(2026, 0, 1) + 1);
  assert.equal(took, 3_600_002);
  assert.deepEqual(run(), run());
  assert.ok(Date.now() > began && new Date() instanceof Date && Math.random() !== Math.random());
});

test("a stack is told by the author's files and lines", () => {
  globalThis.HOLDPOINT_PLACES = { files: ["a.js"], lines: [null, [0, 7]] };
  const error = new Error("no");
  error.stack = "at f (/bundle.js:2:9)\n    at /bundle.js:1:1";
  const { stack } = fromText(failed(error).val.detail);
  delete globalThis.HOLDPOINT_PLACES;
  assert.equal(stack, "Error: no\nat f (a.js:7)\n    at /bundle.js:1:1");
});

test("outside of a component a question says so", () => {
  assert.throws(() => interrupt("?"), /a host call outside of a component/);
});

test("each answer to an approval means what the inbox meant", () => {
  const request = new Approval("refund", { cents: 1200 }, { edit: true, respond: true });
  for (const [answer, decision] of [
    [{ type: "accept", args: { action: "refund", args: { cents: "1200" } } }, { type: "accept", action: { action: "refund", args: { cents: 1200 } } }],
    [{ type: "edit", args: { action: "refund", args: { cents: 5 } } }, { type: "edit", action: { action: "refund", args: { cents: 5 } } }],
    [{ type: "response", args: "why?" }, { type: "response", text: "why?" }],
    [{ type: "ignore", args: null }, { type: "ignore" }],
  ]) {
    const ran = new Script({ answers: [[answer]] }).run(() => approve(request), {});
    assert.deepEqual(ran.returned, decision);
    assert.deepEqual(ran.questions[0], [
      {
        action_request: { action: "refund", args: { cents: 1200 } },
        config: { allow_accept: true, allow_edit: true, allow_respond: true, allow_ignore: true },
        description: null,
      },
    ]);
  }
});

test("a mistake in a declaration says what to write instead", () => {
  assert.throws(() => node({ reads: "amount" }, () => {}), /write a list: reads: \["amount"\]/);
  assert.throws(() => node({ writes: ["a", "a"] }, () => {}), /a name twice/);
  assert.throws(() => node({ read: [] }, () => {}), /not read/);
  assert.throws(() => node({}), /write `node/);
});

const CONTEXT = { threadId: "t", runId: "r", taskId: "x", node: "n", path: [], step: 0, arg: '{"n":1}' };

test("an outcome is as the contract has it", () => {
  const routes = node({}, (input, context) => new Outcome({ b: input.a, arg: context.arg }).go("x").send("y", { n: 1 }).end());
  assert.deepEqual(routes.run(CONTEXT, '{"a":2}'), {
    update: '{"arg":{"n":1},"b":2}',
    routes: [{ tag: "go", val: "x" }, { tag: "send", val: { label: "y", arg: '{"n":1}' } }, { tag: "end" }],
  });
  assert.equal(node({}, () => {}).run(CONTEXT, "{}").update, "{}");
});

test("whatever is thrown becomes the node's error", () => {
  const thrown = (run) => {
    try {
      return node({}, run).run(CONTEXT, "{}");
    } catch (error) {
      return error;
    }
  };
  assert.deepEqual(thrown(() => { throw new Retry("later", { n: 1 }); }), { tag: "retry", val: { message: "later", detail: '{"n":1}' } });
  const range = thrown(function deep() { throw new RangeError("first\nsecond"); });
  assert.equal(range.val.message, "RangeError: first second");
  assert.match(JSON.parse(range.val.detail).stack, /deep/);
  assert.match(thrown(() => { throw "a word"; }).val.message, /thrown: a word/);
  assert.match(thrown(async () => {}).val.message, /a node is not async/);
  assert.match(thrown(() => [1]).val.message, /this is \[1\]/);
  assert.equal(failed(new Fail(new Error("x"))).val.message, "x");
});

test("random numbers are the task's own, and the same every time", () => {
  const drawn = (task) => {
    seed(task);
    return Array.from({ length: 1000 }, () => Math.random());
  };
  const before = Math.random;
  assert.deepEqual(drawn("a"), drawn("a"));
  assert.notDeepEqual(drawn("a"), drawn("b"));
  const numbers = drawn("a");
  const mean = numbers.reduce((sum, number) => sum + number) / numbers.length;
  assert.ok(numbers.every((number) => number >= 0 && number < 1) && Math.abs(mean - 0.5) < 0.05, String(mean));
  Math.random = before;
});
