"""For those who watch a run live."""

from typing import Any

from . import json_text
from .host import host


def emit(event: Any) -> None:
    """Show a value to whoever watches: progress, a token of a reply, a half-made draft.

    It is not state. It reaches watchers at once, before anything is durable, and a run that is resumed
    does not repeat it.
    """
    host().emit(json_text.to_text(event, "an event"))
