"""Loads a checkpoint with its optimizer into the real megatron-core on the CPU, at any layout, and dumps what the live optimizer then holds.

load_optimizer.py LOAD DUMP [--tp 2 --pp 2 --ep 1 --etp 2 --vpp 2 --dp 2] [--optimizer float16|dist] [--iteration 20]
load_optimizer.py --compare DUMP DUMP...          bit for bit; status 1 if they differ

LOAD is a --load directory: `torch` (whose own layout must be given) or `torch_dist` (any layout that Megatron can reshard it to).  DUMP is a
safetensors file of whole tensors under Megatron's global names: fp32_param.K, exp_avg.K, exp_avg_sq.K, model.K, and `step`; the param groups
are in its metadata.  Each rank's part is placed where Megatron's own sharded_state_dict says, and replicas must agree.  So dumps of one
training state are equal whatever the format and the layout that it was read from.  PYTHONPATH chooses the core.
"""
import argparse
import dataclasses
import io
import json
import os
import pathlib
import pickle
import sys
import tempfile
import traceback
import types

import torch
import torch.distributed as dist

import mcore_cpu
import write_megatron

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "gpu"))
from rank import let_torch_adam_be_loaded


# Files: read with stand-ins for the classes that this core does not know, as megatron-core 0.20's enums.

class _Unpickler(pickle.Unpickler):
    def find_class(self, module, name):
        try:
            return super().find_class(module, name)
        except (ImportError, AttributeError):
            return type(name, (), {"__module__": module, "__init__": lambda self, *a: None, "__setstate__": lambda self, s: None})


_pickle = types.SimpleNamespace(Unpickler=_Unpickler, load=lambda f, **kw: _Unpickler(f, **kw).load(), __name__="pickle")


_torch_load = torch.load


def torch_load(file, **_):
    return _torch_load(file, map_location="cpu", weights_only=False, pickle_module=_pickle)


def common_state(directory):
    """What is no tensor in a torch_dist checkpoint: common.pt, or from core 0.19 on a byte item of it."""
    if (directory / "common.pt").exists():
        return torch_load(directory / "common.pt")
    metadata = _Unpickler((directory / ".metadata").open("rb")).load()
    item = next(info for index, info in metadata.storage_data.items() if index.fqn == "common_state/shard_0_1")
    data = (directory / item.relative_path).read_bytes()[item.offset:item.offset + item.length]
    return torch_load(io.BytesIO(data))[0]


def rank_directory(opt, directory):
    from megatron.core import parallel_state as ps
    name = f"mp_rank_{ps.get_tensor_model_parallel_rank():02d}"
    name += f"_{ps.get_pipeline_model_parallel_rank():03d}" if opt.pp > 1 else ""
    name += f"_{ps.get_expert_model_parallel_rank():03d}" if opt.ep > 1 else ""
    return directory / name


def relayout(args, opt):
    """The checkpoint's arguments at the layout wanted now; what an older or a newer core calls otherwise is filled in."""
    values = {**mcore_cpu.COMMON, **vars(args)}
    if not values.get("group_query_attention"):
        values["num_query_groups"] = values["num_attention_heads"]
    if "norm_epsilon" not in vars(args):
        values["norm_epsilon"] = getattr(args, "layernorm_epsilon", 1e-5)
    values.update(tensor_model_parallel_size=opt.tp, pipeline_model_parallel_size=opt.pp, expert_model_parallel_size=opt.ep,
                  expert_tensor_parallel_size=opt.etp or opt.tp, virtual_pipeline_model_parallel_size=opt.vpp if opt.vpp > 1 else None,
                  num_layers_per_virtual_pipeline_stage=None, moe_token_dispatcher_type="allgather", sequence_parallel=False)
    if opt.pp != args.pipeline_model_parallel_size:
        values.update(decoder_first_pipeline_num_layers=None, decoder_last_pipeline_num_layers=None)
    return argparse.Namespace(**values)


# Megatron: models, optimizer, loading.

def optimizer_of(args, models, kind):
    from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
    from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
    ddp = DistributedDataParallelConfig(grad_reduce_in_fp32=True, use_distributed_optimizer=kind == "dist")
    wrapped = [DistributedDataParallel(m.config, ddp, m) for m in models]
    return get_megatron_optimizer(
        OptimizerConfig(optimizer="adam", lr=getattr(args, "lr", 1e-3), min_lr=getattr(args, "min_lr", None), weight_decay=0.1, adam_beta2=0.95,
                        bf16=args.bf16, fp16=args.fp16, params_dtype=args.params_dtype, use_distributed_optimizer=kind == "dist",
                        clip_grad=1.0), wrapped)


def sharded_models(models, metadata):
    from megatron.core import parallel_state as ps
    state = {}
    for i, (name, model) in enumerate(zip(write_megatron.chunk_names(models), models)):
        if len(models) > 1:
            ps.set_virtual_pipeline_model_parallel_rank(i)
        state[name] = model.sharded_state_dict(metadata=metadata)
    return state


