"""From JSON to the type that a node asked for: dataclasses, lists, dicts, unions, literals."""

import dataclasses
import types
import typing
from typing import Any


class Mismatch(ValueError):
    """A value is not of the type that was expected; the message names the field."""


def read(value: Any, kind: Any, at: str = "") -> Any:
    """`value` as `kind`, or `Mismatch`. `Any` takes everything as it is."""
    if kind is Any or kind is typing.cast(Any, None) and value is None:
        return value
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return _first_of(value, args, at)
    if origin is typing.Literal:
        if any(type(value) is type(allowed) and value == allowed for allowed in args):
            return value
        raise _mismatch(at, value, "one of " + ", ".join(repr(allowed) for allowed in args))
    if origin is typing.Annotated:
        return read(value, args[0], at)
    if kind is list or origin is list:
        if not isinstance(value, list):
            raise _mismatch(at, value, "a list")
        return [read(item, args[0] if args else Any, f"{at}[{i}]") for i, item in enumerate(value)]
    if kind is dict or origin is dict:
        if not isinstance(value, dict):
            raise _mismatch(at, value, "an object")
        of = args[1] if args else Any
        return {key: read(item, of, _in(at, key)) for key, item in value.items()}
    if dataclasses.is_dataclass(kind):
        return _dataclass(value, kind, at)
    if typing.is_typeddict(kind):
        return _typed_dict(value, kind, at)
    if kind in (None, type(None)):
        if value is None:
            return None
        raise _mismatch(at, value, "null")
    if kind is float and type(value) in (int, float):
        return value
    if kind in (bool, int, float, str):
        # `True` is an int to Python, and not to whoever wrote the type.
        if type(value) is kind:
            return value
        raise _mismatch(at, value, {bool: "true or false", int: "a whole number", float: "a number", str: "a string"}[kind])
    if kind is object:
        return value
    raise TypeError(f"{kind!r} cannot be read from JSON: take a dataclass, list, dict, str, int, float, bool, or Any")


def _first_of(value: Any, kinds: tuple[Any, ...], at: str) -> Any:
    mismatches = []
    for kind in kinds:
        try:
            return read(value, kind, at)
        except Mismatch as mismatch:
            mismatches.append(mismatch)
    # Of an optional type, what is wrong with the type and not that it is no null.
    is_null = lambda kind: kind in (None, type(None))
    raise next((m for kind, m in zip(kinds, mismatches) if not is_null(kind)), mismatches[-1])


def _dataclass(value: Any, kind: Any, at: str) -> Any:
    if not isinstance(value, dict):
        raise _mismatch(at, value, f"an object ({kind.__name__})")
    hints = typing.get_type_hints(kind)
    members = {}
    for field in dataclasses.fields(kind):
        if not field.init:
            continue
        if field.name in value:
            members[field.name] = read(value[field.name], hints[field.name], _in(at, field.name))
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise Mismatch(f"missing field `{_in(at, field.name)}`")
    return kind(**members)


def _typed_dict(value: Any, kind: Any, at: str) -> Any:
    if not isinstance(value, dict):
        raise _mismatch(at, value, f"an object ({kind.__name__})")
    hints = typing.get_type_hints(kind)
    for name in sorted(kind.__required_keys__):
        if name not in value:
            raise Mismatch(f"missing field `{_in(at, name)}`")
    return {key: read(item, hints.get(key, Any), _in(at, key)) for key, item in value.items()}


def _in(at: str, name: str) -> str:
    return f"{at}.{name}" if at else name


def _mismatch(at: str, value: Any, expected: str) -> Mismatch:
    shown = repr(value)
    shown = shown if len(shown) <= 80 else shown[:79] + "…"
    return Mismatch(f"{f'at `{at}`: ' if at else ''}{shown} is not {expected}")
