"""Makes a checkpoint of real format and given size: make.py KIND DIR [options]

  deepseek-671b   torch_dist in 1024 files, layer and expert keys as core 0.20 writes them (sparse)
  llama-405b      legacy torch, TP8 PP16, ZIP64 archives of more than 4 GiB (sparse)
  llama           small enough to be filled: --gib N --tp N --format torch|torch_dist [--hidden N]
Prints one line: files, HF tensors, parameters, bytes of the HF tensors.
"""

import argparse
import os
import random
import sys

sys.path.insert(0, os.path.dirname(__file__))
import torch_files as tf  # noqa: E402
from models import LLAMA_405B, DeepseekV3, Llama, numel  # noqa: E402


def tracker(root, iteration):
    path = f"{root}/iter_{iteration:07d}"
    os.makedirs(path)
    with open(f"{root}/latest_checkpointed_iteration.txt", "w") as f:
        f.write(str(iteration))
    return path


def common_state(args):
    return {"args": args, "checkpoint_version": 3.0, "iteration": 1000, "num_floating_point_operations_so_far": 1e24,
            "content_metadata": {"singleton_local_shards": False, "chained_optim_avoid_prefix": True}}


class Noise:
    """Bytes that are neither zero nor alike: slices of one random block, which no two tensors share."""

    def __init__(self, fill):
        self.block = random.Random(1).randbytes((64 << 20) + (1 << 16)) if fill else None
        self.turn = 0

    def take(self, size):
        if not self.block:
            return None
        out, self.turn = bytearray(), self.turn + 4099
        while len(out) < size:
            at = (self.turn + len(out)) % (1 << 16)
            out += self.block[at:at + min(size - len(out), 64 << 20)]
        return bytes(out)


# -- legacy torch ---------------------------------------------------------------------------------


