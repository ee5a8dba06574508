"""Arithmetic and parsing of bench_peers.py; runs without either engine (python3 -m pytest or unittest)."""

import json
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import bench_peers  # noqa: E402


class Summary(unittest.TestCase):
    def test_median_of_ratios_not_ratio_of_medians(self):
        result = bench_peers.summarise([(10.0, 5.0), (9.0, 9.0), (8.0, 2.0)])
        self.assertEqual(result["ours"], 9.0)
        self.assertEqual(result["theirs"], 5.0)
        self.assertEqual(result["ratio"], 2.0)
        self.assertEqual(result["spread"], (4.0 - 1.0) / 2.0)

    def test_even_number_of_pairs(self):
        self.assertAlmostEqual(bench_peers.summarise([(1.0, 1.0), (3.0, 1.0)])["ratio"], 2.0)

    def test_refuses_what_is_no_speed(self):
        for pairs in ([], [(1.0, 0.0)], [(-1.0, 2.0)]):
            with self.assertRaises(ValueError):
                bench_peers.summarise(pairs)


class Parsing(unittest.TestCase):
    def test_rows(self):
        rows = [{"name": "pp512", "value": 100.5, "unit": "tok/s"}, {"name": "tg128", "value": 20, "unit": "tok/s"}]
        text = json.dumps({"schema": "pelton.bench.1", "machine": {"isa": "avx2"}, "rows": rows})
        self.assertEqual(bench_peers.parse_pelton(text), ({"pp512": 100.5, "tg128": 20}, {"isa": "avx2"}))

    def test_other_answers_are_refused(self):
        with self.assertRaises(ValueError):
            bench_peers.parse_pelton('{"schema": "pelton.plan.1", "rows": []}')
        with self.assertRaises(ValueError):
            bench_peers.parse_pelton('{"schema": "pelton.bench.1", "rows": [{"name": "x", "value": 1, "unit": "s"}]}')


class Names(unittest.TestCase):
    def test_as_pelton_names_them(self):
        self.assertEqual(bench_peers.decode_name(128, 1, 0), "tg128")
        self.assertEqual(bench_peers.decode_name(128, 4, 4096), "tg128_b4@d4096")
        self.assertEqual(bench_peers.prompt_name(512, 0), "pp512")
        self.assertEqual(bench_peers.prompt_name(512, 64), "pp512@d64")

    def test_pairs_alternate(self):
        self.assertEqual(bench_peers.order_of(0), ("ours", "theirs"))
        self.assertEqual(bench_peers.order_of(1), ("theirs", "ours"))


if __name__ == "__main__":
    unittest.main()
