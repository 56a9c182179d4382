"""Checkpoints of programs that build on megatron-core, in their own places and names: saves for write_megatron.py.

torch_dcp      megatron-core's TorchFullyShardedDataParallel (FSDP2) shards the model, torch.distributed.checkpoint writes it.
fsdp_dtensor   megatron-core's uneven DTensors, cut and named as its handlers for Megatron-FSDP name them; Megatron-FSDP itself wants CUDA.
nemo           NeMo 2: megatron-core's torch_dist in weights/ under NeMo's prefix, and context/model.yaml as NeMo's io_dump() writes it.
verl, verl2    verl: megatron-core's torch_dist without arguments, all in one or in parts, and transformers' config.json beside it.
slime, accelerate   Megatron-LM's own saves; what these programs put into `args` and beside the iterations (add_extras, write_beside).
"""
import dataclasses
import inspect
import os
import sys
import types

import torch
import torch.distributed as dist
from torch.distributed import checkpoint as dcp

import mcore_cpu


def save_flat(state, directory):
    """As Megatron-LM's save_checkpoint: the state as it is, which torch flattens."""
    dcp.save(state_dict=state, storage_writer=dcp.FileSystemWriter(directory))


def whole(tree):
    """The state with whole tensors in place of the sharded ones."""
    return torch.utils._pytree.tree_map(lambda v: v.full_tensor() if hasattr(v, "full_tensor") else v, tree)


def keep_live(args, state, out):
    """What the live model and optimizer held, as a legacy save of one rank; every process calls it."""
    state = whole(state)
    if dist.get_rank() == 0:
        os.makedirs(os.path.join(out, "live", "mp_rank_00"))
        torch.save(state, os.path.join(out, "live", "mp_rank_00", "model_optim_rng.pt"))


def fsdp2_optimizer(args, model):
    """Megatron's optimizer of a model that FSDP2 has sharded, after a step on gradients that differ from element to element."""
    from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
    optimizer = get_megatron_optimizer(OptimizerConfig(optimizer="adam", lr=1e-3, weight_decay=0.1, adam_beta2=0.95, bf16=args.bf16, fp16=args.fp16,
                                                       params_dtype=args.params_dtype, clip_grad=0.0), [model])
    for inner in optimizer.chained_optimizers:
        for group in inner.optimizer.param_groups:
            for parameter in group["params"]:
                parameter.grad = parameter.detach() * 0.25 + 0.01
        inner.optimizer.step()
        for overflow in [True] * 24 + [False] * 3 if args.fp16 else []:  # until the scale is 512
            inner.grad_scaler.update(overflow)
        if hasattr(inner, "_copy_main_params_to_model_params"):
            inner._copy_main_params_to_model_params()
    return optimizer


def scheduler_state(spec):
    return dict(max_lr=1e-3, lr_warmup_steps=0, num_steps=spec.samples, lr_decay_style="constant", lr_decay_steps=100, min_lr=1e-5, start_wd=0.1, end_wd=0.1,
                wd_incr_style="constant", wd_incr_steps=100)


def save_torch_dcp(spec, args, state, directory):
    from megatron.core.distributed import DistributedDataParallelConfig, torch_fully_sharded_data_parallel as fsdp
    mesh = fsdp.DeviceMesh
    fsdp.DeviceMesh = types.SimpleNamespace(from_group=lambda group, kind: mesh.from_group(group, "cpu"))
    models = mcore_cpu.build(args)
    mcore_cpu.fill(args, models)
    sharded = fsdp.TorchFullyShardedDataParallel(models[0].config, DistributedDataParallelConfig(), models[0])
    if spec.optimizer != "none":
        args.use_torch_fsdp2 = True
        optimizer = fsdp2_optimizer(args, sharded)
        state = state | dict(optimizer=optimizer.state_dict(), opt_param_scheduler=scheduler_state(spec))
        keep_live(args, state | dict(model=models[0].state_dict_for_save_checkpoint()), os.path.dirname(directory))
    save_flat(state | dict(model=sharded.state_dict_for_save_checkpoint()), directory)


