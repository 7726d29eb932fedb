// What a node hands back when it is done.

import { toText } from "./json.js";

/**
 * What the node writes, and where to go next. A node that takes no route of its own returns what it writes
 * alone, and the graph's edges apply.
 */
export class Outcome {
  constructor(update = {}) {
    this.update = update;
    this.routes = [];
  }

  /** Go to the node behind this label, one of the node's `routes`. */
  go(label) {
    this.routes.push({ tag: "go", val: label });
    return this;
  }

  /**
   * Start a task of its own behind this label, with an argument, which it finds in `context.arg`. Sends never
   * merge: three sends start three tasks.
   */
  send(label, arg) {
    this.routes.push({ tag: "send", val: { label, arg: toText(arg, `the argument sent to ${label}`) } });
    return this;
  }

  /** Go nowhere from here, whatever edges the graph draws. */
  end() {
    this.routes.push({ tag: "end" });
    return this;
  }
}

/** The update as JSON; nothing returned writes nothing. */
export function updateText(update) {
  const text = update === undefined || update === null ? "{}" : toText(update, "the update");
  if (!text.startsWith("{")) {
    const shown = text.length <= 80 ? text : `${text.slice(0, 79)}…`;
    throw new TypeError(`a node returns an object, from the names it writes to values; this is ${shown}`);
  }
  return text;
}