def legacy_state(model, tp, pp, noise):
    def tensor(shape):
        return tf.Tensor("bfloat16", shape, noise.take(2 * numel(shape)), f"cuda:{tp}")

    state = tf.collections.OrderedDict()
    if pp == 0:
        state["embedding.word_embeddings.weight"] = tensor((model.padded // model.tp, model.hidden))
    for layer in range(model.stage_layers()[pp]):
        for name, shape, axis, _ in model.layer():
            state[f"decoder.layers.{layer}.{name}"] = tensor(model.split(shape, axis))
            if axis is not None:
                state[f"decoder.layers.{layer}.{name[:-6]}_extra_state"] = None
    if pp == model.pp - 1:
        state["decoder.final_layernorm.weight"] = tensor((model.hidden,))
        state["output_layer.weight"] = tensor((model.padded // model.tp, model.hidden))
        state["output_layer._extra_state"] = None
    return state


def make_legacy(model, root, noise, crcs=False):
    path, args = tracker(root, 1000), model.args()
    for tp in range(model.tp):
        for pp in range(model.pp):
            rank = f"{path}/mp_rank_{tp:02d}" + (f"_{pp:03d}" if model.pp > 1 else "")
            os.mkdir(rank)
            out = tf.SparseFile(f"{rank}/model_optim_rng.pt")
            state = {"args": args, "checkpoint_version": 3.0, "iteration": 1000,
                     "model": legacy_state(model, tp, pp, noise)}
            tf.torch_save(out, "model_optim_rng", state, crcs)
            out.close()
    return model.tp * model.pp


# -- torch_dist -----------------------------------------------------------------------------------


def make_dist_llama(model, root, noise):
    """Layer-stacked keys, chunks of one layer and one rank, gate and up as two chunks."""
    dcp = tf.Dcp(tracker(root, 1000))

    def chunk(rank, key, shape, lo, size):
        dcp.tensor(rank, key, "bfloat16", shape, lo, size, noise.take(2 * numel(size)))

    for rank in range(model.tp):
        rows = model.padded // model.tp
        for key in ("embedding.word_embeddings.weight", "output_layer.weight"):
            chunk(rank, key, (model.padded, model.hidden), (rank * rows, 0), (rows, model.hidden))
        for layer in range(model.layers):
            for name, shape, axis, gated in model.layer():
                if axis is None and rank:
                    continue
                size = (1,) + model.split(shape, axis)
                halves = 2 if gated else 1
                size = (1, size[1] // halves) + size[2:]
                for half in range(halves):
                    lo = [layer] + [0] * len(shape)
                    if axis is not None:
                        lo[1 + axis] = (rank + half * model.tp) * size[1 + axis]
                    chunk(rank, f"decoder.layers.{name}", (model.layers,) + shape, tuple(lo), size)
    chunk(0, "decoder.final_layernorm.weight", (model.hidden,), (0,), (model.hidden,))
    dcp.object(0, "common_state/shard_0_1", common_state(model.args()))
    dcp.close()
    return model.tp


def deepseek_layer(model, dcp, layer, rank):
    """One layer's tensors: dense ones spread over the stage's ranks, each rank its experts."""
    prefix, key = f"decoder.layers.{layer}", 0
    dense = [(n, "bfloat16", s) for n, s in model.attention()] + model.mlp(layer)
    for i, (name, dtype, shape) in enumerate(dense):
        if i % model.ep == rank % model.ep:
            dcp.tensor(rank, f"{prefix}.{name}", dtype, shape, (0,) * len(shape), shape)
        if len(shape) > 1 and i % model.ep == rank % model.ep and "router" not in name:
            dcp.object(rank, f"{prefix}.{name[:-6]}_extra_state/shard_0_1", None)
    if layer < model.dense:
        return
    count, h, f = model.experts // model.ep, model.hidden, model.moe_ffn
    for e in range(rank % model.ep * count, (rank % model.ep + 1) * count):
        key = f"{prefix}.mlp.experts.experts"
        for half in range(2):
            dcp.tensor(rank, f"{key}.linear_fc1.weight", "bfloat16", (model.experts, 2 * f, h), (e, half * f, 0), (1, f, h))
        dcp.tensor(rank, f"{key}.linear_fc2.weight", "bfloat16", (model.experts, h, f), (e, 0, 0), (1, h, f))
        for name in ("linear_fc1", "linear_fc2"):
            dcp.object(rank, f"{key}.{name}._extra_state/shard_{e}_{model.experts}", None)


def make_deepseek(model, root):
    dcp = tf.Dcp(tracker(root, 1000))
    table = (model.vocab, model.hidden)
    for stage, layers in enumerate(model.stages()):
        for rank in range(stage * model.ep, (stage + 1) * model.ep):
            if rank == 0:
                dcp.tensor(rank, "embedding.word_embeddings.weight", "bfloat16", table, (0, 0), table)
                dcp.object(rank, "common_state/shard_0_1", common_state(model.args()))
            for layer in layers:
                deepseek_layer(model, dcp, layer, rank)
            if rank == (model.pp - 1) * model.ep:
                dcp.tensor(rank, "decoder.final_layernorm.weight", "bfloat16", table[1:], (0,), table[1:])
                dcp.tensor(rank, "output_layer.weight", "bfloat16", table, (0, 0), table)
            dcp.object(rank, f"rerun_state_machine_state/shard_{rank}_{model.pp * model.ep}", None)
            dcp.close_file(rank)
    dcp.close()
    return model.pp * model.ep


def small_llama(options):
    """About options.gib GiB in bf16, of layers as wide as --hidden."""
    h = options.hidden
    heads, ffn, vocab = h // 128, h * 7 // 2 // 256 * 256, 32000
    model = Llama(1, h, heads, max(heads // 4, options.tp), ffn, vocab, 32768, tp=options.tp)
    table, layer = 2 * vocab * h, model.parameters() - (2 * vocab + 1) * h
    model.layers = max(1, round((options.gib * 2**30 / 2 - table) / layer))
    return model


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=["deepseek-671b", "llama-405b", "llama"])
    parser.add_argument("dir")
    parser.add_argument("--gib", type=float, default=1)
    parser.add_argument("--tp", type=int, default=8)
    parser.add_argument("--hidden", type=int, default=4096)
    parser.add_argument("--sparse", action="store_true", help="leave the data of llama out")
    parser.add_argument("--crcs", action="store_true", help="leave the CRC-32 of each record, as torch does (--format torch)")
    parser.add_argument("--format", choices=["torch", "torch_dist"], default="torch")
    options = parser.parse_args()
    os.makedirs(options.dir, exist_ok=True)
    if options.kind == "deepseek-671b":
        model = DeepseekV3()
        files = make_deepseek(model, options.dir)
    elif options.kind == "llama-405b":
        model = LLAMA_405B
        files = make_legacy(model, options.dir, Noise(False))
    else:
        model = small_llama(options)
        noise = Noise(not options.sparse)
        files = make_legacy(model, options.dir, noise, options.crcs) if options.format == "torch" else make_dist_llama(model, options.dir, noise)
    fp32 = model.experts * (model.layers - model.dense) if isinstance(model, DeepseekV3) else 0
    print(files, model.tensors(), model.parameters(), 2 * model.parameters() + 2 * fp32)


main()
