"""python3 -m unittest"""

import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "vendor"))

from holdpoint_guest.testing import Script  # noqa: E402

from {{snake}} import Input, {{snake}}  # noqa: E402


class Test(unittest.TestCase):
    def test_a_large_refund_asks_first_and_is_paid_once(self):
        # What the graph's HTTP effect gives: the status, and what the service said.
        paid = {"status": 200, "body": {"receipt": 5}}
        script = Script(answers=["refund"], effects={"refund": paid})
        ran = script.run({{snake}}, Input(order=17, amount=250))
        self.assertEqual(ran.questions, [{"refund": 250, "order": 17}])
        self.assertEqual(ran.effects, [("refund", "refund-order-17", {"order": 17, "amount": 250})])
        self.assertEqual(ran.returned, {"decision": "refund", "receipt": paid})

    def test_what_is_kept_is_not_paid(self):
        ran = Script(answers=["keep"]).run({{snake}}, Input(order=17, amount=250))
        self.assertEqual((ran.effects, ran.returned), ([], {"decision": "keep"}))


if __name__ == "__main__":
    unittest.main()
