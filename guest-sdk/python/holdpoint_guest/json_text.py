"""JSON in and out.

Keys are sorted on the way out, so that a dict gives the same bytes in every attempt, and what two
readers could understand differently is refused here, with the place in the node's own code.
"""

import dataclasses
import json
from typing import Any


def to_text(value: Any, what: str) -> str:
    try:
        return json.dumps(value, default=_plain, sort_keys=True, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as why:
        raise ValueError(f"{what} cannot be written as JSON: {why}") from None


def from_text(text: str) -> Any:
    return json.loads(text)


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, (set, frozenset)):
        raise TypeError("a set has no order; write sorted(...) of it")
    raise TypeError(f"{type(value).__name__} is no JSON type")
