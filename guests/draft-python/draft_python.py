"""Drafts a polite reply to a GitHub issue, as `draft` does. A real desk would ask a language model here."""

from dataclasses import dataclass

from holdpoint_guest import node


@dataclass
class User:
    login: str


@dataclass
class Issue:
    title: str
    user: User


@dataclass
class Webhook:
    issue: Issue


@dataclass
class Input:
    issue: Webhook
    labels: list[str]


NEXT = {
    "docs": "That is quickly put right, and a pull request would be welcome.",
    "bug": "Could you tell us which version you use, and the steps that lead there?",
    "feature": "We will talk about it and come back to you here.",
}


@node(reads=["issue", "labels"], writes=["draft"])
def draft(input: Input):
    issue = input.issue.issue
    fitting = [NEXT[label] for label in NEXT if label in input.labels]
    then = fitting[0] if fitting else "Somebody who knows this part will have a look soon."
    return {"draft": f'Hello @{issue.user.login}, thank you for writing about "{issue.title}". {then}'}
