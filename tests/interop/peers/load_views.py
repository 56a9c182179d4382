"""Loads Megatron checkpoints into real GPTModels of megatron-core on the CPU: load_views.py JOBS

JOBS: a file of JSON objects, a line each: {"load": a --load directory, "tp": 2, "pp": 2, "ep", "etp", "vpp", "first", "last", "logits": an .npz with
tokens and Megatron's or transformers' logits, "packed": [[ids, labels, mask, positions], ...] of packed rows, of one process, "dump": a file to write, "optimizer": true to load the one that is there}.  Answers with a line of JSON each:
{"job": number, "error": null or the last of a log, "difference": of the logits in float32, or the mean "loss" of the packed rows}.

Legacy files are loaded strictly, each rank its own; torch_dist through megatron.core.dist_checkpointing.  A dump has whole tensors under
Megatron's global names (load_optimizer.py), the same whatever the layout.  Importing Megatron takes most of the time of a tiny model, so one
process does it, and every rank of every job is a fork.  PYTHONPATH chooses the core.
"""
import json
import os
import pathlib
import sys
import tempfile
import time
import traceback
import warnings

import numpy
import torch
import torch.distributed as dist
from safetensors.torch import save_file

import load_files
import load_optimizer
import mcore_cpu
import write_megatron


def options(job):
    of = {key: job.get(key) or 1 for key in ("tp", "pp", "ep", "vpp", "dp")}
    tracker = (pathlib.Path(job["load"]) / "latest_checkpointed_iteration.txt").read_text().strip()
    optimizer = load_optimizer.optimizer_there(iteration(pathlib.Path(job["load"]))) if job.get("optimizer") else None
    return load_optimizer.Options(load=pathlib.Path(job["load"]), dump=job.get("dump"), etp=job.get("etp"), optimizer=optimizer,
                                  iteration=0 if tracker == "release" else int(tracker), **of)


def let_newer_files_be_loaded(directory):
    """Core 0.19 has its common state in another place, and its arguments name a class that older cores do not have."""
    load_files.allow()
    from megatron.core import model_parallel_config
    vars(model_parallel_config).setdefault("warnings", warnings)  # 0.15 forgot to import it
    if not (directory / "common.pt").exists():
        from megatron.core.dist_checkpointing.strategies import common
        common.TorchCommonLoadStrategy.load_common = lambda self, path: load_optimizer.common_state(pathlib.Path(path))


def iteration(directory):
    word = (directory / "latest_checkpointed_iteration.txt").read_text().strip()
    return directory / (word if word == "release" else f"iter_{int(word):07d}")


def load_weights(opt, directory, place, models):
    """torch_dist where `place` is None.  Missing, unexpected and misshapen tensors are errors in both."""
    names = write_megatron.chunk_names(models)
    if place:
        state = load_optimizer.torch_load(place / "model_optim_rng.pt")
        assert [k for k in state if k.startswith("model")] == names, f"{place} has {[k for k in state if k.startswith('model')]}, not {names}"
    else:
        from megatron.core import dist_checkpointing as dc
        metadata = dict(load_optimizer.common_state(directory).get("content_metadata") or {})
        state = dc.load(load_optimizer.sharded_models(models, metadata), str(directory))
    for name, model in zip(names, models):
        model.load_state_dict(load_optimizer.as_named_here(state[name], model))


def weight_pieces(models):
    """As load_optimizer.pieces(), without an optimizer."""
    from megatron.core.dist_checkpointing.dict_utils import nested_values
    from megatron.core.dist_checkpointing.mapping import ShardedTensor, apply_factories
    state = load_optimizer.sharded_models(models, dict(singleton_local_shards=False))
    apply_factories(state)
    return [(f"model.{value.key}", tuple(value.global_shape), value.global_slice(), value.data.detach().clone())
            for value in nested_values(state) if isinstance(value, ShardedTensor) and not value.key.endswith("_extra_state")]


def logit_difference(args, models, path):
    want = numpy.load(path)
    copies = write_megatron.float32_copy(args, models)
    got = mcore_cpu.forward(copies, torch.from_numpy(want["tokens"]))
    if got is None:
        return None
    pairs = [(got, want["logits"])] + ([(copies[-1].logits_ahead, want["mtp"])] if "mtp" in want else [])
    rows = min(got.shape[-1], want["logits"].shape[-1])  # padding of a vocabulary
    return max(float(numpy.abs(ours.float().numpy()[..., :rows] - theirs[..., :rows]).max()) for ours, theirs in pairs)


