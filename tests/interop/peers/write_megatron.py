"""Writes real Megatron checkpoints of tiny random models with megatron-core, on the CPU.

write_megatron.py OUT NAME...       names of checkpoints.py; each becomes OUT/NAME with iter_0000001/, the tracker and
                                    logits.npz (tokens, and Megatron's logits in float32); OUT/NAME.log says why one failed

Importing Megatron takes most of the time of a tiny checkpoint, so it happens once here, and every rank is a fork.
"""
import copy
import fcntl
import inspect
import multiprocessing
import os
import queue
import random
import shutil
import sys
import tempfile
import time
import traceback

import numpy
import torch
import torch.distributed as dist

import mcore_cpu
import write_others

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import checkpoints

ITERATION = 1


def import_megatron():
    from megatron.core import dist_checkpointing, distributed, optimizer, parallel_state  # noqa: F401
    from megatron.core.dist_checkpointing import mapping, serialization  # noqa: F401
    from megatron.core.models.gpt import gpt_layer_specs, gpt_model  # noqa: F401
    from megatron.core.transformer import multi_latent_attention  # noqa: F401
    from megatron.core.transformer.moe import moe_layer  # noqa: F401


def optimizer_after_one_step(args, models, kind):
    """AdamW over DDP-wrapped chunks, stepped once on constant gradients, so that its moments are not zero."""
    from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
    from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
    ddp = DistributedDataParallelConfig(grad_reduce_in_fp32=True, use_distributed_optimizer=kind == "dist")
    wrapped = [DistributedDataParallel(m.config, ddp, m) for m in models]
    optimizer = get_megatron_optimizer(
        OptimizerConfig(optimizer="adam", lr=1e-3, weight_decay=0.1, adam_beta2=0.95, bf16=args.bf16, fp16=args.fp16,
                        params_dtype=args.params_dtype, use_distributed_optimizer=kind == "dist", clip_grad=1.0), wrapped)
    for model in wrapped:
        for parameter in model.parameters():
            parameter.main_grad.fill_(0.01)
    optimizer.step()
    return optimizer


def rng_state():
    return [dict(random_rng_state=random.getstate(), np_rng_state=numpy.random.get_state(), torch_rng_state=torch.get_rng_state(),
                 cuda_rng_state=torch.get_rng_state()[:16].clone(), rng_tracker_states={})]


def common_state(args):
    return dict(args=args, checkpoint_version=3.0, iteration=ITERATION, num_floating_point_operations_so_far=0)


def chunk_names(models):
    return ["model"] if len(models) == 1 else [f"model{i}" for i in range(len(models))]


def save_torch_dist(spec, args, models, optimizer, directory, **more):
    """more: of the common state."""
    from megatron.core import dist_checkpointing as dc, parallel_state as ps
    metadata = dict(distrib_optim_sharding_type=spec.sharding, singleton_local_shards=spec.singleton, chained_optim_avoid_prefix=True)
    state = common_state(args) | more
    for i, (name, model) in enumerate(zip(chunk_names(models), models)):
        if len(models) > 1:
            ps.set_virtual_pipeline_model_parallel_rank(i)
        state[name] = model.sharded_state_dict(metadata=metadata)
    if optimizer:
        from megatron.core.optimizer.distrib_optimizer import DistributedOptimizer
        known = inspect.signature(DistributedOptimizer.sharded_state_dict).parameters
        kwargs = dict(metadata=metadata) if "metadata" in known else dict(sharding_type=spec.sharding)  # core >= 0.14, before
        state["optimizer"] = optimizer.sharded_state_dict({n: state[n] for n in chunk_names(models)}, **kwargs)
    offset = (ps.get_pipeline_model_parallel_rank(), ps.get_tensor_model_parallel_rank())
    state["rng_state"] = dc.mapping.ShardedObject("rng_state", rng_state(), (spec.pp, spec.tp), offset,
                                                  replica_id=ps.get_data_parallel_rank(with_context_parallel=True))
    state["content_metadata"] = metadata
    if spec.format == "zarr":
        import tensorstore  # noqa: F401    names numpy's bfloat16, on which core's zarr.py insists
    dc.save(state, directory, dc.serialization.get_default_save_sharded_strategy("zarr" if spec.format == "zarr" else "torch_dist", 1), validate_access_integrity=True)


def te_name(args, name):
    """The name that Transformer Engine's fused layers give a parameter of the local spec (dense GQA models and experts)."""
    dense = not args.num_experts
    for local, fused in (("input_layernorm.", "self_attention.linear_qkv.layer_norm_"),
                         ("pre_mlp_layernorm.", "mlp.linear_fc1.layer_norm_")):
        if f".{local}" in name and (dense or local != "pre_mlp_layernorm."):
            return name.replace(local, fused)
    if ".local_experts." in name:
        head, tail = name.split("local_experts.")
        expert, rest = tail.split(".", 1)
        return f"{head}{rest}{expert}"
    return name


def save_torch(spec, args, models, optimizer, directory):
    """One file per model-parallel rank, as Megatron-LM's save_checkpoint names them."""
    from megatron.core import parallel_state as ps
    state = common_state(args)
    for name, model in zip(chunk_names(models), models):
        weights = model.state_dict_for_save_checkpoint()
        state[name] = weights if not spec.te_names else type(weights)((te_name(args, k), v) for k, v in weights.items())
    state["rng_state"] = rng_state()
    rank = f"mp_rank_{ps.get_tensor_model_parallel_rank():02d}"
    rank += f"_{ps.get_pipeline_model_parallel_rank():03d}" if spec.pp > 1 else ""
    rank += f"_{ps.get_expert_model_parallel_rank():03d}" if spec.ep > 1 else ""
    place = os.path.join(directory, rank)
    if optimizer:
        state["optimizer"] = optimizer.state_dict()
        if spec.optimizer == "dist":  # gathers over data parallel ranks, and rank 0 of them writes; every rank makes its directory
            os.makedirs(place, exist_ok=True)
            optimizer.save_parameter_state(os.path.join(place, "distrib_optim.pt"))
    if 0 in (ps.get_data_parallel_rank(), ps.get_expert_data_parallel_rank()):  # the union: TP and EP*ETP may differ
        os.makedirs(place, exist_ok=True)
        torch.save(state, os.path.join(place, "model_optim_rng.pt"))


