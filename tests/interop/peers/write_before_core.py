"""Lets an old Megatron-LM build its GPT model, save it and say its logits, on CPUs.

    python write_before_core.py TREE OUT [--tp N] [--pp N] [--stream] [--dtype D] [-- ARGUMENTS]

TREE is a checkout of Megatron-LM: v1.0, a commit of 2020, v2.0, v2.5, or a core release up to 0.17 (its legacy model). ARGUMENTS are those of
its own pretrain_gpt.py. OUT gets what its save_checkpoint() writes, and logits.npz. --stream: torch.save as before torch 1.6.
Only what needs a GPU is replaced: devices, apex's layer norm, groups of random states.
"""
import argparse
import contextlib
import importlib
import os
import pathlib
import sys
import tempfile
import types

import numpy
import torch
import torch.distributed as dist
import torch.multiprocessing

SIZES = ["--num-layers", "2", "--hidden-size", "16", "--num-attention-heads", "4", "--seq-length", "16", "--max-position-embeddings", "16",
         "--make-vocab-size-divisible-by", "8", "--no-save-optim", "--no-save-rng"]
VOCABULARY = 48


def shims():
    """Devices are CPUs, and apex is there as far as it is imported."""
    apex = {name: types.ModuleType(name) for name in ("apex", "apex.normalization", "apex.normalization.fused_layer_norm", "apex.multi_tensor_apply",
                                                      "apex.optimizers", "amp_C", "fused_mix_prec_layer_norm_cuda", "fused_layer_norm_cuda")}
    apex["apex.normalization.fused_layer_norm"].FusedLayerNorm = torch.nn.LayerNorm
    apex["apex.multi_tensor_apply"].multi_tensor_applier = apex["amp_C"].multi_tensor_l2norm = apex["amp_C"].multi_tensor_scale = None
    apex["apex.optimizers"].FusedAdam = apex["apex.optimizers"].FusedSGD = torch.optim.Adam
    sys.modules.update(apex)
    sys.modules["torch._six"] = types.SimpleNamespace(inf=float("inf"))
    for name in ("megatron.tokenizer", "megatron.training.tokenizer"):
        sys.modules[name] = types.ModuleType(name)
        sys.modules[name].build_tokenizer = None
    torch.cuda.current_device = lambda: "cpu"
    torch.cuda.device_count = lambda: 1
    torch.cuda.get_device_capability = lambda *a: (8, 0)
    torch.cuda.synchronize = lambda *a, **k: None
    torch.Tensor.cuda = lambda self, *a, **k: self


def modules(tree):
    """The parts of Megatron-LM by what they do; folders moved in 2023 and 2024."""
    sys.path.insert(0, str(tree))
    if (tree / "megatron/legacy").is_dir():
        from megatron.training import arguments, checkpointing, global_vars
        from megatron.core import mpu, tensor_parallel
        from megatron.legacy import model
        return arguments, checkpointing, global_vars, mpu, tensor_parallel, model
    from megatron import arguments, checkpointing, global_vars, mpu, model
    return arguments, checkpointing, global_vars, mpu, mpu, model


def layer_norm(shape, eps=1e-5, **others):
    return torch.nn.LayerNorm(shape, eps=eps)


def build(tree, rank, asked):
    arguments, checkpointing, global_vars, mpu, parallel, model = modules(tree)
    old = not hasattr(mpu, "get_tensor_model_parallel_world_size")  # before pipelines
    sizes = ["--model-parallel-size", str(asked.tp)] if old else \
        ["--tensor-model-parallel-size", str(asked.tp), "--pipeline-model-parallel-size", str(asked.pp), "--micro-batch-size", "1"]
    sys.argv = ["pretrain_gpt.py", *SIZES, *sizes, *asked.arguments]
    args = arguments.parse_args()
    if hasattr(arguments, "validate_args") and asked.validate:
        arguments.validate_args(args)
    args.padded_vocab_size = VOCABULARY
    args.save = asked.out.name  # a save's arguments name no machine
    args.use_cpu_initialization = True
    global_vars._GLOBAL_ARGS = args
    mpu.initialize_model_parallel(*([asked.tp] if old else [asked.tp, asked.pp]))
    for module in [module for name, module in sys.modules.items() if name.startswith("megatron")]:
        for name in ("MixedFusedLayerNorm", "LayerNorm"):
            if hasattr(module, name):
                setattr(module, name, layer_norm)
        if hasattr(module, "get_cuda_rng_tracker"):
            module.get_cuda_rng_tracker = lambda: types.SimpleNamespace(fork=lambda *a: contextlib.nullcontext(), get_states=dict)
    kwargs = {"parallel_output": False}
    if hasattr(mpu, "is_pipeline_first_stage"):
        kwargs |= {"pre_process": mpu.is_pipeline_first_stage(), "post_process": mpu.is_pipeline_last_stage()}
    if (tree / "megatron/legacy").is_dir():
        args.model_type = importlib.import_module("megatron.core.enums").ModelType.encoder_or_decoder
        importlib.import_module("megatron.core.num_microbatches_calculator").init_num_microbatches_calculator(rank["tp"], None, 1, 1, 1)
        kwargs["config"] = arguments.core_transformer_config_from_args(args)
    cls = next(getattr(model, name) for name in ("GPTModel", "GPT2Model", "GPTModelFirstStage") if hasattr(model, name))
    net = cls(**kwargs).float().eval()
    randomise(net, rank)
    return args, checkpointing, mpu, net


