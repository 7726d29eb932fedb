// Labels a GitHub issue by the words in it, as `classify` does. It asks nobody and touches nothing.

import { log, node } from "holdpoint-guest";

/** A label, and the words that call for it. */
const RULES = {
  bug: ["crash", "error", "fail", "broken", "wrong"],
  docs: ["readme", "documentation", "spelling", "spelled", "typo"],
  feature: ["feature", "support for", "would be nice", "please add"],
  question: ["how do i", "how can i", "question", "?"],
};

export const handler = node({ reads: ["issue"], writes: ["labels"] }, function classify({ issue: { issue } }) {
  const text = `${issue.title}\n${issue.body ?? ""}`.toLowerCase();
  const labels = Object.keys(RULES).filter((label) => RULES[label].some((word) => text.includes(word)));
  log.info(`labels for "${issue.title}": ${labels.join(", ")}`);
  return { labels };
});
