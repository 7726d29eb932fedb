// The host as the contract has it. Bundled into components alone: its imports are there only in one.

import effects from "holdpoint:node/effects@0.1.0";
import events from "holdpoint:node/events@0.1.0";
import interrupts from "holdpoint:node/interrupts@0.1.0";
import log from "holdpoint:node/log@0.1.0";
import steering from "holdpoint:node/steering@0.1.0";
import { replace } from "./host.js";

replace({
  interrupt: (asked) => interrupts.interrupt(asked),
  interruptAll: (asked) => interrupts.interruptAll(asked),
  perform(name, key, input) {
    try {
      return { done: effects.perform(name, key, input) };
    } catch (error) {
      // The contract's own cases are an error's payload; anything else is no answer of the host's.
      const { tag, val } = error?.payload ?? {};
      if (typeof tag !== "string") throw error;
      return { undone: tag, why: val };
    }
  },
  instructions: () => steering.instructions(),
  write: (level, message) => log.write(level, message),
  emit: (event) => events.emit(event),
});

// The engine has no console; what a node prints is for the operator's log.
const print = (level) => (...values) => log.write(level, values.map(shown).join(" "));
globalThis.console = {
  trace: print("trace"),
  debug: print("debug"),
  log: print("info"),
  info: print("info"),
  warn: print("warn"),
  error: print("error"),
};

function shown(value) {
  if (typeof value === "string") return value;
  if (value instanceof Error) return `${value.name}: ${value.message}`;
  try {
    return JSON.stringify(value) ?? String(value);
  } catch {
    return String(value);
  }
}