@torch.no_grad()
def randomise(net, rank):
    """Every weight is random, norms and biases too; what tensor ranks share is equal, and so are the copies of the embedding."""
    for name, p in net.named_parameters():
        split = getattr(p, "tensor_model_parallel", getattr(p, "model_parallel", False))
        word = "word_embeddings" in name
        seed = sum(map(ord, "word_embeddings" if word else name)) + 1000 * (rank["tp"] if split or word else 0) + 31 * (0 if word else rank["pp"])
        generator = torch.Generator().manual_seed(seed)
        noise = torch.randn(p.shape, generator=generator) * (0.3 if p.dim() > 1 else 0.2)
        p.copy_((noise + (1 if "norm" in name and name.endswith("weight") else 0)).half().float())


@torch.no_grad()
def forward(net, tokens, asked, rank, args):
    positions = torch.arange(tokens.shape[1]).expand_as(tokens)
    peer = lambda stage: stage * asked.tp + rank["tp"]
    if rank["pp"]:
        hidden = torch.empty(tokens.shape[1], tokens.shape[0], args.hidden_size)
        dist.recv(hidden, peer(rank["pp"] - 1))
        net.set_input_tensor(hidden)
    later = torch.ones(1, 1, tokens.shape[1], tokens.shape[1]).triu(1).bool()
    result = net(tokens, positions, later)
    if rank["pp"] + 1 < asked.pp:
        dist.send(result.contiguous(), peer(rank["pp"] + 1))
        return None
    return result


def run(number, asked, store):
    os.environ.update(RANK=str(number), WORLD_SIZE=str(asked.tp * asked.pp), LOCAL_RANK="0", CUDA_DEVICE_MAX_CONNECTIONS="1")
    os.chdir(asked.out.parent)
    torch.set_num_threads(1)
    shims()
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=number, world_size=asked.tp * asked.pp)
    rank = {"tp": number % asked.tp, "pp": number // asked.tp}
    args, checkpointing, mpu, net = build(asked.tree, rank, asked)
    tokens = torch.randint(0, VOCABULARY, (2, 16), generator=torch.Generator().manual_seed(1))
    logits = forward(net, tokens, asked, rank, args)
    save, zipped = torch.save, not asked.stream
    torch.save = lambda *a, **k: save(*a, **k | {"_use_new_zipfile_serialization": zipped})
    write(asked, checkpointing, args, net)
    if logits is not None and rank["tp"] == 0:
        numpy.savez_compressed(asked.out / "logits.npz", tokens=tokens.numpy(), logits=logits.float().numpy())
    dist.barrier()


def write(asked, checkpointing, args, net):
    net.to(getattr(torch, asked.dtype))
    if (asked.tree / "megatron/legacy").is_dir():
        args.ckpt_format, args.async_save, args.non_persistent_ckpt_type, args.log_progress = "torch", False, None, False
        name = checkpointing.get_checkpoint_name(args.save, 5)
        checkpointing.ensure_directory_exists(name)
        state = checkpointing.generate_state_dict(args, [net], None, None, [], iteration=5) if "iteration" in \
            checkpointing.generate_state_dict.__code__.co_varnames else checkpointing.generate_state_dict(args, [net], None, None, [])
        state["iteration"] = 5
        torch.save(state, name)
        (asked.out / "latest_checkpointed_iteration.txt").write_text("5")
    else:
        wants_list = "for i in range(len(model))" in pathlib.Path(checkpointing.__file__).read_text() or "model[0]" in pathlib.Path(checkpointing.__file__).read_text()
        checkpointing.save_checkpoint(5, [net] if wants_list else net, None, None)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("tree", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--tp", type=int, default=1)
    parser.add_argument("--pp", type=int, default=1)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--stream", action="store_true")
    parser.add_argument("--no-validate", dest="validate", action="store_false")
    mine, theirs = (sys.argv[1:sys.argv.index("--")], sys.argv[sys.argv.index("--") + 1:]) if "--" in sys.argv else (sys.argv[1:], [])
    asked = parser.parse_args(mine)
    asked.tree, asked.out, asked.arguments = asked.tree.resolve(), asked.out.resolve(), theirs
    asked.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as place:
        torch.multiprocessing.spawn(run, (asked, f"{place}/store"), nprocs=asked.tp * asked.pp)
