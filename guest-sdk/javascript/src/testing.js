// Plays the host for a node in a test, without a component.
//
// `Script.run` calls the node as the host would: from its beginning, and once more after each answer. What the
// node did before the question must happen again in the same way; where it does not, `Diverged` says which
// call it was.
//
// An answer is held against its question's schema, and one that it does not take fails the test. Known are `type`,
// `enum`, `const`, `properties`, `required`, `additionalProperties`, `items`, `prefixItems`, the bounds of numbers,
// texts and lists, `allOf`, `anyOf`, `oneOf`, `not`, and `$ref` into the schema itself. `pattern`, `format`, `if` and
// the rest are not checked here, but by the host.
//
// `Date` and `Math.random` are the script's while it runs: the clock begins on 1 January 2026 and moves on by an hour
// with each answer, random numbers are the same in each pass. So it is in a component.

import { mismatch } from "./answer-schema.js";
import { replace } from "./host.js";
import { fromText, toText } from "./json.js";
import { EffectError } from "./effects.js";
import { seed } from "./random.js";

/** The second pass did not do what the first had done. */
export class Diverged extends Error {}

/** Ends an attempt, as the host does. A node that catches everything catches this one as well, and asks again. */
class Stop {}

/** What people answer and what effects come to; an outcome may be an `EffectError`, which is then thrown. */
export class Script {
  #answers;
  #effects;
  #steering;

  constructor({ answers = [], effects = {}, steering = [] } = {}) {
    this.#answers = answers;
    this.#effects = effects;
    this.#steering = steering;
  }

  /** Runs the node with this input: what `node(…)` gave, or a plain function. */
  run(node, input, context = CONTEXT) {
    const call = typeof node === "function" ? node : node.call;
    const ran = { returned: undefined, paused: false, questions: [], asked: [], effects: [], logs: [], events: [] };
    const journal = [];
    let answered = 0;
    for (;;) {
      const pass = new Pass(journal, ran, this.#effects, this.#steering, answered);
      const before = replace(pass);
      const leave = pass.world(context.taskId);
      try {
        ran.returned = call(input, context);
      } catch (error) {
        if (!(error instanceof Stop)) throw error;
        const entry = journal.at(-1);
        const until = answered + entry.asked.length;
        if (until > this.#answers.length) return { ...ran, paused: true };
        this.#answers.slice(answered, until).forEach((answer, n) => {
          const { payload, answerSchema } = entry.asked[n];
          if (answerSchema === undefined || answerSchema === null) return;
          const why = mismatch(fromText(answerSchema), fromText(toText(answer, "an answer")));
          if (why === undefined) return;
          throw new Error(`answer ${answered + n} of the script is not one that its question takes, ${payload}: ${why}`);
        });
        entry.reply = this.#answers.slice(answered, until).map((answer) => toText(answer, "an answer"));
        answered = until;
        continue;
      } finally {
        leave();
        replace(before);
      }
      if (pass.at !== journal.length) {
        throw new Diverged(
          `the node finished after ${pass.at} host calls, and made ${journal[pass.at].call} next on the first pass`,
        );
      }
      const left = this.#answers.length - answered;
      if (left > 0) throw new Error(`the node finished, and ${left} of the script's answers were never asked for`);
      return ran;
    }
  }
}

const CONTEXT = Object.freeze({
  threadId: "thread",
  runId: "00000000-0000-0000-0000-000000000001",
  taskId: "00000000-0000-0000-0000-000000000002",
  node: "node",
  path: [],
  step: 0,
  arg: null,
});

const START_MS = 1_767_225_600_000;
const ANSWER_MS = 3_600_000;

/** One pass of the node through its journal: what the SDK calls. */
class Pass {
  at = 0;
  /** How many questions this pass has the answers to. */
  got = 0;

  constructor(journal, ran, outcomes, steering, answered) {
    Object.assign(this, { journal, ran, outcomes, steering, answered });
  }

  /** Puts the clock and random numbers of one pass in place; what it returns puts them back. */
  world(taskId) {
    const [RealDate, realRandom] = [globalThis.Date, Math.random];
    let ticks = 0;
    const now = () => START_MS + this.got * ANSWER_MS + (ticks += 1);
    class ScriptDate extends RealDate {
      constructor(...args) {
        super(...(args.length === 0 ? [now()] : args));
      }

      static now() {
        return now();
      }
    }
    globalThis.Date = ScriptDate;
    seed(taskId);
    return () => {
      globalThis.Date = RealDate;
      Math.random = realRandom;
    };
  }

  #recall(call, asked = []) {
    const index = this.at;
    this.at += 1;
    if (index === this.journal.length) {
      this.journal.push({ call, asked, reply: undefined });
      return undefined;
    }
    const entry = this.journal[index];
    if (entry.call !== call) {
      throw new Diverged(`host call ${index} was ${entry.call} on the first pass, and is ${call} now`);
    }
    return entry.reply;
  }

  get #isNew() {
    return this.at === this.journal.length;
  }

  interrupt(asked) {
    return this.interruptAll([asked])[0];
  }

  interruptAll(asked) {
    if (asked.length === 0) return [];
    const isNew = this.#isNew;
    const reply = this.#recall(`interrupt ${toText(asked, "a question")}`, asked);
    if (reply !== undefined) {
      this.got += 1;
      return reply;
    }
    if (isNew) {
      this.ran.asked.push(...asked);
      this.ran.questions.push(...asked.map((one) => fromText(one.payload)));
    }
    throw new Stop();
  }

  perform(name, key, input) {
    const reply = this.#recall(`effect ${toText([name, key, input], "an effect")}`);
    if (reply !== undefined) return reply;
    const before = this.ran.effects.find((done) => done.name === name && done.key === key);
    const done = this.#done(name, input, before);
    if (before === undefined) this.ran.effects.push({ name, key, input: fromText(input) });
    this.journal.at(-1).reply = done;
    return done;
  }

  #done(name, input, before) {
    if (before !== undefined && toText(before.input, "the input") !== input) return { undone: "key-conflict" };
    if (!Object.hasOwn(this.outcomes, name)) {
      throw new Error(`the script has no outcome for the effect ${name}: add it to effects: { … }`);
    }
    const outcome = this.outcomes[name];
    if (!(outcome instanceof EffectError)) return { done: toText(outcome, "an outcome") };
    return { undone: outcome.kind, why: outcome.kind === "failed" ? toText(outcome.outcome, "an outcome") : outcome.message };
  }

  instructions() {
    const reply = this.#recall("steering");
    if (reply !== undefined) return reply;
    const given = this.steering.filter(({ after = 0 }) => after <= this.answered);
    return (this.journal.at(-1).reply = given.map(({ actor, text }) => ({ actor, text })));
  }

  write(level, message) {
    if (this.#isNew) this.ran.logs.push({ level, message });
  }

  emit(event) {
    if (this.#isNew) this.ran.events.push(fromText(event));
  }
}
