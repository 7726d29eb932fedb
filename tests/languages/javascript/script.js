// One node that does what a test tells it to, written with the SDK for JavaScript. Its program and its ops are
// those of `tests/guests/script`, as far as they make sense here.

import {
  Approval, EffectError, Fail, Outcome, Question, Retry, approve, effect, events, interrupt, interruptAll, log, node,
  steering,
} from "holdpoint-guest";

export const handler = node(
  {
    reads: ["script", "a", "b", "c", "d"],
    writes: ["a", "b", "c", "d"],
    routes: ["w", "x", "y", "z"],
    effects: ["e", "f"],
  },
  function script(state, context) {
    const machine = { state, context, results: [], outcome: new Outcome({}) };
    run(machine, program(state, context));
    return machine.outcome;
  },
);

function program(state, context) {
  if (Array.isArray(context.arg?.script)) return context.arg.script;
  return Array.isArray(state.script) ? state.script : state.script[context.node];
}

function run(machine, ops) {
  for (const op of ops) {
    const verb = Object.keys(op).find((key) => !["schema", "expires_ms", "default"].includes(key));
    const gives = OPS[verb](op[verb], machine, op);
    if (gives !== undefined) machine.results.push(gives);
  }
}

const question = (payload, op) =>
  new Question(payload, { schema: op.schema, expiresAfterMs: op.expires_ms, defaultAnswer: op.default });

const failure = (what) => (typeof what === "object" ? [what.message, what.detail] : [what]);

const OPS = {
  ask: (payload, _, op) => interrupt(question(payload, op)),
  ask_results: (_, { results }, op) => interrupt(question(results, op)),
  ask_all: (payloads, _, op) => interruptAll(payloads.map((payload) => question(payload, op))),
  approve(args) {
    const { type: kind, ...rest } = approve(new Approval("refund", args, { edit: true, respond: true }));
    return { kind, ...rest };
  },
  effect({ name, key, input }) {
    try {
      return { ok: effect(name, key, input) };
    } catch (error) {
      if (!(error instanceof EffectError)) throw error;
      return { err: { kind: error.kind, value: error.outcome } };
    }
  },
  steering: () => steering.instructions(),
  log: ({ level, message }) => log[level](message),
  emit: (event) => events.emit(event),
  print: (text) => console.log(text),
  eprint: (text) => console.error(text),
  now: () => Date.now(),
  random: (count) => Array.from({ length: count }, () => Math.floor(Math.random() * 256).toString(16)).join(""),
  hash_order: () => [...new Set(Array.from({ length: 20 }, (_, i) => `key ${i}`))],
  read: (key, { state }) => state[key] ?? null,
  context(_, { context }) {
    const { threadId, runId, taskId, node, path, step, arg } = context;
    return { thread_id: threadId, run_id: runId, task_id: taskId, node, path, step, arg };
  },
  value: (value) => value,
  put: (members, { outcome }) => void Object.assign(outcome.update, members),
  put_results: (key, { outcome, results }) => void (outcome.update[key] = [...results]),
  go: (label, { outcome }) => void outcome.go(label),
  send: ({ label, arg }, { outcome }) => void outcome.send(label, arg),
  end: (_, { outcome }) => void outcome.end(),
  fail(what) {
    throw new Fail(...failure(what));
  },
  retry(what) {
    throw new Retry(...failure(what));
  },
  repeat({ times, ops }, machine) {
    for (let i = 0; i < times; i += 1) run(machine, ops);
  },
  catch(ops, machine) {
    try {
      run(machine, ops);
      return "finished";
    } catch (error) {
      log.error("unwound");
      return "caught";
    } finally {
      // On the pass that asks, not even this is run.
      console.log("left");
    }
  },
  panic(message) {
    throw new RangeError(message);
  },
  recurse() {
    const deeper = (depth) => deeper(depth + 1) + 1;
    return deeper(0);
  },
  loop() {
    for (;;);
  },
};
