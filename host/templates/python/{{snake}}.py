"""Asks a person before it refunds more than a little."""

from dataclasses import dataclass

from holdpoint_guest import Question, interrupt, log, node


@dataclass
class Input:
    amount: int


@node(reads=["amount"], writes=["decision"])
def {{snake}}(input: Input):
    if input.amount < 100:
        return {"decision": "refund"}
    log.info(f"{input.amount} is a lot; somebody must look at it")
    # Stops here. Once somebody has answered, the node runs again from its beginning, and this call returns
    # what they said.
    decision = interrupt(Question({"refund": input.amount}, schema={"enum": ["refund", "keep"]}), str)
    return {"decision": decision}