def rows_of(count):
    """This rank's rows: the cuts lie where a flat buffer of several parameters is cut, not at equal parts."""
    ranks, rank = dist.get_world_size(), dist.get_rank()
    cuts = [0] + [count * (2 * i + 1) // (2 * ranks + 1) for i in range(1, ranks)] + [count]
    return slice(cuts[rank], cuts[rank + 1])


def uneven(tensor, mesh):
    from torch.distributed.tensor import DTensor, Shard
    from megatron.core.distributed.fsdp.src.megatron_fsdp.uneven_dtensor import update_uneven_dtensor_chunk_metadata
    tensor = tensor.detach()
    sharded = DTensor.from_local(tensor[rows_of(tensor.shape[0])].clone(), mesh, [Shard(0)], run_check=False, shape=tensor.shape,
                                 stride=tensor.stride())
    update_uneven_dtensor_chunk_metadata(sharded)
    return sharded


def parts_of(args, name, tensor):
    """handle_swiglu_in_state_dict()"""
    gated = args.swiglu and ".mlp." in name and "linear_fc1" in name
    return dict(zip(("_w", "_v"), tensor.chunk(2))) if gated else {"": tensor}


def fsdp_optimizer(spec, args, model, optimizer, mesh):
    """As sharded_param_state_fsdp_dtensor() names it; and the main parameters, which Megatron-FSDP has in the place of the model's."""
    inner, = optimizer.chained_optimizers
    names = {p.main_param: f"module.{name}" for name, p in model.named_parameters()}
    mains, state, metas = {}, {}, {}
    for group in inner.optimizer.param_groups:
        meta = {k: v for k, v in group.items() if k != "params"}
        for main in group["params"]:
            name, kept = names[main], inner.optimizer.state[main]
            # torch's Adam has a step of each parameter, Transformer Engine's one of each group.
            step = dict(step=kept["step"]) if not args.num_experts else {}
            metas[name] = meta if step else meta | dict(step=int(kept["step"]))
            mains[name] = main
            halves = [parts_of(args, name, kept[moment]) for moment in ("exp_avg", "exp_avg_sq")]
            for part in halves[0]:
                state[name + part] = step | {m: uneven(half[part], mesh) for m, half in zip(("exp_avg", "exp_avg_sq"), halves)}
    return mains, dict(state=state, param_to_group_meta=metas)


def save_fsdp_dtensor(spec, args, models, optimizer, state, directory):
    from torch.distributed.device_mesh import init_device_mesh
    mesh, mains = init_device_mesh("cpu", (dist.get_world_size(),)), {}
    if optimizer:
        args.use_megatron_fsdp = True
        mains, kept = fsdp_optimizer(spec, args, models[0], optimizer, mesh)
        state = state | dict(optimizer=kept, opt_param_scheduler=scheduler_state(spec))
    weights = {}
    for name, tensor in models[0].state_dict().items():
        if not isinstance(tensor, torch.Tensor):
            continue  # handle_fp8_extra_state_case()
        name = f"module.{name}"
        weights |= {name + part: uneven(half, mesh) for part, half in parts_of(args, name, mains.get(name, tensor)).items()}
    save_flat(state | dict(model=weights), directory)


def plain(value):
    """As NeMo's and NeMo-Run's YAML representers (nemo/lightning/io/mixin.py)."""
    if isinstance(value, torch.dtype):
        return dict(_target_=str(value), _call_=False)
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    named = value if hasattr(value, "__qualname__") else type(value)
    return dict(_target_=f"{inspect.getmodule(named).__name__}.{named.__qualname__}", _call_=named is not value)


def write_context(args, directory):
    import yaml
    config = mcore_cpu.config(args)
    fields = {f.name: plain(getattr(config, f.name)) for f in dataclasses.fields(config)}
    fields |= dict(_target_="nemo.collections.llm.gpt.model.llama.Llama3Config8B", fp16_lm_cross_entropy=False, parallel_output=True,
                   share_embeddings_and_output_weights=not args.untie_embeddings_and_output_weights, make_vocab_size_divisible_by=128,
                   position_embedding_type=args.position_embedding_type, rotary_base=args.rotary_base, rotary_percent=args.rotary_percent,
                   seq_len_interpolation_factor=None, seq_length=args.seq_length, attention_softmax_in_fp32=False, vocab_size=None,
                   transformer_layer_spec=plain(mcore_cpu.build), generation_config=None)
    os.makedirs(os.path.join(directory, "context"), exist_ok=True)
    with open(os.path.join(directory, "context", "model.yaml"), "w") as file:
        yaml.safe_dump(dict(_target_="nemo.collections.llm.gpt.model.llama.LlamaModel", config=fields, optim=None, tokenizer=None,
                            model_transform=None), file)


def nemo_groups(optimizer):
    """What setup_megatron_optimizer() of nemo/lightning/_strategy_lib.py makes of Megatron's groups."""
    for group in optimizer.param_groups:
        group |= dict(pre_mult_lr=group["lr"], pre_mult_wd=group["weight_decay"], pre_lr_mult=group.pop("lr_mult"), pre_wd_mult=group.pop("wd_mult"))
        group |= dict(lr=group["lr"] * group["pre_lr_mult"], weight_decay=group["weight_decay"] * group["pre_wd_mult"])


def save_nemo(spec, args, models, optimizer, directory):
    from megatron.core import dist_checkpointing as dc
    from megatron.core.optimizer.distrib_optimizer import DistributedOptimizer
    metadata = dict(distrib_optim_sharding_type=spec.sharding, singleton_local_shards=spec.singleton, chained_optim_avoid_prefix=True)
    state = {"epoch": 0, "global_step": 1, "pytorch-lightning_version": "2.5.0", "state_dict": {}, "loops": None, "callbacks": {},
             "lr_schedulers": [], "hparams_name": "kwargs", "hyper_parameters": {}, "content_metadata": metadata,
             "sharded_state_dict": models[0].sharded_state_dict(prefix="module.", metadata=metadata)}
    if optimizer:
        nemo_groups(optimizer)
        known = inspect.signature(DistributedOptimizer.sharded_state_dict).parameters
        kwargs = dict(metadata=metadata) if "metadata" in known else dict(sharding_type=spec.sharding)
        named = {k: v for k, v in models[0].sharded_state_dict(prefix="module.", metadata=metadata).items() if not k.endswith("_extra_state")}
        state |= {"optimizer": [optimizer.sharded_state_dict(named, **kwargs)], "optimizer_states": {}, "PreTrainingDataModule": {"consumed_samples": spec.samples}}
    weights = os.path.join(directory, "weights")
    os.makedirs(weights, exist_ok=True)
    dc.save(state, weights, dc.serialization.get_default_save_sharded_strategy("torch_dist", 1), validate_access_integrity=True)
    if dist.get_rank() == 0:
        write_context(args, directory)


def hf_config(args):
    """The config of the model that verl's training began with."""
    import transformers
    made = {"llama": transformers.LlamaConfig, "mixtral": transformers.MixtralConfig}["mixtral" if args.num_experts else "llama"]
    return made(vocab_size=args.vocab_size, hidden_size=args.hidden_size, num_hidden_layers=args.num_layers,
                intermediate_size=args.moe_ffn_hidden_size if args.num_experts else args.ffn_hidden_size,
                num_attention_heads=args.num_attention_heads, num_key_value_heads=args.num_query_groups, head_dim=args.kv_channels,
                max_position_embeddings=args.max_position_embeddings, rms_norm_eps=getattr(args, "norm_epsilon", None) or args.layernorm_epsilon,
                tie_word_embeddings=not args.untie_embeddings_and_output_weights, dtype=str(args.params_dtype).split(".")[1],
                rope_parameters=dict(rope_type="default", rope_theta=float(args.rotary_base)),
                architectures=[made.__name__.replace("Config", "ForCausalLM")],
                **(dict(num_local_experts=args.num_experts, num_experts_per_tok=args.moe_router_topk) if args.num_experts else {}))


def save_verl(spec, args, models, optimizer, rng, directory):
    """As generate_state_dict() or its successors of MegatronCheckpointManager build the state."""
    from megatron.core import dist_checkpointing as dc, parallel_state as ps
    parts, metadata = spec.format == "verl2", dict(distrib_optim_sharding_type=spec.sharding, singleton_local_shards=False, chained_optim_avoid_prefix=True)
    model = {}
    for i, chunk in enumerate(models):
        if len(models) > 1:
            ps.set_virtual_pipeline_model_parallel_rank(i)
        model[f"model{i}" if len(models) > 1 else "model"] = chunk.sharded_state_dict(metadata=metadata)
    rest = dict(lr_scheduler=dict(max_lr=1e-6, num_steps=1))
    if optimizer:
        rest["optimizer"] = optimizer.sharded_state_dict(dict(model), metadata=metadata)
    extra = dict(rng_state=dc.mapping.ShardedObject("rng_state", rng, (spec.pp, spec.tp), (ps.get_pipeline_model_parallel_rank(), ps.get_tensor_model_parallel_rank()),
                                                    replica_id=ps.get_data_parallel_rank(with_context_parallel=True)))
    places = {"model/dist_ckpt": model, "optimizer/dist_ckpt": rest, "extra/dist_ckpt": extra} if parts else {"dist_ckpt": model | rest | extra}
    for place, state in places.items():
        where = os.path.join(directory, place)
        os.makedirs(where, exist_ok=True)
        dc.save(state, where, dc.serialization.get_default_save_sharded_strategy("torch_dist", 1), validate_access_integrity=True)
    if dist.get_rank() == 0:
        hf_config(args).save_pretrained(os.path.join(directory, "model" if parts else "", "huggingface"))


def stand_in(module, name, /, **fields):
    """An object of a dataclass of a package that no reader has."""
    parent = ""
    for part in module.split("."):
        parent = f"{parent}.{part}".strip(".")
        sys.modules.setdefault(parent, types.ModuleType(parent))
    made = dataclasses.make_dataclass(name, list(fields))
    made.__module__ = module
    setattr(sys.modules[module], name, made)
    return made(**fields)


def add_extras(spec, args, directory):
    """What else is in `args` (slime/utils/arguments.py; accelerate/utils/megatron_lm.py: initialize)."""
    if spec.format == "slime":
        args.hf_checkpoint, args.rollout_batch_size, args.rollout_stop_token_ids = "/models/qwen3", 32, [1, 2]
        args.eval_datasets = [stand_in("slime.utils.eval_config", "EvalDatasetConfig", name="aime", path="/data/aime.jsonl", top_p=0.7)]
        args.sglang_mem_fraction_static, args.sglang_config = 0.8, None
        args.custom_rm, args.save = stand_in, directory
    if spec.format == "accelerate":
        args.model_type_name, args.orig_vocab_size, args.pretraining_flag, args.num_labels = "gpt", args.vocab_size, True, None
        args.save, args.model_return_dict = directory, True


def write_beside(spec, root):
    """Files beside the iterations."""
    if spec.format == "slime":
        os.makedirs(os.path.join(root, "rollout"))
        torch.save(dict(sample_offset=32, epoch_id=0, sample_index=256, metadata={}), os.path.join(root, "rollout", "global_dataset_state_dict_1.pt"))
    if spec.format == "accelerate":
        torch.save(dict(torch_manual_seed=torch.get_rng_state()), os.path.join(root, "random_states_0.pkl"))


def place(spec, iteration):
    return f"global_step_{iteration}/actor" if spec.format.startswith("verl") else f"iter_{iteration:07d}"


def save(spec, args, models, optimizer, state, directory):
    """state: the common one, as Megatron-LM's."""
    if spec.format.startswith("verl"):
        save_verl(spec, args, models, optimizer, state["rng_state"], directory)
    elif spec.format == "nemo":
        save_nemo(spec, args, models, optimizer, directory)
    elif spec.format == "torch_dcp":
        save_torch_dcp(spec, args, state, directory)
    else:
        save_fsdp_dtensor(spec, args, models, optimizer, state, directory)
