// Asks a person before it refunds more than a little.

import { Question, interrupt, log, node } from "holdpoint-guest";

export const handler = node(
  { reads: ["amount"], writes: ["decision"] },
  function {{camel}}({ amount }) {
    if (amount < 100) return { decision: "refund" };
    log.info(`${amount} is a lot; somebody must look at it`);
    // Stops here. Once somebody has answered, the node runs again from its beginning, and this call returns
    // what they said.
    const decision = interrupt(new Question({ refund: amount }, { schema: { enum: ["refund", "keep"] } }));
    return { decision };
  },
);
