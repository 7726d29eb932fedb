"""Where and why a node runs."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Context:
    """The same in every attempt of one task."""

    #: The thread's name, as the caller chose it.
    thread_id: str
    #: The run that this task belongs to.
    run_id: str
    #: This activation of the node. It stays the same across retries and resumes, so it makes a good
    #: idempotency key for what a node does once an activation.
    task_id: str
    #: The node's name in the graph.
    node: str
    #: The subgraph nodes that lead here from the root; empty in the root graph.
    path: list[str] = field(default_factory=list)
    #: The step of the run, from 0.
    step: int = 0
    #: The argument of the `send` that started this task.
    arg: Any = None
