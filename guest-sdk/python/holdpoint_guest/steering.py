"""What people added beside their answers."""

from dataclasses import dataclass

from .host import host


@dataclass(frozen=True)
class Instruction:
    """One instruction, as it was given."""

    #: Who gave it, as far as the host knows.
    actor: str
    text: str


def instructions() -> list[Instruction]:
    """All instructions for this task so far, oldest first.

    Call it after `interrupt` to see what came with the answer. A call that was made before the question
    returns what it returned then; a new call sees more.
    """
    return [Instruction(actor, text) for actor, text in host().instructions()]
