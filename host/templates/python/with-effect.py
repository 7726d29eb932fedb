"""Asks a person before it refunds more than a little, and has the refund paid."""

from dataclasses import dataclass

from holdpoint_guest import Question, effect, interrupt, node


@dataclass
class Input:
    order: int
    amount: int


@node(reads=["order", "amount"], writes=["decision", "receipt"], effects=["refund"])
def {{snake}}(input: Input):
    decision = "refund"
    if input.amount >= 100:
        # Stops here. Once somebody has answered, the node runs again from its beginning, and this call returns
        # what they said.
        question = Question({"refund": input.amount, "order": input.order}, schema={"enum": ["refund", "keep"]})
        decision = interrupt(question, str)
    if decision != "refund":
        return {"decision": decision}
    # The host does this, once for each key on a thread, however often the node runs there. The key is what
    # it is for. Another thread with the same key does it again.
    key = f"refund-order-{input.order}"
    receipt = effect("refund", key, {"order": input.order, "amount": input.amount})
    return {"decision": decision, "receipt": receipt}
