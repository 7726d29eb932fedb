// Doing something outside, through the host.

import { Fail } from "./errors.js";
import { host } from "./host.js";
import { fromText, toText } from "./json.js";

/**
 * Why an effect was not done, or is not known to be done.
 *
 * A node that does not catch it **fails for good**: none of the kinds is mended by the same call again,
 * because the host remembers the outcome under the key. If another attempt can help, say so yourself:
 * `catch (error) { throw new Retry(error) }`.
 */
export class EffectError extends Fail {
  constructor(kind, message, outcome = null) {
    super(message, { effect_error: kind, outcome });
    /** `denied`, `invalid`, `key-conflict`, `failed`, or `in-doubt`. */
    this.kind = kind;
    /** Of `failed`: what is known of it. */
    this.outcome = outcome;
  }
}

/**
 * Have the host do `name` with `input`, once for each `key`.
 *
 * The same key with the same input is done once: later calls, in this attempt or another, return the first
 * outcome. The same key with another input is a `key-conflict`. Derive the key from what the effect is
 * *for*: `issue-17-reply`, not a counter, not a random number. It belongs to this node, this effect and this
 * thread, and has 1 to 255 characters.
 *
 * `name` must be in the node's `effects`, and the graph must map it to something.
 */
export function effect(name, key, input = null) {
  let text;
  try {
    text = toText(input, "the input");
  } catch (error) {
    throw new EffectError("invalid", error.message);
  }
  const { done, undone, why } = host().perform(name, key, text);
  switch (undone) {
    case undefined:
      return fromText(done);
    case "denied":
      throw new EffectError(undone, `the effect was denied: ${why}`);
    case "invalid":
      throw new EffectError(undone, `the effect call is invalid: ${why}`);
    case "key-conflict":
      throw new EffectError(undone, `the idempotency key ${JSON.stringify(key)} of the effect ${JSON.stringify(name)} was used before with another input`);
    case "failed":
      throw new EffectError(undone, `the effect failed: ${why}`, fromText(why));
    default:
      throw new EffectError(undone, `it is not known whether the effect was done: ${why}`);
  }
}
