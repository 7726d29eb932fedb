// The glue between the contract's exports and the function that is the node.

import { NodeError, Retry } from "./errors.js";
import { fromText, toText } from "./json.js";
import { Outcome, updateText } from "./outcome.js";
import { seed } from "./random.js";

/** Of a stack, what is worth carrying in an error. */
const STACK_CHARS_MAX = 8_000;
// What the manifest says; `holdpoint build` writes it in here.
const PACKAGE = globalThis.HOLDPOINT_PACKAGE ?? {};
const KEYS = ["name", "version", "reads", "writes", "routes", "effects"];

/**
 * Makes a function the node of this component: `export const handler = node({ reads, writes }, function …)`.
 *
 * It takes `(input, context)`: the input is an object with the names in `reads`. It returns what it writes
 * (an object whose keys are names in `writes`), or an `Outcome` if it also chooses where to go.
 */
export function node(declared, run) {
  const unknown = Object.keys(declared).find((key) => !KEYS.includes(key));
  if (unknown !== undefined) throw new TypeError(`a node declares ${KEYS.join(", ")}; not ${unknown}`);
  if (typeof run !== "function") throw new TypeError("write `node({ reads: […], writes: […] }, function …)`");
  const names = (key) => {
    const list = declared[key] ?? [];
    if (!Array.isArray(list)) throw new TypeError(`write a list: ${key}: [${JSON.stringify(list)}]`);
    if (new Set(list).size !== list.length) throw new TypeError(`${key} has a name twice: ${list.join(", ")}`);
    return [...list];
  };
  const info = {
    name: declared.name ?? PACKAGE.name ?? (run.name || "node"),
    version: declared.version ?? PACKAGE.version ?? "0.0.0",
    reads: names("reads"),
    writes: names("writes"),
    routes: names("routes"),
    effects: names("effects"),
  };
  return {
    describe: () => info,
    /** What the contract calls. */
    run(context, state) {
      seed(context.taskId);
      let failure;
      try {
        const arg = context.arg === null || context.arg === undefined ? null : fromText(context.arg);
        return done(run(fromText(state), Object.freeze({ ...context, arg })));
      } catch (error) {
        // Whatever it is, it is the node's: the host's stop is no exception, and never comes by here.
        failure = failed(error);
      }
      throw failure;
    },
    /** The function as it was written, for tests. */
    call: run,
  };
}

function done(returned) {
  if (typeof returned?.then === "function") {
    throw new TypeError("a node is not async: the host's calls wait by themselves; leave `async` and `await` away");
  }
  const outcome = returned instanceof Outcome ? returned : new Outcome(returned);
  return { update: updateText(outcome.update), routes: outcome.routes };
}

/** The contract's error for whatever was thrown. */
export function failed(error) {
  if (error instanceof NodeError) {
    return { tag: error instanceof Retry ? "retry" : "fail", val: { message: error.message, detail: detail(error.detail) } };
  }
  const isError = error instanceof Error;
  const message = isError ? `${error.name}: ${error.message}` : `thrown: ${String(error)}`;
  const stack = String((isError && error.stack) || "").slice(0, STACK_CHARS_MAX);
  const known = { exception: isError ? error.name : typeof error, stack: `${message}\n${placed(stack)}` };
  return { tag: "fail", val: { message: message.replace(/\s*\n\s*/g, " "), detail: detail(known) } };
}

/** The stack with the author's files and lines in place of the bundle's, as far as `holdpoint build` left word of them. */
function placed(stack) {
  const { files = [], lines = [] } = globalThis.HOLDPOINT_PLACES ?? {};
  return stack.replace(/\/bundle\.js:(\d+)(:\d+)?/g, (place, line) => {
    const at = lines[Number(line) - 1];
    return at ? `${files[at[0]]}:${at[1]}` : place;
  });
}

function detail(value) {
  if (value === undefined || value === null) return null;
  try {
    return toText(value, "a detail");
  } catch {
    return null;
  }
}
