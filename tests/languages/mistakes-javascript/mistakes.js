// The mistakes in the author's manual, each as a node that makes it. `mistake` says which.

import { Question, effect, interrupt, log, node } from "holdpoint-guest";

let passes = 0;

const key = (of) => (size) => {
  const made = String(of());
  effect("pay", made, { amount: size });
  interrupt("go on?");
  return made;
};

const MISTAKES = {
  "key-from-random": key(() => Math.random()),
  "key-from-time": key(() => Date.now()),
  "random-as-secret": () => {
    const secret = Math.random();
    interrupt("go on?");
    return secret;
  },
  variable: () => {
    passes += 1;
    interrupt("go on?");
    return { pass: passes };
  },
  finally: () => {
    try {
      interrupt("go on?");
      return "done";
    } finally {
      log.info("released");
    }
  },
  timeout: () => setTimeout(() => {}, 1),
  fetch: () => fetch("https://example.org"),
  slow: (size) => {
    let sum = 0;
    for (let n = 0; n < size; n += 1) sum = (sum * 31 + n) % 1000003;
    interrupt("go on?");
    return sum > 0;
  },
  "map-in-question": () => interrupt(new Map([["a", 1]])),
  "map-in-update": () => new Map([["a", 1]]),
  "no-schema": () => interrupt("your name?").toUpperCase(),
  schema: () => interrupt(new Question("your name?", { schema: { type: "string" } })).toUpperCase(),
};

export const handler = node(
  { reads: ["mistake", "size"], writes: ["result"], effects: ["pay"] },
  function mistakes({ mistake, size = 0 }) {
    // The whole node returns a promise, as an `async function` would.
    if (mistake === "async") return (async () => ({ result: interrupt("go on?") }))();
    return { result: MISTAKES[mistake](size) };
  },
);
