"""Doing something outside, through the host."""

from typing import Any

from . import json_text, typed
from .errors import Fail
from .host import Undone, host


class EffectError(Fail):
    """Why an effect was not done, or is not known to be done, or not understood.

    A node that does not catch it **fails for good**: none of the kinds is mended by the same call again,
    because the host remembers the outcome under the key. If another attempt can help, say so yourself:
    `except EffectError as error: raise Retry(error)`.
    """

    def __init__(self, kind: str, message: str, outcome: Any = None) -> None:
        super().__init__(message, {"effect_error": kind, "outcome": outcome})
        #: `denied`, `invalid`, `key-conflict`, `failed`, `in-doubt`, or `unreadable`.
        self.kind = kind
        #: What is known of it: of `failed`, what the service said; of `unreadable`, the outcome as it came.
        self.outcome = outcome


def effect(name: str, idempotency_key: str, input: Any = None, outcome_type: Any = Any) -> Any:
    """Have the host do `name` with `input`, once for each `idempotency_key`.

    The same key with the same input is done once: later calls, in this attempt or another, return the
    first outcome. The same key with another input is a `key-conflict`. Derive the key from what the effect
    is *for*: `issue-17-reply`, not a counter, not a random number. It belongs to this node, this effect and
    this thread, and has 1 to 255 characters.

    `name` must be in the decorator's `effects`, and the graph must map it to something.
    """
    try:
        text = json_text.to_text(input, "the input")
    except ValueError as why:
        raise EffectError("invalid", str(why)) from None
    done = host().perform(name, idempotency_key, text)
    if isinstance(done, Undone):
        known = None if done.known is None else json_text.from_text(done.known)
        raise EffectError(done.kind, _SENTENCES[done.kind].format(done.message, effect=name, key=idempotency_key), known)
    outcome = json_text.from_text(done)
    try:
        return typed.read(outcome, outcome_type)
    except typed.Mismatch as why:
        raise EffectError("unreadable", f"the effect's outcome is not what the node expects: {why}", outcome) from None


_SENTENCES = {
    "denied": "the effect was denied: {}",
    "invalid": "the effect call is invalid: {}",
    "key-conflict": "the idempotency key {key!r} of the effect {effect!r} was used before with another input",
    "failed": "the effect failed: {}",
    "in-doubt": "it is not known whether the effect was done: {}",
}
