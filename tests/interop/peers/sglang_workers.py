"""What each of SGLang's workers holds after its own loader and classes have loaded a whole HF directory, against another directory.

sglang_workers.py HF,SHARDS...        SHARDS: a directory sglang/tpN or sglang/tpN-epN, whose files are compared
sglang_workers.py HF,STUB@tpN[-epN]   STUB: what --load-format mcorefs loads, at each of so many workers.  One JSON line for each:
{"dir", "compared": number of parameters, "differ": [worker and name, ...], "own": workers that read their own part} or {"dir", "error"}

Workers are not started: the one process is told that it is worker R of N when a model is built and loaded, which says how it is cut.
"""
import json
import logging
import os
import re
import sys
import traceback

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import safetensors.torch
import torch
from sglang.srt import runtime_context
from sglang.srt.configs.device_config import DeviceConfig
from sglang.srt.configs.load_config import LoadConfig
from sglang.srt.configs.model_config import ModelConfig
from sglang.srt.layers.rotary_embedding import factory
from sglang.srt.model_loader.loader import ShardedStateLoader, get_model_loader
from sglang.srt.plugins import load_plugins
from sglang.srt.server_args import ServerArgs

factory.get_rope_cpu = lambda *of, **more: torch.nn.Identity()  # which knows yarn alone on a CPU, and is not asked here
OWN = []


class Noted(logging.Handler):
    def emit(self, record):
        if "own part" in record.getMessage():
            OWN.append(record)


class Group:
    """A worker's place among others, which it never calls."""
    cpu_group = device_group = None

    def __init__(self, size, rank):
        self.world_size, self.rank, self.rank_in_group, self.ranks = size, rank, rank, list(range(size))
        self.is_first_rank, self.is_last_rank = rank == 0, rank == size - 1


def loaded(path, tp, ep, rank, load_format="auto"):
    """What ShardedStateLoader.save_model() would save at worker `rank`."""
    runtime_context.reset_context()
    args = ServerArgs(model_path=path, tp_size=tp, ep_size=ep, device="cpu", skip_tokenizer_init=True, load_format=load_format)
    args.resolve_once()
    runtime_context.publish(args, role="scheduler", ranks=runtime_context.SpawnRanks(world_rank=rank))
    at = runtime_context.get_parallel()
    at.override_permanently(
        tp_group=Group(at.tp_size, at.tp_rank), attn_tp_group=Group(at.attn_tp_size, at.attn_tp_rank), pp_group=Group(1, 0), attn_cp_group=Group(1, 0),
        moe_ep_group=Group(at.moe_ep_size, at.moe_ep_rank), moe_tp_group=Group(at.moe_tp_size, at.moe_tp_rank), world_group=Group(tp, rank))
    config = ModelConfig.from_server_args(args)
    model = get_model_loader(LoadConfig(load_format=load_format, tp_rank=rank), config).load_model(model_config=config, device_config=DeviceConfig("cpu"))
    return ShardedStateLoader._filter_subtensors(model.state_dict()) | derived(model)


def derived(model):
    """What a class computes of its weights after they are loaded: of latent attention."""
    return {f"{name} {what}": getattr(module, what) for name, module in model.named_modules() for what in ("w_kc", "w_vc")
            if isinstance(getattr(module, what, None), torch.Tensor)}


def same(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and torch.equal(a.contiguous().view(-1).view(torch.uint8), b.contiguous().view(-1).view(torch.uint8))


def compare(hf, other):
    stub, at, layout = other.partition("@")
    tp, ep = (int(n or 1) for n in re.search(r"tp(\d+)(?:-ep(\d+))?$", other).groups())
    compared, differ = 0, []
    OWN.clear()
    for rank in range(tp):
        expected = loaded(hf, tp, ep, rank)
        if at:
            shown = loaded(stub, tp, ep, rank, "mcorefs")
        else:
            shown = safetensors.torch.load_file(f"{other}/model-rank-{rank}-part-0.safetensors")
            expected = {name: tensor for name, tensor in expected.items() if " " not in name}
        names = sorted(shown.keys() | expected.keys())
        compared += len(names)
        differ += [f"{rank}: {name}" for name in names if not (name in shown and name in expected and same(shown[name], expected[name]))]
    return dict(dir=other, compared=compared, differ=differ, own=len(OWN))


if __name__ == "__main__":
    out = os.dup(1)
    os.dup2(2, 1)  # whatever SGLang prints is not the answer
    logging.getLogger("sglang.mcorefs").addHandler(Noted())
    logging.getLogger("sglang.mcorefs").setLevel(logging.INFO)
    load_plugins()
    for pair in sys.argv[1:]:
        hf, other = pair.split(",")
        try:
            answer = compare(hf, other)
        except BaseException as error:
            traceback.print_exc()
            answer = dict(dir=other, error=f"{type(error).__name__}: {error}")
        os.write(out, (json.dumps(answer) + "\n").encode())
