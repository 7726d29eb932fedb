"""Write Holdpoint nodes in Python.

A node is a function from what it reads to what it writes; `@node` makes it the node of its component.
The manual is the README beside this package.
"""

from . import approval, events, log, steering
from .approval import Accept, Action, Approval, Edit, Ignore, Response, approve
from .context import Context
from .effects import EffectError, effect
from .errors import Fail, NodeError, Retry
from .interrupts import Question, interrupt, interrupt_all
from .node import node
from .outcome import Outcome
from .typed import Mismatch

__version__ = "0.1.0"

__all__ = [
    "Accept",
    "Action",
    "Approval",
    "Context",
    "Edit",
    "EffectError",
    "Fail",
    "Ignore",
    "Mismatch",
    "NodeError",
    "Outcome",
    "Question",
    "Response",
    "Retry",
    "approval",
    "approve",
    "effect",
    "events",
    "interrupt",
    "interrupt_all",
    "log",
    "node",
    "steering",
]