def sharded_optimizer(optimizer, models_state, metadata, **more):
    return optimizer.sharded_state_dict(models_state, **more, metadata=metadata)


def load_torch_dist(opt, directory, common, models, optimizer):
    from megatron.core import dist_checkpointing as dc
    from megatron.core.dist_checkpointing.strategies import common as strategies
    if hasattr(strategies, "TorchCommonLoadStrategy"):  # up to core 0.18, which does not know 0.19's place for it
        strategies.TorchCommonLoadStrategy.load_common = lambda self, path: common_state(pathlib.Path(path))
    metadata = dict(common.get("content_metadata") or {})
    if opt.optimizer == "dist" and "distrib_optim_sharding_type" not in metadata:
        metadata["distrib_optim_sharding_type"] = "fully_sharded_model_space"  # what core < 0.13 wrote
    state = sharded_models(models, metadata)
    state["optimizer"] = sharded_optimizer(optimizer, dict(state), metadata, is_loading=True)
    state = dc.load(state, str(directory))
    for name, model in zip(write_megatron.chunk_names(models), models):
        model.load_state_dict(state[name])
    count_as_torch(state["optimizer"])
    optimizer.load_state_dict(state["optimizer"])


def count_as_torch(state):
    """Transformer Engine's Adam counts steps in its groups, torch's, which is here in its place, in each parameter's state."""
    steps = {group.pop("step") for group in state["param_groups"] if "step" in group} if "param_groups" in state else ()
    if steps and "state" in state:
        state["state"]["common_step"] = torch.tensor(float(*steps))


def as_named_here(state, model):
    """Before core 0.17 the inner layer of multi-token prediction had another name, before 0.19 a Mamba mixer's convolution."""
    known = model.state_dict()
    if any(".mixer.conv1d." in name for name in known):
        return {name.replace(".mixer.conv1d_", ".mixer.conv1d."): tensor for name, tensor in state.items()}
    if not any(".transformer_layer." in name for name in known):
        return state
    return {name.replace(".mtp_model_layer.", ".transformer_layer."): tensor for name, tensor in state.items()}


def load_torch(opt, place, models, optimizer):
    state = torch_load(place / "model_optim_rng.pt")
    names = write_megatron.chunk_names(models)
    assert [k for k in state if k.startswith("model")] == names, f"{place} has {[k for k in state if k.startswith('model')]}, not {names}"
    for name, model in zip(names, models):
        model.load_state_dict(as_named_here(state[name], model))  # strict
    count_as_torch(state["optimizer"])
    optimizer.load_state_dict(state["optimizer"])
    if opt.optimizer == "dist":
        torch.load = torch_load
        optimizer.load_parameter_state(str(place / "distrib_optim.pt"))
        torch.load = _torch_load


# The dump.

def pieces(models, optimizer, kind):
    """[(name, global shape, slice, tensor)] of this rank, replicas included."""
    from megatron.core.dist_checkpointing.dict_utils import nested_values
    from megatron.core.dist_checkpointing.mapping import ShardedTensor, ShardedTensorFactory, apply_factories
    metadata = dict(singleton_local_shards=False, chained_optim_avoid_prefix=True)
    if kind == "dist":
        metadata["distrib_optim_sharding_type"] = "fully_reshardable"
    weights = sharded_models(models, metadata)
    state = {"optimizer": sharded_optimizer(optimizer, dict(weights), metadata), **weights}
    apply_factories(state)
    found = []
    for value in nested_values(state):
        assert not isinstance(value, ShardedTensorFactory)
        if isinstance(value, ShardedTensor) and not value.key.endswith("_extra_state"):
            assert value.flattened_range is None, value.key
            name = value.key.removeprefix("optimizer.state.") if value.key.startswith("optimizer.state.") else f"model.{value.key}"
            name = f"fp32_{name}" if name.startswith("param.") else name
            found.append((name, tuple(value.global_shape), value.global_slice(), value.data.detach().clone()))
    return found


def inner_optimizers(optimizer):
    return [part.optimizer for part in getattr(optimizer, "chained_optimizers", [optimizer])]


def assemble(gathered):
    """Whole tensors of every rank's pieces; nothing may be missing, and replicas must agree."""
    whole, seen = {}, {}
    for rank, found in enumerate(gathered):
        for name, shape, where, tensor in found:
            if name not in whole:
                whole[name], seen[name] = torch.zeros(shape, dtype=tensor.dtype), torch.zeros(shape, dtype=torch.bool)
            tensor = tensor.reshape(whole[name][where].shape)
            here = seen[name][where]
            same = whole[name][where].view(torch.uint8) if not tensor.dim() else whole[name][where]
            if here.all():
                assert torch.equal(same, tensor), f"{name}: rank {rank} has another replica"
            whole[name][where], seen[name][where] = tensor, True
    holes = [name for name, mask in seen.items() if not mask.all()]
    assert not holes, f"nobody has all of {holes[:5]}"
    return whole


