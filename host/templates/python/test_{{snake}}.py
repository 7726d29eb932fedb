"""python3 -m unittest"""

import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "vendor"))

from holdpoint_guest.testing import Script  # noqa: E402

from {{snake}} import Input, {{snake}}  # noqa: E402


class Test(unittest.TestCase):
    def test_a_large_refund_asks_first(self):
        ran = Script(answers=["keep"]).run({{snake}}, Input(amount=250))
        self.assertEqual(ran.questions, [{"refund": 250}])
        self.assertEqual(ran.returned, {"decision": "keep"})

    def test_a_small_one_does_not(self):
        ran = Script().run({{snake}}, Input(amount=50))
        self.assertEqual((ran.questions, ran.returned), ([], {"decision": "refund"}))


if __name__ == "__main__":
    unittest.main()
