"""Tests of the SDK itself: `python3 -m unittest discover -s tests` in this folder."""

import datetime
import random
import sys
import time
import unittest
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Optional

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from holdpoint_guest import (  # noqa: E402
    Accept, Action, Approval, Edit, EffectError, Fail, Ignore, Mismatch, Outcome, Question, Response, Retry,
    approve, effect, events, interrupt, interrupt_all, log, node, steering,
)
from holdpoint_guest import json_text, typed  # noqa: E402
from holdpoint_guest.node import unhandled  # noqa: E402
from holdpoint_guest.outcome import update_text  # noqa: E402
from holdpoint_guest.testing import Diverged, Script  # noqa: E402


@dataclass
class Line:
    cents: int
    note: Optional[str] = None


@dataclass
class Order:
    lines: list[Line]
    kind: Literal["new", "old"] = "new"


class Typed(unittest.TestCase):
    def test_a_mismatch_names_the_field(self):
        self.assertEqual(typed.read({"lines": [{"cents": 1}]}, Order), Order([Line(1)]))
        for value, said in [
            ({"lines": [{"cents": 1}, {"cents": "2"}]}, "at `lines[1].cents`: '2' is not a whole number"),
            ({"lines": [{"cents": True}]}, "at `lines[0].cents`: True is not a whole number"),
            ({"lines": [{"cents": 1, "note": 5}]}, "at `lines[0].note`: 5 is not a string"),
            ({"lines": [], "kind": "odd"}, "at `kind`: 'odd' is not one of 'new', 'old'"),
            ({}, "missing field `lines`"),
            ([], "[] is not an object (Order)"),
        ]:
            with self.assertRaises(Mismatch) as caught:
                typed.read(value, Order)
            self.assertEqual(str(caught.exception), said)

    def test_what_is_no_json_type_is_the_authors_mistake(self):
        with self.assertRaises(TypeError):
            typed.read(1, datetime.date)


class Text(unittest.TestCase):
    def test_keys_are_sorted_and_numbers_whole(self):
        self.assertEqual(json_text.to_text({"b": 2**70, "a": "ä\u2028"}, "it"), '{"a":"ä\u2028","b":1180591620717411303424}')
        self.assertEqual(json_text.to_text(Order([Line(1)]), "it"), '{"kind":"new","lines":[{"cents":1,"note":null}]}')
        self.assertEqual(json_text.from_text("1180591620717411303424"), 2**70)

    def test_what_json_cannot_say_is_refused(self):
        for value in [float("nan"), {1, 2}, object(), {"a": datetime.date(2026, 1, 1)}]:
            with self.assertRaises(ValueError) as caught:
                json_text.to_text(value, "the update")
            self.assertIn("the update cannot be written as JSON", str(caught.exception))


def whole(amount: int) -> Any:
    log.info("begins")
    approved = interrupt(Question({"refund": amount}, schema={"type": "boolean"}, expires_after=2, default_answer=None), bool)
    receipt = effect("refund", "order-17", {"cents": amount})
    events.emit(receipt)
    marks = interrupt_all(["speed", "taste"], int)
    log.info("ends")
    return [approved, receipt, marks, [one.text for one in steering.instructions()]]


class Playing(unittest.TestCase):
    def test_a_node_is_run_again_after_each_answer_and_does_everything_once(self):
        script = Script(answers=[True, 1, 2], effects={"refund": {"no": 5}}, steering=[(1, "ada", "be quick")])
        ran = script.run(whole, 12)
        self.assertEqual(ran.returned, [True, {"no": 5}, [1, 2], ["be quick"]])
        self.assertEqual(ran.questions, [{"refund": 12}, "speed", "taste"])
        self.assertEqual((ran.asked[0].expires_after_ms, ran.asked[0].default_answer), (2000, "null"))
        self.assertEqual(ran.effects, [("refund", "order-17", {"cents": 12})])
        self.assertEqual((ran.logs, ran.events), ([("info", "begins"), ("info", "ends")], [{"no": 5}]))

    def test_without_an_answer_it_waits(self):
        ran = Script().run(whole, 12)
        self.assertTrue(ran.paused)
        self.assertEqual(len(ran.questions), 1)

    def test_what_differs_on_the_second_pass_is_told(self):
        passes = []

        def careless(_: Any) -> Any:
            passes.append(1)
            return interrupt(len(passes))

        with self.assertRaisesRegex(Diverged, "host call 0 was"):
            Script(answers=[1]).run(careless, None)

    def test_an_effect_that_fails_is_raised_with_what_is_known(self):
        for error, kind in [
            (EffectError("failed", "no", {"status": 500}), "failed"),
            (EffectError("denied", "no"), "denied"),
            (EffectError("in-doubt", "no"), "in-doubt"),
        ]:
            with self.assertRaises(EffectError) as caught:
                Script(effects={"e": error}).run(lambda _: effect("e", "k", 1), None)
            self.assertEqual((caught.exception.kind, caught.exception.outcome), (kind, error.outcome))
            self.assertIsInstance(caught.exception, Fail)

        def twice(_: Any) -> Any:
            return effect("e", "k", 1), effect("e", "k", 2)

        with self.assertRaises(EffectError) as caught:
            Script(effects={"e": 1}).run(twice, None)
        self.assertEqual(caught.exception.kind, "key-conflict")
        self.assertRegex(str(caught.exception), "^the idempotency key '.+' of the effect '.+' was used before")

    def test_an_answer_of_another_type_fails_the_node(self):
        with self.assertRaisesRegex(Fail, "the answer is not what the node expects: 'yes' is not true or false"):
            Script(answers=["yes"]).run(lambda _: interrupt("?", bool), None)

    def test_outside_of_a_component_a_question_says_so(self):
        with self.assertRaisesRegex(RuntimeError, "a host call outside of a component"):
            interrupt("?")


