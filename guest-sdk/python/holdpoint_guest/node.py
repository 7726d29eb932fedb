"""The glue between the contract's exports and the function under `@node`."""

import functools
import inspect
import random
import re
import sys
import traceback
import typing
from collections.abc import Callable, Sequence
from typing import Any

from . import json_text, typed
from .context import Context
from .errors import NodeError, Retry
from .outcome import Outcome, update_text

#: Of a traceback, what is worth carrying in an error.
_STACK_CHARS_MAX = 8_000


def node(
    *,
    reads: Sequence[str] = (),
    writes: Sequence[str] = (),
    routes: Sequence[str] = (),
    effects: Sequence[str] = (),
    name: str | None = None,
    version: str | None = None,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Makes a function the node of this component.

    It takes `(input)` or `(input, context)`. The input is a dict with the names in `reads`, or whatever
    type the parameter is annotated with. It returns what it writes (a dict or dataclass whose keys are
    names in `writes`), or an `Outcome` if it also chooses where to go.

    `name` and `version` are the project's, if left out.
    """
    declared = {"reads": reads, "writes": writes, "routes": routes, "effects": effects}
    for key, names in declared.items():
        if isinstance(names, str):
            raise TypeError(f'write a list: {key}=["{names}"]')
        if len(set(names)) != len(names):
            raise TypeError(f"`{key}` has a name twice: {list(names)}")

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        if not callable(function):
            raise TypeError("write `@node(...)` above a function")
        if inspect.iscoroutinefunction(function):
            raise TypeError("a node is not async: write `def`; the host's calls wait by themselves")
        parameters = list(inspect.signature(function).parameters.values())
        if not 1 <= len(parameters) <= 2:
            raise TypeError("a node takes (input) or (input, context)")
        project_name, project_version = _project()
        described = {
            "name": name or project_name or function.__name__,
            "version": version or project_version or "0.0.0",
            **{key: list(names) for key, names in declared.items()},
        }
        call = functools.partial(_call, function, parameters[0].name, len(parameters) == 2)
        _export(function, described, call)
        return function

    return decorate


def _project() -> tuple[str | None, str | None]:
    """What the manifest says, which `holdpoint build` hands over as a module."""
    try:
        import holdpoint_project
    except ImportError:
        return None, None
    return holdpoint_project.NAME, holdpoint_project.VERSION


def _call(function: Callable[..., Any], input_name: str, takes_context: bool, state: Any, context: Context) -> Any:
    kind = typing.get_type_hints(function).get(input_name, Any)
    try:
        input = typed.read(state, kind)
    except typed.Mismatch as why:
        raise NodeError(f"the input of node `{context.node}` is not what it expects: {why}") from None
    return function(input, context) if takes_context else function(input)


def _export(function: Callable[..., Any], described: dict[str, Any], call: Callable[..., Any]) -> None:
    """Puts the class that the build looks for into the function's module."""
    try:
        from componentize_py_types import Err
        from wit_world.imports import types as wit
    except ImportError:
        return

    class Handler:
        def describe(self) -> Any:
            return wit.NodeInfo(**described)

        def run(self, context: Any, state: str) -> Any:
            # What the interpreter seeded while it was built would be the same for every task of every run.
            random.seed()
            try:
                told = Context(
                    thread_id=context.thread_id,
                    run_id=context.run_id,
                    task_id=context.task_id,
                    node=context.node,
                    path=list(context.path),
                    step=context.step,
                    arg=None if context.arg is None else json_text.from_text(context.arg),
                )
                return done(call(json_text.from_text(state), told))
            except NodeError as error:
                failure = wit.Failure(error.message, _detail(error.detail))
                case = wit.NodeError_Retry if isinstance(error, Retry) else wit.NodeError_Fail
            except BaseException as error:
                # Whatever it is, it is the node's: the host's stop is no exception, and never comes by here.
                failure = wit.Failure(*unhandled(error))
                case = wit.NodeError_Fail
            raise Err(case(failure))

    def done(returned: Any) -> Any:
        outcome = returned if isinstance(returned, Outcome) else Outcome(returned)
        routes: list[Any] = []
        for kind, what in outcome.routes:
            if kind == "go":
                routes.append(wit.Route_Go(what))
            elif kind == "send":
                routes.append(wit.Route_Send(wit.Send(*what)))
            else:
                routes.append(wit.Route_End())
        return wit.Outcome(update_text(outcome.update), routes)

    module = sys.modules[function.__module__]
    if hasattr(module, "Handler"):
        raise TypeError(f"`{function.__module__}` has a node or a class `Handler` already; a component is one node")
    module.Handler = Handler  # type: ignore[attr-defined]


def unhandled(error: BaseException) -> tuple[str, str]:
    """The message and the detail of an error that nobody caught."""
    message = "".join(traceback.format_exception_only(error)).strip().replace("\n", " ")
    # From the node's own function on; the way there is the SDK's.
    place = error.__traceback__
    while place and place.tb_next and place.tb_frame.f_globals.get("__package__") == __package__:
        place = place.tb_next
    stack = "".join(traceback.format_exception(type(error), error, place))[-_STACK_CHARS_MAX:]
    # The build numbers the folders that it takes modules from; the author knows them without.
    stack = re.sub(r'File "/\d+/', 'File "', stack)
    return message, json_text.to_text({"exception": type(error).__name__, "stack": stack}, "a stack")


def _detail(detail: Any) -> str | None:
    if detail is None:
        return None
    try:
        return json_text.to_text(detail, "a detail")
    except ValueError:
        return None
