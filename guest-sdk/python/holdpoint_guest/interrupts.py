"""Asking a person."""

import datetime
from collections.abc import Iterable
from typing import Any, TypeVar, overload

from . import json_text, typed
from .errors import Fail
from .host import Asked, host

T = TypeVar("T")

_NOTHING: Any = object()


class Question:
    """What to ask, and what counts as an answer.

    Whatever can be written as JSON is a question by itself; this adds a schema, an expiry, a default.

    `schema`: the JSON Schema that an answer must meet. The host checks an answer before it writes anything
    down, so a wrong one is refused while the question stands.

    `expires_after`: how long the question stands (a `timedelta`, or seconds). After that `default_answer`
    counts; without one, the task fails as expired.
    """

    def __init__(
        self,
        payload: Any,
        *,
        schema: Any = None,
        expires_after: datetime.timedelta | float | None = None,
        default_answer: Any = _NOTHING,
    ) -> None:
        if isinstance(expires_after, datetime.timedelta):
            expires_after = expires_after.total_seconds()
        self.asked = Asked(
            payload=json_text.to_text(payload, "a question's payload"),
            answer_schema=None if schema is None else json_text.to_text(schema, "an answer schema"),
            expires_after_ms=None if expires_after is None else round(expires_after * 1000),
            default_answer=None if default_answer is _NOTHING else json_text.to_text(default_answer, "a default answer"),
        )


@overload
def interrupt(question: Any) -> Any: ...
@overload
def interrupt(question: Any, answer_type: type[T]) -> T: ...
def interrupt(question: Any, answer_type: Any = Any) -> Any:
    """Ask a person, and stop here until there is an answer.

    On the pass that asks, this does not return: the instance is dropped where it stands. No `except`
    catches it, no `finally` runs. When the answer is there, perhaps months later, the node runs again from
    its beginning, and this call returns the answer. So the way to this call must be the same every time.

    With `answer_type`, an answer that is not of that type fails the node; give the question a schema, and
    such an answer is refused before it gets here.
    """
    return _read(host().interrupt(_asked(question)), answer_type)


def interrupt_all(questions: Iterable[Any], answer_type: Any = Any) -> list[Any]:
    """Ask several questions at once, and stop here until all are answered.

    They may be answered one by one and in any order; the answers come in the order of the questions.
    Otherwise as `interrupt`. No questions: returns at once.
    """
    answers = host().interrupt_all([_asked(question) for question in questions])
    return [_read(answer, answer_type) for answer in answers]


def _asked(question: Any) -> Asked:
    return question.asked if isinstance(question, Question) else Question(question).asked


def _read(answer: str, answer_type: Any) -> Any:
    try:
        return typed.read(json_text.from_text(answer), answer_type)
    except typed.Mismatch as why:
        raise Fail(f"the answer is not what the node expects: {why}") from None
