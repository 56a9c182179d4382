"""The part of a list that one run asks for: another one each day, as tests/run.sh's seed says.

MCOREFS_TEST_SEED is the day's number by default, MCOREFS_SWEEP how many of the random sweep's 48 layouts are asked for
(6), and MCOREFS_ALL_LAYOUTS=1 asks for all of todays().
"""
import os
import random
import time

import checkpoints

SEED = os.environ.get("MCOREFS_TEST_SEED") or time.strftime("%Y%m%d", time.gmtime())
COUNT = int(os.environ.get("MCOREFS_SWEEP", "6"))
NOW = sorted(random.Random(SEED).sample(checkpoints.SWEEP, COUNT), key=lambda spec: spec.name)


def todays(items, count):
    """As many of the items, in their order."""
    items = list(items)
    if os.environ.get("MCOREFS_ALL_LAYOUTS"):
        return items
    chosen = set(random.Random(SEED).sample(range(len(items)), min(count, len(items))))
    return [item for i, item in enumerate(items) if i in chosen]


def share(items, parts):
    """One part of so many, another one each day."""
    items = list(items)
    return todays(items, -(-len(items) // parts))


# vLLM's workers, SGLang's, vLLM's text or its rollouts: an import takes 20 s of a processor.
ENGINES = todays(["vllm", "sglang", "text", "rl"], 1)
# What megatron-core writes here takes most of the time of `make interop`: a third of the hand-made layouts a day, and one older release.
LAYOUTS = share(checkpoints.LAYOUTS, 3)
OLDER = todays(dict.fromkeys(spec.core for spec in checkpoints.CORES), 1)
WRITTEN = LAYOUTS + [spec for spec in checkpoints.CORES if spec.core in OLDER] + NOW
