"""The host's functions, wherever the node runs: in a component, or in a test that plays the host."""

from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True)
class Asked:
    """A question as it goes to the host: JSON texts."""

    payload: str
    answer_schema: str | None
    expires_after_ms: int | None
    default_answer: str | None


@dataclass(frozen=True)
class Undone:
    """Why an effect was not done; `known` is JSON text."""

    kind: str
    message: str
    known: str | None = None


class Host(Protocol):
    def interrupt(self, asked: Asked) -> str: ...
    def interrupt_all(self, asked: list[Asked]) -> list[str]: ...
    def perform(self, name: str, key: str, input: str) -> str | Undone: ...
    def instructions(self) -> list[tuple[str, str]]: ...
    def write(self, level: str, message: str) -> None: ...
    def emit(self, event: str) -> None: ...


class _Nobody:
    """Stands where no host is, and says so."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(
            "a host call outside of a component: there is no host here to answer it; "
            "in a test, call the node through holdpoint_guest.testing.Script"
        )


try:
    # These modules are made when the component is built, and are there only then and in it.
    from componentize_py_types import Err
    from wit_world.imports import effects, events, interrupts, log, steering
except ImportError:
    _host: Any = _Nobody()
else:

    class _Component:
        def interrupt(self, asked: Asked) -> str:
            return interrupts.interrupt(_question(asked))

        def interrupt_all(self, asked: list[Asked]) -> list[str]:
            return interrupts.interrupt_all([_question(one) for one in asked])

        def perform(self, name: str, key: str, input: str) -> str | Undone:
            try:
                return effects.perform(name, key, input)
            except Err as error:
                why = error.value
            if isinstance(why, effects.EffectError_Denied):
                return Undone("denied", why.value)
            if isinstance(why, effects.EffectError_Invalid):
                return Undone("invalid", why.value)
            if isinstance(why, effects.EffectError_KeyConflict):
                return Undone("key-conflict", "")
            if isinstance(why, effects.EffectError_Failed):
                return Undone("failed", why.value, why.value)
            return Undone("in-doubt", why.value)

        def instructions(self) -> list[tuple[str, str]]:
            return [(given.actor, given.text) for given in steering.instructions()]

        def write(self, level: str, message: str) -> None:
            log.write(log.Level[level.upper()], message)

        def emit(self, event: str) -> None:
            events.emit(event)

    def _question(asked: Asked) -> Any:
        return interrupts.Question(asked.payload, asked.answer_schema, asked.expires_after_ms, asked.default_answer)

    _host = _Component()


def host() -> Host:
    return _host


def replace(other: Any) -> Any:
    """For tests: `other` is the host from here on; gives back the one before."""
    global _host
    before, _host = _host, other
    return before
