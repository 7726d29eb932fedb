"""Plays the host for a node in a test, without a component.

`Script.run` calls the node as the host would: from its beginning, and once more after each answer. What the
node did before the question must happen again in the same way; where it does not, `Diverged` says which call
it was.

An answer is held against its question's schema, and one that it does not take fails the test. Known are `type`, `enum`,
`const`, `properties`, `required`, `additionalProperties`, `items`, `prefixItems`, the bounds of numbers, texts and
lists, `allOf`, `anyOf`, `oneOf`, `not`, and `$ref` into the schema itself. `pattern`, `format`, `if` and the rest are
not checked here, but by the host.

`time.time`, `time.time_ns`, `time.sleep`, `os.urandom` (and so `uuid4`) and the functions of `random` are the script's
while it runs: the clock begins on 1 January 2026 and moves on by an hour with each answer, random numbers are the same
in each pass. So it is in a component, with every clock and every source; here `datetime.now()`, and what was imported
by `from time import time`, are the machine's.
"""

import contextlib
import os
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

from . import answer_schema, json_text
from . import host as _host
from .effects import EffectError
from .host import Asked, Undone


_START_NS = 1_767_225_600_000_000_000
_ANSWER_NS = 3_600_000_000_000
_SEED = 17


class Diverged(AssertionError):
    """The second pass did not do what the first had done."""


class _Stop(BaseException):
    """Ends an attempt, as the host does."""


@dataclass
class Ran:
    """What a node did."""

    #: What the function returned; meaningless while `paused`.
    returned: Any = None
    #: It waits for an answer that the script does not have.
    paused: bool = False
    #: All questions, in the order asked: their payloads.
    questions: list[Any] = field(default_factory=list)
    #: The same, with schema, expiry and default, as the host gets them.
    asked: list[Asked] = field(default_factory=list)
    #: All effects, in order, each once: `(name, key, input)`.
    effects: list[tuple[str, str, Any]] = field(default_factory=list)
    #: What it logged, without what a second pass would repeat: `(level, message)`.
    logs: list[tuple[str, str]] = field(default_factory=list)
    #: What it showed to those who watch.
    events: list[Any] = field(default_factory=list)


class Script:
    """What people answer and what effects come to.

        ran = Script(answers=[True], effects={"refund": {"receipt": 5}}).run(refund, {"cents": 1200})

    An effect's outcome may be an `EffectError`, which is then raised. `steering` is what people add, as
    `(answers before it, actor, text)`.
    """

    def __init__(
        self,
        answers: list[Any] | tuple[Any, ...] = (),
        effects: dict[str, Any] | None = None,
        steering: list[tuple[int, str, str]] | tuple[()] = (),
    ) -> None:
        self._answers, self._effects, self._steering = list(answers), dict(effects or {}), list(steering)

    def run(self, node: Callable[..., Any], *args: Any) -> Ran:
        """Runs the node's function with these arguments: its input, and its context if it takes one."""
        self._ran, self._journal, self._answered = Ran(), [], 0
        while True:
            self._at, self._got, self._ticks = 0, 0, 0
            before = _host.replace(self)
            try:
                with self._world():
                    self._ran.returned = node(*args)
            except _Stop:
                if self._deliver():
                    continue
                self._ran.paused = True
                return self._ran
            finally:
                _host.replace(before)
            if self._at != len(self._journal):
                call = self._journal[self._at][0]
                raise Diverged(f"the node finished after {self._at} host calls, and made {call} next on the first pass")
            left = len(self._answers) - self._answered
            assert left == 0, f"the node finished, and {left} of the script's answers were never asked for"
            return self._ran

    def _recall(self, call: tuple[Any, ...]) -> Any:
        """What is on record of the call, as a list of one; what is new is taken down."""
        index, self._at = self._at, self._at + 1
        if index == len(self._journal):
            self._journal.append([call, None])
            return None
        expected, reply = self._journal[index]
        if expected != call:
            raise Diverged(f"host call {index} was {expected} on the first pass, and is {call} now")
        return reply

    @contextlib.contextmanager
    def _world(self) -> Iterator[None]:
        """The clock and random numbers of one pass."""

        def now_ns() -> int:
            self._ticks += 1
            return _START_NS + self._got * _ANSWER_NS + self._ticks * 1_000

        def sleep(seconds: float) -> None:
            self._ticks += int(seconds * 1_000_000)

        numbers = random.Random(_SEED)
        before = random.getstate()
        random.seed(_SEED)
        try:
            with (
                mock.patch.object(time, "time_ns", now_ns),
                mock.patch.object(time, "time", lambda: now_ns() / 1e9),
                mock.patch.object(time, "sleep", sleep),
                mock.patch.object(os, "urandom", numbers.randbytes),
            ):
                yield
        finally:
            random.setstate(before)

    def _deliver(self) -> bool:
        call = self._journal[-1][0]
        until = self._answered + len(call[1])
        if until > len(self._answers):
            return False
        answers = self._answers[self._answered : until]
        for order, (asked, answer) in enumerate(zip(call[1], answers), self._answered):
            schema = None if asked.answer_schema is None else json_text.from_text(asked.answer_schema)
            if schema is not None and (why := answer_schema.mismatch(schema, answer)):
                what = f"answer {order} of the script is not one that its question takes, {asked.payload}"
                raise AssertionError(f"{what}: {why}")
        self._journal[-1][1] = [answers]
        self._answered = until
        return True

    # What the SDK calls.

    def interrupt(self, asked: Asked) -> str:
        return self.interrupt_all([asked])[0]

    def interrupt_all(self, asked: list[Asked]) -> list[str]:
        if not asked:
            return []
        is_new = self._at == len(self._journal)
        reply = self._recall(("interrupt", tuple(asked)))
        if reply is None:
            if is_new:
                self._ran.asked.extend(asked)
                self._ran.questions.extend(json_text.from_text(one.payload) for one in asked)
            raise _Stop()
        self._got += 1
        return [json_text.to_text(answer, "an answer") for answer in reply[0]]

    def perform(self, name: str, key: str, input: str) -> str | Undone:
        reply = self._recall(("effect", name, key, input))
        if reply is not None:
            return reply[0]
        value = json_text.from_text(input)
        before = [done for done in self._ran.effects if done[:2] == (name, key)]
        done: str | Undone
        if before and before[0][2] != value:
            done = Undone("key-conflict", "")
        else:
            if name not in self._effects:
                raise AssertionError(f"the script has no outcome for the effect {name!r}: add it to effects={{...}}")
            if not before:
                self._ran.effects.append((name, key, value))
            outcome = self._effects[name]
            if isinstance(outcome, EffectError):
                known = json_text.to_text(outcome.outcome, "an outcome")
                done = Undone(outcome.kind, outcome.message, known if outcome.kind == "failed" else None)
            else:
                done = json_text.to_text(outcome, "an outcome")
        self._journal[-1][1] = [done]
        return done

    def instructions(self) -> list[tuple[str, str]]:
        reply = self._recall(("steering",))
        if reply is None:
            given = [(actor, text) for after, actor, text in self._steering if after <= self._answered]
            self._journal[-1][1] = reply = [given]
        return reply[0]

    def write(self, level: str, message: str) -> None:
        if self._at == len(self._journal):
            self._ran.logs.append((level, message))

    def emit(self, event: str) -> None:
        if self._at == len(self._journal):
            self._ran.events.append(json_text.from_text(event))
