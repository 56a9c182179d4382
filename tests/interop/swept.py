"""The part of the random sweep that one run asks for: another third each day, as tests/run.sh's seed says.

MCOREFS_TEST_SEED is the day's number by default, and MCOREFS_SWEEP how many of the 48 layouts (16).
"""
import os
import random
import time

import checkpoints

SEED = os.environ.get("MCOREFS_TEST_SEED") or time.strftime("%Y%m%d", time.gmtime())
COUNT = int(os.environ.get("MCOREFS_SWEEP", "16"))
NOW = sorted(random.Random(SEED).sample(checkpoints.SWEEP, COUNT), key=lambda spec: spec.name)
