"""What megatron-core's router drops: tests/fixtures/router.txt, which tests/unit/kernels/ref/test_router.c compares with the trainer's.

A case is a line of its sizes, one of logits, and one for each token: the probability that each expert has for it, 0 where it has none.
"""
import sys

import torch
from megatron.core.transformer.moe import moe_utils


def cases():
    torch.manual_seed(11)
    for score, top_k, experts, tokens, factor in (("softmax", 2, 6, 16, 0.75), ("sigmoid", 3, 8, 20, 0.5), ("sigmoid", 1, 4, 12, 1.0),
                                                  ("sigmoid", 2, 5, 17, 1.25), ("softmax", 2, 4, 9, 8.0)):
        logits = torch.randn(tokens, experts) + torch.linspace(1, -1, experts)
        probs, chosen = moe_utils.topk_routing_with_score_function(logits, top_k, score_function=score)
        taken, _ = moe_utils.apply_router_token_dropping(probs, chosen, top_k, factor, "probs")
        yield (score, top_k, experts, tokens, factor), logits, taken


def numbers(row):
    return " ".join(f"{float(x):.9g}" for x in row)


def text():
    lines = []
    for sizes, logits, taken in cases():
        lines += [" ".join(map(str, sizes)), numbers(logits.flatten())] + [numbers(row) for row in taken]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    open(sys.argv[1], "w").write(text())
