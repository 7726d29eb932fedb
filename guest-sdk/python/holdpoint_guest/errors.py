"""Why a node could not do its work. Two words to know: *retry* and *fail*."""

from typing import Any


class NodeError(Exception):
    """What ends a node short of an outcome. Raise `Retry` or `Fail`, not this."""

    def __init__(self, message: object, detail: Any = None) -> None:
        super().__init__(str(message))
        self.message = str(message)
        #: Anything more, for a program; what cannot be written as JSON is left out.
        self.detail = detail


class Retry(NodeError):
    """Worth another attempt. Answers and effects that succeeded stay; the node runs from its beginning."""


class Fail(NodeError):
    """Another attempt would fail in the same way."""
