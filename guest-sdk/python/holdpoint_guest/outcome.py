"""What a node hands back when it is done."""

from typing import Any

from . import json_text


class Outcome:
    """What the node writes, and where to go next.

    A node that takes no route of its own returns what it writes alone, and the graph's edges apply.

        return Outcome({"decision": True}).go("publish")
    """

    def __init__(self, update: Any = None) -> None:
        self.update = update
        self.routes: list[tuple[str, Any]] = []

    def go(self, label: str) -> "Outcome":
        """Go to the node behind this label, one of the decorator's `routes`."""
        self.routes.append(("go", label))
        return self

    def send(self, label: str, arg: Any) -> "Outcome":
        """Start a task of its own behind this label, with an argument, which it finds in `context.arg`.
        Sends never merge: three sends start three tasks."""
        self.routes.append(("send", (label, json_text.to_text(arg, f"the argument sent to `{label}`"))))
        return self

    def end(self) -> "Outcome":
        """Go nowhere from here, whatever edges the graph draws."""
        self.routes.append(("end", None))
        return self


def update_text(update: Any) -> str:
    """The update as JSON; `None` writes nothing."""
    text = "{}" if update is None else json_text.to_text(update, "the update")
    if not text.startswith("{"):
        shown = text if len(text) <= 80 else text[:79] + "…"
        raise ValueError(f"a node returns a dict or dataclass, from the names it writes to values; this is {shown}")
    return text
