"""Greedy tokens and log-probabilities of model directories with vLLM on the CPU, in float32.

greedy_vllm.py PROMPT COUNT DIR...      PROMPT: token numbers, comma-separated.  One JSON line for each directory:
A directory vllm/tp1 is read as sharded_state, one that mcorefs stub wrote with the load format mcorefs.
{"dir", "tokens": [...], "logprobs": [{token: logprob of the five most likely}, ...]} or {"dir", "error"}

Importing vLLM takes longer than a tiny model, so it happens once, and every model is a fork.
"""
import gc
import json
import os
import re
import sys
import traceback

os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")  # GiB
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")  # vLLM compiles the gathering of log-probabilities: longer than all the rest

from vllm import LLM, SamplingParams
from vllm.model_executor.models import registry

if hasattr(registry, "_run_in_subprocess"):  # looks at a model class in a process that imports everything anew
    registry._run_in_subprocess = lambda look: look()


def generate(directory, prompt, count):
    how = dict(load_format="sharded_state") if re.search("vllm.tp1$", directory) else {}
    if os.path.exists(os.path.join(directory, "mcorefs.json")):
        how = dict(load_format="mcorefs")
    llm = LLM(model=directory, **how, skip_tokenizer_init=True, enforce_eager=True, dtype="float32", max_model_len=128, disable_log_stats=True)
    sampling = SamplingParams(max_tokens=count, temperature=0, detokenize=False, ignore_eos=True, logprobs=5)
    output = llm.generate([{"prompt_token_ids": prompt}], sampling, use_tqdm=False)[0].outputs[0]
    return dict(dir=directory, tokens=list(output.token_ids),
                logprobs=[{str(t): p.logprob for t, p in step.items()} for step in output.logprobs])


def report(directory, prompt, count, out):
    """In a process of its own: vLLM keeps state that a second model would meet."""
    pid = os.fork()
    if pid:
        os.waitpid(pid, 0)
        return
    try:
        os.dup2(2, 1)  # whatever vLLM prints is not the answer
        answer = generate(directory, prompt, count)
    except BaseException as error:
        traceback.print_exc()
        answer = dict(dir=directory, error=f"{type(error).__name__}: {error}")
    os.write(out, (json.dumps(answer) + "\n").encode())
    os._exit(0)


if __name__ == "__main__":
    answers = os.dup(1)
    gc.freeze()  # vLLM collects several times while it starts, each time over everything imported
    for path in sys.argv[3:]:
        report(path, [int(t) for t in sys.argv[1].split(",")], int(sys.argv[2]), answers)
