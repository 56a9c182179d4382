"""What each of vLLM's workers holds after its own classes have loaded a whole HF directory, against the files of a view.

vllm_workers.py HF,SHARDS...        SHARDS: a directory vllm/tpN or vllm/tpN-epN.  One JSON line for each:
{"dir": SHARDS, "compared": number of parameters, "differ": [worker and name, ...]} or {"dir", "error"}

Workers are not started: the one process is told that it is worker R of N when a model is built and loaded, which says how it is cut.
"""
import glob
import json
import os
import re
import sys
import traceback

os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import safetensors.torch
import torch
from vllm.config import set_current_vllm_config
from vllm.distributed import parallel_state
from vllm.engine.arg_utils import EngineArgs
from vllm.model_executor.model_loader import get_model_loader
from vllm.model_executor.model_loader.sharded_state_loader import ShardedStateLoader
from vllm.model_executor.model_loader.utils import initialize_model
from vllm.model_executor.models import registry
from vllm.utils.torch_utils import set_default_torch_dtype

if hasattr(registry, "_run_in_subprocess"):  # looks at a model class in a process that imports everything anew
    registry._run_in_subprocess = lambda look: look()


def start(config):
    if parallel_state._TP is None:
        with set_current_vllm_config(config):
            parallel_state.init_distributed_environment(1, 0, "tcp://127.0.0.1:0", 0, "gloo")
            parallel_state.initialize_model_parallel(1, 1)
        parallel_state._EP = parallel_state._EP or parallel_state._TP  # a model without experts may be the first


def held(config, tp, rank):
    """What ShardedStateLoader.save_model() would save at worker `rank`."""
    for group in (parallel_state._TP, parallel_state._EP):
        group.world_size, group.rank_in_group = tp, rank
    config.compilation_config.static_forward_context.clear()
    with set_current_vllm_config(config), set_default_torch_dtype(config.model_config.dtype):
        model = initialize_model(config)
        get_model_loader(config.load_config).load_weights(model, config.model_config)
    return ShardedStateLoader._filter_subtensors(model.state_dict())


def same(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and torch.equal(a.contiguous().view(-1).view(torch.uint8), b.contiguous().view(-1).view(torch.uint8))


def compare(hf, shards):
    tp, ep = re.search(r"tp(\d+)(-ep\d+)?$", shards).groups()
    config = EngineArgs(model=hf, skip_tokenizer_init=True, enforce_eager=True, max_model_len=64, enable_expert_parallel=bool(ep)).create_engine_config()
    start(config)
    compared, differ = 0, []
    assert len(glob.glob(shards + "/*.safetensors")) == int(tp)
    for rank in range(int(tp)):
        shown, expected = safetensors.torch.load_file(f"{shards}/model-rank-{rank}-part-0.safetensors"), held(config, int(tp), rank)
        names = sorted(shown.keys() | expected.keys())
        compared += len(names)
        differ += [f"{rank}: {name}" for name in names if not (name in shown and name in expected and same(shown[name], expected[name]))]
    return dict(dir=shards, compared=compared, differ=differ)


if __name__ == "__main__":
    out = os.dup(1)
    os.dup2(2, 1)  # whatever vLLM prints is not the answer
    for pair in sys.argv[1:]:
        hf, shards = pair.split(",")
        try:
            answer = compare(hf, shards)
        except BaseException as error:
            traceback.print_exc()
            answer = dict(dir=shards, error=f"{type(error).__name__}: {error}")
        os.write(out, (json.dumps(answer) + "\n").encode())
