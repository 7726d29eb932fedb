// Asking a person.

import { host } from "./host.js";
import { fromText, toText } from "./json.js";

/**
 * What to ask, and what counts as an answer. Whatever can be written as JSON is a question by itself; this
 * adds a schema, an expiry, a default.
 */
export class Question {
  constructor(payload, { schema, expiresAfterMs, defaultAnswer } = {}) {
    this.asked = {
      payload: toText(payload, "a question's payload"),
      answerSchema: schema === undefined ? null : toText(schema, "an answer schema"),
      expiresAfterMs: expiresAfterMs === undefined ? null : Math.round(expiresAfterMs),
      defaultAnswer: defaultAnswer === undefined ? null : toText(defaultAnswer, "a default answer"),
    };
  }
}

/**
 * Ask a person, and stop here until there is an answer.
 *
 * On the pass that asks, this does not return: the instance is dropped where it stands. No `catch` catches
 * it, no `finally` runs. When the answer is there, perhaps months later, the node runs again from its
 * beginning, and this call returns the answer. So the way to this call must be the same every time.
 */
export function interrupt(question) {
  return fromText(host().interrupt(asked(question)));
}

/**
 * Ask several questions at once, and stop here until all are answered. They may be answered one by one and
 * in any order; the answers come in the order of the questions. No questions: returns at once.
 */
export function interruptAll(questions) {
  return host().interruptAll(Array.from(questions, asked)).map(fromText);
}

function asked(question) {
  return question instanceof Question ? question.asked : new Question(question).asked;
}
