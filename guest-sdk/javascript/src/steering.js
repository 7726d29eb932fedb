// What people added beside their answers.

import { host } from "./host.js";

/**
 * All instructions for this task so far, oldest first: `{ actor, text }`. Call it after `interrupt` to see
 * what came with the answer. A call that was made before the question returns what it returned then.
 */
export function instructions() {
  return host().instructions();
}
