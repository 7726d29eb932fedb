"""Whether a scripted answer is one that its question takes.

A node is tested with few packages, so this knows the common words of JSON Schema and no more; the host checks all of
them, when the node runs for real.
"""

from typing import Any

# References lead into the schema, and may lead back.
_DEPTH_MAX = 64


def mismatch(schema: Any, answer: Any) -> str | None:
    """Where the answer is another than the schema says, and what is expected there."""
    return _check(schema, schema, answer, "", 0)


def _check(root: Any, schema: Any, value: Any, place: str, depth: int) -> str | None:
    def wrong(expected: str) -> str:
        return f"at {place or '/'}: expected {expected}, and it is {value!r}"

    def below(schema: Any, value: Any, place: str = place) -> str | None:
        return _check(root, schema, value, place, depth + 1)

    if schema is False:
        return wrong("nothing")
    if not isinstance(schema, dict) or depth == _DEPTH_MAX:
        return None
    if "$ref" in schema and (why := below(_referred(root, schema["$ref"]), value)):
        return why
    if "const" in schema and not _same(schema["const"], value):
        return wrong(repr(schema["const"]))
    if "enum" in schema and not any(_same(one, value) for one in schema["enum"]):
        return wrong(f"one of {', '.join(map(repr, schema['enum']))}")
    kinds = schema.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if kinds and not any(_is_of(kind, value) for kind in kinds):
        return wrong(" or ".join(kinds))
    for part in schema.get("allOf", []):
        if why := below(part, value):
            return why
    for key in ("anyOf", "oneOf"):
        if key in schema:
            reasons = [below(part, value) for part in schema[key]]
            fits = reasons.count(None)
            if fits == 0 or (key == "oneOf" and fits > 1):
                said = "; ".join(why or "fits" for why in reasons)
                return wrong(f"one of the {len(reasons)} in {key} ({said})")
    if "not" in schema and below(schema["not"], value) is None:
        return wrong(f"anything but {schema['not']}")
    if _is_of("number", value):
        for key, fits, words in (
            ("minimum", lambda bound: value >= bound, "at least"),
            ("exclusiveMinimum", lambda bound: value > bound, "more than"),
            ("maximum", lambda bound: value <= bound, "at most"),
            ("exclusiveMaximum", lambda bound: value < bound, "less than"),
            ("multipleOf", lambda bound: (value / bound) % 1 == 0, "a multiple of"),
        ):
            if key in schema and not fits(schema[key]):
                return wrong(f"{words} {schema[key]}")
    for kind, least, most, what in (
        (str, "minLength", "maxLength", "characters"),
        (list, "minItems", "maxItems", "items"),
    ):
        if isinstance(value, kind):
            if len(value) < schema.get(least, 0):
                return wrong(f"at least {schema[least]} {what}")
            if most in schema and len(value) > schema[most]:
                return wrong(f"at most {schema[most]} {what}")
    if isinstance(value, list):
        first = schema.get("prefixItems", [])
        for i, item in enumerate(value):
            part = first[i] if i < len(first) else schema.get("items")
            if why := below(part, item, f"{place}/{i}"):
                return why
    if isinstance(value, dict):
        missing = next((name for name in schema.get("required", []) if name not in value), None)
        if missing is not None:
            return wrong(f"an object with `{missing}`")
        # Which names a pattern takes is not known here.
        others = None if "patternProperties" in schema else schema.get("additionalProperties")
        for name, member in value.items():
            if why := below(schema.get("properties", {}).get(name, others), member, f"{place}/{name}"):
                return why
    return None


def _referred(root: Any, to: str) -> Any:
    if not to.startswith("#"):
        return None
    at = root
    for name in to[1:].split("/")[1:]:
        name = name.replace("~1", "/").replace("~0", "~")
        at = at.get(name) if isinstance(at, dict) else None
    return at


def _is_of(kind: str, value: Any) -> bool:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return {
        "null": value is None,
        "boolean": isinstance(value, bool),
        "object": isinstance(value, dict),
        "array": isinstance(value, list),
        "string": isinstance(value, str),
        "number": is_number,
        "integer": is_number and value == value // 1,
    }.get(kind, True)


def _same(one: Any, other: Any) -> bool:
    # True is no 1 in JSON.
    return one == other and isinstance(one, bool) == isinstance(other, bool)
