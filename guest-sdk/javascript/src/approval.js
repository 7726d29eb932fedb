// The approval that inboxes know how to show: one action, and which of four answers a person may give.

import { Question, interrupt } from "./interrupts.js";

/**
 * An action for a person to approve. Accepting and ignoring are allowed unless taken away; editing and
 * responding if they are given.
 */
export class Approval {
  constructor(action, args, { description = null, accept = true, edit = false, respond = false, ignore = true } = {}) {
    this.action = { action, args };
    this.description = description;
    this.allowed = { accept, edit, respond, ignore };
  }

  payload() {
    const { accept, edit, respond, ignore } = this.allowed;
    return [
      {
        action_request: this.action,
        config: { allow_accept: accept, allow_edit: edit, allow_respond: respond, allow_ignore: ignore },
        description: this.description,
      },
    ];
  }

  /** What an answer must be: a list of one, of a type that is allowed. */
  schema() {
    const { accept, edit, respond, ignore } = this.allowed;
    const action = {
      type: "object",
      required: ["action", "args"],
      properties: { action: { type: "string" }, args: { type: "object" } },
    };
    const ways = [
      [accept, "accept", {}, ["type"]],
      [edit, "edit", action, ["type", "args"]],
      [respond, "response", { type: "string" }, ["type", "args"]],
      [ignore, "ignore", {}, ["type"]],
    ]
      .filter(([allowed]) => allowed)
      .map(([, kind, args, required]) => ({ properties: { type: { const: kind }, args }, required }));
    if (ways.length === 0) {
      throw new TypeError("an approval allows at least one of accept, edit, respond, ignore");
    }
    return { type: "array", minItems: 1, maxItems: 1, items: { type: "object", oneOf: ways } };
  }

  /** The same as a question, to add an expiry or to ask it beside others. */
  question(more = {}) {
    return new Question(this.payload(), { ...more, schema: this.schema() });
  }

  /** What an answer to the question means. */
  read([{ type, args }]) {
    switch (type) {
      case "accept":
        // Some inboxes send the action back with every argument turned into a string: what was asked counts.
        return { type, action: this.action };
      case "edit":
        return { type, action: { action: args.action, args: args.args } };
      case "response":
        return { type, text: args };
      default:
        return { type: "ignore" };
    }
  }
}

/** Ask a person to approve, and stop here until they have said. */
export function approve(approval) {
  return approval.read(interrupt(approval.question()));
}
