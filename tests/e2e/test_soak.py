"""The script that soaks a server, for seconds instead of hours, and what it makes of its samples."""

import subprocess
import sys

from conftest import ROOT
from soak import p99, quarters


def test_figures_of_a_soak():
    assert p99([1]) == 1 and p99(list(range(1000))) == 990
    assert quarters([1, 2, 3, 4, 5, 6, 7, 8]) == ([3, 4], [7, 8])
    assert quarters([5]) == ([5], [5])


def test_a_soak_of_seconds_with_options_of_its_own():
    done = subprocess.run([sys.executable, str(ROOT / "tests/e2e/soak.py"), "4", "7", "--max-num-seqs", "3"], capture_output=True,
                          text=True, timeout=120, check=False)
    # So few samples may look as if they grew; that it ends with a verdict is all that is asked here.
    assert done.stdout.splitlines()[-1].startswith("soak: "), done.stdout + done.stderr
