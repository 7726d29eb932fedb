"""One node that does what a test tells it to, written with the SDK for Python.

Its program and its ops are those of `tests/guests/script`, as far as they make sense here.
"""

import os
import random
import sys
import time

from holdpoint_guest import (
    Approval, Context, EffectError, Fail, Outcome, Question, Retry, approve, effect, events, interrupt, interrupt_all,
    log, node, steering,
)

LEVELS = {"trace": log.trace, "debug": log.debug, "info": log.info, "warn": log.warn, "error": log.error}


@node(
    reads=["script", "a", "b", "c", "d"],
    writes=["a", "b", "c", "d"],
    routes=["w", "x", "y", "z"],
    effects=["e", "f"],
)
def script(state: dict, context: Context):
    machine = Machine(state, context)
    machine.run(program(state, context))
    return machine.outcome


def program(state, context):
    if isinstance(context.arg, dict) and isinstance(context.arg.get("script"), list):
        return context.arg["script"]
    ops = state["script"]
    return ops[context.node] if isinstance(ops, dict) else ops


class Machine:
    def __init__(self, state, context):
        self.state, self.context = state, context
        self.results = []
        self.outcome = Outcome({})

    def run(self, ops):
        for op in ops:
            self.step(op)

    def step(self, op):
        verb = next(key for key in op if key not in ("schema", "expires_ms", "default"))
        gives = getattr(self, "do_" + verb)(op[verb], op)
        if gives is not _SILENT:
            self.results.append(gives)

    def do_ask(self, payload, op):
        return interrupt(question(payload, op))

    def do_ask_results(self, _, op):
        return interrupt(question(self.results, op))

    def do_ask_all(self, payloads, op):
        return interrupt_all([question(payload, op) for payload in payloads])

    def do_approve(self, what, _):
        decision = approve(Approval("refund", what, edit=True, respond=True))
        return {"kind": type(decision).__name__.lower(), **vars(decision)}

    def do_effect(self, what, _):
        try:
            return {"ok": effect(what["name"], what["key"], what["input"])}
        except EffectError as error:
            return {"err": {"kind": error.kind, "value": error.outcome}}

    def do_steering(self, *_):
        return steering.instructions()

    def do_log(self, what, _):
        LEVELS[what["level"]](what["message"])
        return _SILENT

    def do_emit(self, event, _):
        events.emit(event)
        return _SILENT

    def do_print(self, text, _):
        print(text)
        return _SILENT

    def do_eprint(self, text, _):
        print(text, file=sys.stderr)
        return _SILENT

    def do_now(self, *_):
        return int(time.time() * 1000)

    def do_sleep_ms(self, ms, _):
        time.sleep(ms / 1000)
        return _SILENT

    def do_random(self, count, _):
        return os.urandom(count).hex() + random.randbytes(count).hex()

    def do_hash_order(self, *_):
        return list({f"key {i}" for i in range(20)})

    def do_read(self, key, _):
        return self.state.get(key)

    def do_context(self, *_):
        return self.context

    def do_value(self, value, _):
        return value

    def do_env(self, *_):
        return dict(os.environ)

    def do_args(self, *_):
        return sys.argv[1:]

    def do_stdin(self, *_):
        return {"ok": sys.stdin.read()}

    def do_open(self, path, _):
        try:
            with open(path) as file:
                return {"ok": file.read()}
        except OSError as error:
            return {"err": str(error)}

    def do_put(self, members, _):
        self.outcome.update.update(members)
        return _SILENT

    def do_put_results(self, key, _):
        self.outcome.update[key] = list(self.results)
        return _SILENT

    def do_go(self, label, _):
        self.outcome.go(label)
        return _SILENT

    def do_send(self, what, _):
        self.outcome.send(what["label"], what["arg"])
        return _SILENT

    def do_end(self, *_):
        self.outcome.end()
        return _SILENT

    def do_fail(self, what, _):
        raise Fail(*failure(what))

    def do_retry(self, what, _):
        raise Retry(*failure(what))

    def do_repeat(self, what, _):
        for _ in range(what["times"]):
            self.run(what["ops"])
        return _SILENT

    def do_catch(self, ops, _):
        try:
            self.run(ops)
            return "finished"
        except BaseException:
            log.error("unwound")
            return "caught"
        finally:
            # On the pass that asks, not even this is run.
            print("left")

    def do_panic(self, message, _):
        raise ValueError(message)

    def do_recurse(self, *_):
        return deeper(0)

    def do_loop(self, *_):
        while True:
            pass


_SILENT = object()


def deeper(depth):
    return deeper(depth + 1) + 1


def question(payload, op):
    more = {"default_answer": op["default"]} if "default" in op else {}
    expires = op.get("expires_ms")
    return Question(payload, schema=op.get("schema"), expires_after=expires and expires / 1000, **more)


def failure(what):
    return (what["message"], what.get("detail")) if isinstance(what, dict) else (what,)
