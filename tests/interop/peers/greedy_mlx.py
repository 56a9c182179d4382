"""Greedy tokens and log-probabilities of model directories with MLX on the CPU: a reader that shares no code with torch.

greedy_mlx.py PROMPT COUNT DIR...       arguments and answers as in greedy_vllm.py
"""
import json
import pathlib
import sys

import mlx.core as mx
from mlx_lm.utils import load_model


def generate(directory, prompt, count):
    model = load_model(pathlib.Path(directory))[0]
    model.set_dtype(mx.float32)
    tokens, logprobs = list(prompt), []
    for _ in range(count):
        logits = model(mx.array([tokens]))[0, -1].astype(mx.float32)
        step = logits - mx.logsumexp(logits)
        likely = [int(t) for t in mx.argsort(-step)[:5]]
        logprobs.append({str(t): float(step[t]) for t in likely})
        tokens.append(likely[0])
    return dict(dir=directory, tokens=tokens[len(prompt):], logprobs=logprobs)


if __name__ == "__main__":
    mx.set_default_device(mx.cpu)
    for path in sys.argv[3:]:
        try:
            answer = generate(path, [int(t) for t in sys.argv[1].split(",")], int(sys.argv[2]))
        except Exception as error:
            answer = dict(dir=path, error=f"{type(error).__name__}: {error}")
        print(json.dumps(answer), flush=True)
