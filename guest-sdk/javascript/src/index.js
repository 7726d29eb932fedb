// Write Holdpoint nodes in JavaScript. A node is a function from what it reads to what it writes; `node`
// makes it what a component exports. The manual is the README beside this package.

export { Approval, approve } from "./approval.js";
export { EffectError, effect } from "./effects.js";
export { Fail, NodeError, Retry } from "./errors.js";
export * as events from "./events.js";
export { Question, interrupt, interruptAll } from "./interrupts.js";
export * as log from "./log.js";
export { node } from "./node.js";
export { Outcome } from "./outcome.js";
export * as steering from "./steering.js";