def packed_loss(args, models, rows):
    """By PackedSeqParams (thd). Core's attention for CPUs refuses these: here it takes one document after the other."""
    from megatron.core.packed_seq_params import PackedSeqParams
    from megatron.core.transformer.dot_product_attention import DotProductAttention
    model, total, count, alone = write_megatron.float32_copy(args, models)[0], 0.0, 0, DotProductAttention.forward

    def attend(self, query, key, value, attention_mask, attn_mask_type=None, packed_seq_params=None, **_):
        ends = packed_seq_params.cu_seqlens_q.tolist()
        return torch.cat([alone(self, *(x[begin:end].unsqueeze(1) for x in (query, key, value)), None, attn_mask_type)
                          for begin, end in zip(ends, ends[1:])])

    DotProductAttention.forward = attend
    model.eval()
    for row in rows:
        ids, labels, mask, positions = (torch.tensor([x]) for x in row)
        begins = [i for i, position in enumerate(row[3]) if not position]
        ends = torch.tensor(begins + [len(row[0])], dtype=torch.int32)
        longest = int((ends[1:] - ends[:-1]).max())
        packed = PackedSeqParams(qkv_format="thd", cu_seqlens_q=ends, cu_seqlens_kv=ends, max_seqlen_q=longest, max_seqlen_kv=longest)
        with torch.no_grad():
            logits = model(ids, positions, None, packed_seq_params=packed)[0].float()
        total += float((torch.nn.functional.cross_entropy(logits, labels[0], reduction="none") * mask[0]).sum())
        count += int(mask.sum())
    return total / count


def load_rank(job, rank, store, answer):
    opt = options(job)
    mcore_cpu.start(opt, rank, store)
    load_optimizer.let_torch_adam_be_loaded()
    directory = iteration(opt.load)
    let_newer_files_be_loaded(directory)
    place = None if (directory / "metadata.json").exists() else load_optimizer.rank_directory(opt, directory)
    common = load_optimizer.torch_load(place / "model_optim_rng.pt") if place else load_optimizer.common_state(directory)
    args = load_optimizer.relayout(common["args"], opt)
    args.decoder_first_pipeline_num_layers, args.decoder_last_pipeline_num_layers = job.get("first"), job.get("last")
    models = mcore_cpu.build(args)
    if opt.optimizer:
        optimizer = load_optimizer.optimizer_of(args, models, opt.optimizer)
        if place:
            load_optimizer.load_torch(opt, place, models, optimizer)
        else:
            load_optimizer.load_torch_dist(opt, directory, common, models, optimizer)
    else:
        load_weights(opt, directory, place, models)
    if opt.dump:
        found = load_optimizer.pieces(models, optimizer, opt.optimizer) if opt.optimizer else weight_pieces(models)
        gathered, steps = [None] * opt.ranks, [None] * opt.ranks
        dist.all_gather_object(gathered, found)
        inner = load_optimizer.inner_optimizers(optimizer) if opt.optimizer else []
        dist.all_gather_object(steps, {float(s["step"]) for o in inner for s in o.state.values() if "step" in s})
        if rank == 0:
            tensors = load_optimizer.assemble(gathered)
            if opt.optimizer:
                tensors["step"] = torch.tensor(sorted(set().union(*steps)))
            save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, opt.dump)
    said = {"loss": packed_loss(args, models, job["packed"])} if job.get("packed") else {}
    difference = logit_difference(args, models, job["logits"]) if job.get("logits") else None
    dist.barrier()
    if difference is not None:
        said["difference"] = difference
    if said:
        pathlib.Path(f"{answer}-{rank}").write_text(json.dumps(said))
    dist.barrier()
    dist.destroy_process_group()


def fork(job, rank, work):
    """Forks one rank; what it says goes to a log."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        log = os.open(f"{work}/log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(options(job).ranks))
        load_rank(job, rank, f"{work}/store", f"{work}/said")
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def run(number, job):
    with tempfile.TemporaryDirectory() as work:
        began = time.time()
        good = write_megatron.wait_for([fork(job, rank, work) for rank in range(options(job).ranks)])
        log = pathlib.Path(work, "log")
        error = None if good else (log.read_text()[-1500:] if log.exists() else "killed")
        said = [json.loads(path.read_text()) for path in pathlib.Path(work).glob("said-*")]  # of each rank that has the logits
        most = {key: max((each[key] for each in said if key in each), default=None) for key in ("difference", "loss")}
        return dict(job=number, error=error, **most, seconds=round(time.time() - began, 1))


if __name__ == "__main__":
    write_megatron.import_megatron()
    for number, line in enumerate(open(sys.argv[1])):
        print(json.dumps(run(number, json.loads(line))), flush=True)