class Approving(unittest.TestCase):
    def test_each_answer_means_what_the_inbox_meant(self):
        request = Approval("refund", {"cents": 1200}, edit=True, respond=True)
        for answer, decision in [
            ({"type": "accept", "args": {"action": "refund", "args": {"cents": "1200"}}}, Accept(Action("refund", {"cents": 1200}))),
            ({"type": "accept"}, Accept(Action("refund", {"cents": 1200}))),
            ({"type": "edit", "args": {"action": "refund", "args": {"cents": 5}}}, Edit(Action("refund", {"cents": 5}))),
            ({"type": "response", "args": "why?"}, Response("why?")),
            ({"type": "ignore", "args": None}, Ignore()),
        ]:
            ran = Script(answers=[[answer]]).run(lambda _: approve(request), None)
            self.assertEqual(ran.returned, decision)
        self.assertEqual(
            ran.questions[0],
            [{"action_request": {"action": "refund", "args": {"cents": 1200}}, "description": None,
              "config": {"allow_accept": True, "allow_edit": True, "allow_respond": True, "allow_ignore": True}}],
        )


class World(unittest.TestCase):
    def test_an_answer_that_the_schema_does_not_take_fails_the_test(self):
        for schema, answer, said in [
            ({"type": "boolean"}, "yes", "at /: expected boolean, and it is 'yes'"),
            ({"required": ["a"]}, {}, "at /: expected an object with `a`, and it is {}"),
            ({"properties": {"a": {"items": {"maximum": 5}}}}, {"a": [6]}, "at /a/0: expected at most 5, and it is 6"),
            ({"additionalProperties": False}, {"a": 1}, "at /a: expected nothing, and it is 1"),
            ({"enum": ["a", 1]}, True, "at /: expected one of 'a', 1, and it is True"),
            ({"oneOf": [{"const": 1}, {"minLength": 2}]}, "a", "at least 2 characters"),
            ({"$defs": {"n": {"type": "null"}}, "$ref": "#/$defs/n"}, 1, "expected null"),
            ({"$ref": "#", "pattern": "^a$"}, "b", None),
            ({"type": "integer", "multipleOf": 5}, 10.0, None),
        ]:
            ask = lambda _, schema=schema: interrupt(Question("ok?", schema=schema))
            script = Script(answers=[answer])
            if said is None:
                self.assertEqual(script.run(ask, None).returned, answer)
                continue
            with self.assertRaises(AssertionError) as caught:
                script.run(ask, None)
            self.assertTrue(str(caught.exception).startswith('answer 0 of the script is not one that its question takes, "ok?": at'))
            self.assertIn(said, str(caught.exception))

    def test_clock_and_random_numbers_are_the_same_in_each_pass(self):
        def asks(_):
            began, code = time.time(), (random.random(), str(uuid.uuid4()))
            time.sleep(2)
            interrupt({"at": began, "code": code})
            return began, time.time() - began, code

        began, took, code = Script(answers=[True]).run(asks, None).returned
        self.assertAlmostEqual(began, 1_767_225_600, places=3)
        self.assertAlmostEqual(took, 3602, places=3)
        self.assertEqual(Script(answers=[True]).run(asks, None).returned[2], code)
        self.assertGreater(time.time(), began + 3602)


class Declaring(unittest.TestCase):
    def test_a_mistake_says_what_to_write_instead(self):
        async def later(input): ...

        for declared, function, said in [
            ({"reads": "amount"}, lambda input: None, 'write a list: reads=\\["amount"\\]'),
            ({"writes": ["a", "a"]}, lambda input: None, "a name twice"),
            ({}, later, "a node is not async"),
            ({}, lambda: None, "takes \\(input\\) or \\(input, context\\)"),
        ]:
            with self.assertRaisesRegex(TypeError, said):
                node(**declared)(function)

    def test_an_update_is_an_object(self):
        self.assertEqual(update_text(None), "{}")
        with self.assertRaisesRegex(ValueError, "this is \\[1\\]"):
            update_text([1])
        self.assertEqual(Outcome().go("a").send("b", {"n": 1}).end().routes, [("go", "a"), ("send", ("b", '{"n":1}')), ("end", None)])

    def test_an_error_that_nobody_caught_has_its_words_and_its_stack(self):
        try:
            raise ValueError("first\nsecond")
        except ValueError as error:
            message, detail = unhandled(error)
        self.assertEqual(message, "ValueError: first second")
        self.assertIn("test_sdk.py", json_text.from_text(detail)["stack"])
        self.assertEqual(str(Retry(ValueError("x"))), "x")


if __name__ == "__main__":
    unittest.main()
