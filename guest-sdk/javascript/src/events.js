// For those who watch a run live.

import { host } from "./host.js";
import { toText } from "./json.js";

/**
 * Show a value to whoever watches: progress, a token of a reply, a half-made draft. It is not state. It
 * reaches watchers at once, before anything is durable, and a run that is resumed does not repeat it.
 */
export function emit(event) {
  host().emit(toText(event, "an event"));
}
