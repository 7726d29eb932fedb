"""The mistakes in the author's manual, each as a node that makes it. `mistake` says which."""

import random
import socket
import subprocess
import threading
import time
from uuid import uuid4

from holdpoint_guest import Question, effect, interrupt, log, node

passes = 0


@node(reads=["mistake", "size"], writes=["result"], effects=["pay"])
def mistakes(input: dict):
    return {"result": MISTAKES[input["mistake"]](input.get("size", 0))}


def key(of):
    def mistake(size):
        made = str(of())
        effect("pay", made, {"amount": size})
        interrupt("go on?")
        return made

    return mistake


def a_global(_size):
    global passes
    passes += 1
    interrupt("go on?")
    return {"pass": passes}


def a_file(_size):
    with open("/tmp/seen", "w") as file:
        file.write("1")
    interrupt("go on?")


def cleans_up(_size):
    try:
        interrupt("go on?")
        return "done"
    finally:
        log.info("released")
        print("released")


def imports_late(_size):
    import colorsys

    return colorsys.rgb_to_hls(0, 0, 0)


def slow(size):
    total = sum(range(size))
    interrupt("go on?")
    return total > 0


def a_float(_size):
    return interrupt(Question("how much?", schema={"type": "number"}), float)


def no_schema(_size):
    return interrupt("your name?", str)


def a_schema(_size):
    return interrupt(Question("your name?", schema={"type": "string"}), str)


MISTAKES = {
    "key-from-uuid": key(uuid4),
    "key-from-time": key(time.time),
    "key-from-random": key(random.random),
    "global": a_global,
    "file": a_file,
    "finally": cleans_up,
    "late-import": imports_late,
    "socket": lambda _: socket.create_connection(("127.0.0.1", 80)),
    "subprocess": lambda _: subprocess.run(["true"]),
    "thread": lambda _: threading.Thread(target=print).start(),
    "slow": slow,
    "float": a_float,
    "no-schema": no_schema,
    "schema": a_schema,
}
