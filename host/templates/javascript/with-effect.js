// Asks a person before it refunds more than a little, and has the refund paid.

import { Question, effect, interrupt, node } from "holdpoint-guest";

export const handler = node(
  { reads: ["order", "amount"], writes: ["decision", "receipt"], effects: ["refund"] },
  function {{camel}}({ order, amount }) {
    let decision = "refund";
    if (!(amount < 100)) {
      // Stops here. Once somebody has answered, the node runs again from its beginning, and this call returns
      // what they said.
      decision = interrupt(new Question({ refund: amount, order }, { schema: { enum: ["refund", "keep"] } }));
    }
    if (decision !== "refund") return { decision };
    // The host does this, once for each key on a thread, however often the node runs there. The key is what
    // it is for. Another thread with the same key does it again.
    const receipt = effect("refund", `refund-order-${order}`, { order, amount });
    return { decision, receipt };
  },
);