def load_rank(opt, rank, store):
    """One rank: everything from the files to the dump, which rank 0 writes."""
    mcore_cpu.start(opt, rank, store)
    let_torch_adam_be_loaded()
    directory = opt.load / f"iter_{opt.iteration:07d}"
    torch_dist = (directory / "metadata.json").exists()
    place = None if torch_dist else rank_directory(opt, directory)
    common = common_state(directory) if torch_dist else torch_load(place / "model_optim_rng.pt")
    args = relayout(common["args"], opt)
    models = mcore_cpu.build(args)
    optimizer = optimizer_of(args, models, opt.optimizer)
    if torch_dist:
        load_torch_dist(opt, directory, common, models, optimizer)
    else:
        load_torch(opt, place, models, optimizer)
    gathered = [None] * opt.ranks
    dist.all_gather_object(gathered, pieces(models, optimizer, opt.optimizer))
    inner = inner_optimizers(optimizer)
    steps = [None] * opt.ranks
    dist.all_gather_object(steps, {float(s["step"]) for o in inner for s in o.state.values() if "step" in s})
    if rank == 0:
        from safetensors.torch import save_file
        groups = [{k: v for k, v in g.items() if k != "params"} for o in inner for g in o.param_groups]
        tensors = assemble(gathered)
        tensors["step"] = torch.tensor(sorted(set().union(*steps)))
        save_file(tensors, opt.dump, metadata=dict(param_groups=json.dumps(groups, default=repr), iteration=str(common["iteration"])))
        print(f"{opt.dump}: {len(tensors)} tensors, step {tensors['step'].tolist()}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


def run(opt):
    write_megatron.import_megatron()
    pids = []
    with tempfile.TemporaryDirectory() as work:
        for rank in range(opt.ranks):
            pid = os.fork()
            if not pid:
                os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(opt.ranks))
                code = 1
                try:
                    load_rank(opt, rank, os.path.join(work, "store"))
                    code = 0
                except BaseException:
                    traceback.print_exc()
                finally:
                    sys.stdout.flush()
                    os._exit(code)
            pids.append(pid)
        return write_megatron.wait_for(pids)


def compare(paths):
    """Prints what differs from the first dump; True when nothing does."""
    from safetensors import safe_open
    good = True
    with safe_open(paths[0], "pt") as first:
        for path in paths[1:]:
            with safe_open(path, "pt") as other:
                mine, theirs = set(first.keys()), set(other.keys())
                wrong = [f"only in one: {name}" for name in sorted(mine ^ theirs)]
                for name in sorted(mine & theirs):
                    a, b = first.get_tensor(name), other.get_tensor(name)
                    if a.dtype != b.dtype or a.shape != b.shape:
                        wrong.append(f"{name}: {a.dtype} {tuple(a.shape)}, {b.dtype} {tuple(b.shape)}")
                    elif not torch.equal(a, b):
                        wrong.append(f"{name}: {int((a != b).sum())} of {a.numel()} differ")
                if first.metadata().get("iteration") != other.metadata().get("iteration"):
                    wrong.append("iteration differs")
                print(f"{path}: {len(theirs)} tensors, {'equal' if not wrong else f'{len(wrong)} differences'}", *wrong[:12], sep="\n  ")
                good &= not wrong
    return good


@dataclasses.dataclass
class Options:
    """Layout and files; as a Spec of checkpoints.py where mcore_cpu asks."""
    load: pathlib.Path
    dump: str
    tp: int
    pp: int
    ep: int
    vpp: int
    etp: int
    dp: int
    optimizer: str
    iteration: int

    @property
    def ranks(self):
        dense, experts = self.tp * self.dp, (self.etp or self.tp) * self.ep
        while dense % experts:
            dense += self.tp
        return dense * self.pp


def optimizer_there(directory):
    """The kind of optimizer that these files are of."""
    if (directory / ".metadata").exists():
        return "float16" if b"optimizer.state.fp32_param." in (directory / ".metadata").read_bytes() else "dist"
    return "dist" if any(directory.glob("mp_rank_*/distrib_optim.pt")) else "float16"


def main():
    if sys.argv[1:2] == ["--compare"]:
        sys.exit(not compare(sys.argv[2:]))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("load", type=pathlib.Path)
    parser.add_argument("dump")
    for name in ("tp", "pp", "ep", "vpp", "dp"):
        parser.add_argument("--" + name, type=int, default=1)
    parser.add_argument("--etp", type=int)
    parser.add_argument("--optimizer", choices=["float16", "dist"], help="default: what the files hold")
    parser.add_argument("--iteration", type=int, help="default: the tracker's")
    opt = parser.parse_args()
    opt.iteration = opt.iteration or int((opt.load / "latest_checkpointed_iteration.txt").read_text())
    opt.optimizer = opt.optimizer or optimizer_there(opt.load / f"iter_{opt.iteration:07d}")
    good = run(Options(**vars(opt)))
    os._exit(not good)  # no waiting for helpers of libraries whose forked users were killed


if __name__ == "__main__":
    main()
