"""The package `storm` beside this file, and the seed in the report's head."""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

SEED = int(os.environ.get("CHAOS_SEED", "7"))  # another one tries another order of faults


def pytest_report_header():
    return f"chaos seed: {SEED} (CHAOS_SEED)"