@torch.no_grad()
def float32_copy(args, models):
    """The same weights in float32 models, ready to run."""
    stored = [m.state_dict() for m in models]
    args.params_dtype, args.bf16, args.fp16 = torch.float32, False, False
    models = mcore_cpu.build(args)
    for model, weights in zip(models, stored):
        model.load_state_dict(weights)
        for module in model.modules():
            if type(module).__name__ == "GroupedMLP":  # its forward insists on the flag, not on the type
                module.config = copy.copy(module.config)
                module.config.bf16 = True
        for name, parameter in model.named_parameters():
            if mcore_cpu.zero_centred(args) and not model.config.layernorm_zero_centered_gamma and name.endswith("norm.weight"):  # the local spec's norms cannot add the one
                parameter.add_(1)
    return models


def write_logits(args, models, path):
    torch.manual_seed(7)
    tokens = torch.randint(0, args.vocab_size or args.padded_vocab_size, (2, 48))
    logits = mcore_cpu.forward(float32_copy(args, models), tokens)
    if logits is not None and dist.get_rank() == dist.get_world_size() - 1:
        numpy.savez_compressed(path, tokens=tokens.numpy(), logits=logits.float().numpy())


def write_rank(spec, rank, out, store):
    """One rank's part of one checkpoint, in a process of its own."""
    mcore_cpu.start(spec, rank, store)
    from megatron.core.dist_checkpointing.strategies import filesystem_async
    filesystem_async._results_queue = SaveResults()
    args = mcore_cpu.megatron_args(spec)
    args.no_save_optim, args.no_save_rng, args.iteration = spec.optimizer == "none", False, ITERATION
    models = mcore_cpu.build(args)
    mcore_cpu.fill(args, models)
    optimizer = optimizer_after_one_step(args, models, spec.optimizer) if spec.optimizer != "none" and spec.format != "torch_dcp" else None
    directory = os.path.join(out, write_others.place(spec, ITERATION))
    write_others.add_extras(spec, args, out)
    os.makedirs(directory, exist_ok=True)
    if spec in checkpoints.OTHER_OPTIMIZERS and spec.format != "torch_dcp":  # what the live optimizer held
        save_torch(spec, args, models, optimizer, os.path.join(out, "live"))
    if spec.format in ("torch_dist", "zarr", "torch", "slime", "accelerate"):
        save = save_torch if spec.format in ("torch", "accelerate") else save_torch_dist
        save(spec, args, models, optimizer, directory)
    else:
        write_others.save(spec, args, models, optimizer, common_state(args) | dict(rng_state=rng_state()), directory)
    write_logits(args, models, os.path.join(out, "logits.npz"))
    dist.barrier()
    if rank == 0:
        with open(os.path.join(out, "latest_checkpointed_iteration.txt"), "w") as file:
            file.write(str(ITERATION))
        write_others.write_beside(spec, out)
    dist.destroy_process_group()


class SaveResults:
    """What a save's writer process hands back: Megatron's own queue lives in a spawned process, which imports torch again."""

    def __init__(self):
        self.queue = multiprocessing.get_context("fork").SimpleQueue()
        fcntl.fcntl(self.queue._writer.fileno(), fcntl.F_SETPIPE_SZ, 1 << 20)  # a whole save, before anyone reads
        self.put = self.queue.put

    def get_nowait(self):
        if self.queue.empty():
            raise queue.Empty
        return self.queue.get()


def rank_process(spec, rank, out, store, log):
    """Forks one rank; its output goes to the checkpoint's log."""
    pid = os.fork()
    if pid:
        return pid
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(spec.ranks))
    code = 1
    try:
        write_rank(spec, rank, out, store)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)  # no clean-up of what the parent set up


def wait_for(pids):
    """True when every rank succeeded; the first failure ends the others, which would wait for it for ever."""
    waiting, good = set(pids), True
    while waiting:
        pid, status = os.wait()
        if pid not in waiting:
            continue
        waiting.discard(pid)
        if status and good:
            good = False
            for other in waiting:
                os.kill(other, 9)
    return good


def write(spec, out):
    """Writes OUT/NAME through a temporary name, so that what is there is whole."""
    final = os.path.join(out, spec.name)
    with tempfile.TemporaryDirectory(dir=out, prefix=f".{spec.name}-") as work, open(final + ".log", "w") as log:
        part = os.path.join(work, "checkpoint")
        os.mkdir(part)
        began = time.time()
        pids = [rank_process(spec, rank, part, os.path.join(work, "store"), log.fileno()) for rank in range(spec.ranks)]
        good = wait_for(pids)
        if good:
            shutil.rmtree(final, ignore_errors=True)
            os.rename(part, final)
    print(f"{spec.name}: {'written' if good else 'FAILED'} in {time.time() - began:.1f} s", flush=True)
    return good


def main():
    out, names = sys.argv[1], sys.argv[2:]
    os.makedirs(out, exist_ok=True)
    import_megatron()
    results = [write(checkpoints.BY_NAME[name], out) for name in names]
    sys.exit(0 if all(results) else 1)


if __name__ == "__main__":
    main()
