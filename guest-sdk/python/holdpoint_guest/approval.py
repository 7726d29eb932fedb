"""The approval that inboxes know how to show: one action, and which of four answers a person may give."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .interrupts import Question, interrupt


@dataclass(frozen=True)
class Action:
    """What would be done."""

    action: str
    args: dict[str, Any]


@dataclass(frozen=True)
class Accept:
    """Do it as it was shown."""

    action: Action


@dataclass(frozen=True)
class Edit:
    """Do this instead."""

    action: Action


@dataclass(frozen=True)
class Response:
    """Don't do it yet; this is what the person says to it."""

    text: str


@dataclass(frozen=True)
class Ignore:
    """Don't do it."""


class Approval:
    """An action for a person to approve. Accepting and ignoring are allowed unless taken away; editing and
    responding if they are given.

        decision = approve(Approval("refund", {"cents": 1200}, description="…", edit=True))
    """

    def __init__(
        self,
        action: str,
        args: Mapping[str, Any],
        *,
        description: str | None = None,
        accept: bool = True,
        edit: bool = False,
        respond: bool = False,
        ignore: bool = True,
    ) -> None:
        self.action = Action(action, dict(args))
        self.description = description
        self.accept, self.edit, self.respond, self.ignore = accept, edit, respond, ignore

    def payload(self) -> Any:
        return [
            {
                "action_request": {"action": self.action.action, "args": self.action.args},
                "config": {
                    "allow_accept": self.accept,
                    "allow_edit": self.edit,
                    "allow_respond": self.respond,
                    "allow_ignore": self.ignore,
                },
                "description": self.description,
            }
        ]

    def schema(self) -> Any:
        """What an answer must be: a list of one, of a type that is allowed."""
        action = {
            "type": "object",
            "required": ["action", "args"],
            "properties": {"action": {"type": "string"}, "args": {"type": "object"}},
        }
        ways = []
        for allowed, kind, args, needed in (
            (self.accept, "accept", {}, False),
            (self.edit, "edit", action, True),
            (self.respond, "response", {"type": "string"}, True),
            (self.ignore, "ignore", {}, False),
        ):
            if allowed:
                required = ["type", "args"] if needed else ["type"]
                ways.append({"properties": {"type": {"const": kind}, "args": args}, "required": required})
        if not ways:
            raise ValueError("an approval allows at least one of accept, edit, respond, ignore")
        return {"type": "array", "minItems": 1, "maxItems": 1, "items": {"type": "object", "oneOf": ways}}

    def question(self, **more: Any) -> Question:
        """The same as a question, to add an expiry or to ask it beside others."""
        return Question(self.payload(), schema=self.schema(), **more)

    def read(self, answers: Any) -> Accept | Edit | Response | Ignore:
        """What an answer to the question means."""
        answer = answers[0]
        kind, args = answer["type"], answer.get("args")
        if kind == "accept":
            # Some inboxes send the action back with every argument turned into a string: what was asked counts.
            return Accept(self.action)
        if kind == "edit":
            return Edit(Action(args["action"], args["args"]))
        if kind == "response":
            return Response(args)
        return Ignore()


def approve(approval: Approval) -> Accept | Edit | Response | Ignore:
    """Ask a person to approve, and stop here until they have said."""
    return approval.read(interrupt(approval.question()))
