"""Lines for the operator's log: `log.info(f"{count} labels")`, and so for trace, debug, warn, error.

A line is written once: not again while a resumed node goes over what it did before. Long lines and
talkative nodes are cut off, and the log says so.
"""

from .host import host


def trace(message: object) -> None:
    host().write("trace", str(message))


def debug(message: object) -> None:
    host().write("debug", str(message))


def info(message: object) -> None:
    host().write("info", str(message))


def warn(message: object) -> None:
    host().write("warn", str(message))


def error(message: object) -> None:
    host().write("error", str(message))
