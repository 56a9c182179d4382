"""Megatron-Bridge saves models with their optimizers: save_bridge.py HF JOB...

HF: the directory that the weights come from.  JOB: OUT=KIND, where KIND is float16, dp_reshardable, fully_reshardable
or nameless: dp_reshardable, of layers of which run_config.yaml does not say that they are core's own.  OUT gets the checkpoint, as
Bridge's own save_checkpoint() writes it on two data-parallel ranks, and OUT.safetensors what the live model and optimizer held then: whole
tensors, model.NAME, param.NAME, exp_avg.NAME and exp_avg_sq.NAME.  Answers with a line of JSON each.
"""
import json
import os
import sys
import tempfile
import traceback
import types

import torch
import torch.distributed as dist

import export_bridge
import load_optimizer
import mcore_cpu
import write_megatron

RANKS, STEP = 2, 3
KINDS = ("param", "exp_avg", "exp_avg_sq")
BUCKET = 20000  # elements: several buckets of a tiny model


def configurations(kind):
    from megatron.bridge.training.config import DistributedDataParallelConfig, OptimizerConfig
    distributed = kind != "float16"
    ddp = DistributedDataParallelConfig(grad_reduce_in_fp32=True, use_distributed_optimizer=distributed,
                                        overlap_grad_reduce=kind == "dp_reshardable", bucket_size=BUCKET if kind == "dp_reshardable" else None)
    optimizer = OptimizerConfig(optimizer="adam", lr=1e-3, min_lr=1e-5, weight_decay=0.1, adam_beta2=0.95, bf16=True, params_dtype=torch.bfloat16,
                                use_distributed_optimizer=distributed, clip_grad=1.0)
    for config in (ddp, optimizer):
        config.finalize()
    return ddp, optimizer


def trained(bridge, ddp, config):
    """The wrapped model and its optimizer after some steps on gradients that differ from element to element, alike on all ranks."""
    from megatron.bridge.training.config import SchedulerConfig
    from megatron.bridge.training.optim import setup_optimizer
    from megatron.core.distributed import DistributedDataParallel
    models = export_bridge.models_of(bridge, torch.bfloat16)
    bridge.load_hf_weights(models)
    wrapped = [DistributedDataParallel(model.config, ddp, model) for model in models]
    scheduler = SchedulerConfig(lr_decay_style="constant", lr_decay_iters=10, lr_warmup_iters=0)
    scheduler.finalize()
    scheduler.lr_warmup_steps, scheduler.lr_decay_steps, scheduler.wd_incr_steps = 0, 10, 10
    scheduler.start_weight_decay = scheduler.end_weight_decay = 0.1
    optimizer, schedule = setup_optimizer(config, scheduler, wrapped, use_gloo_process_groups=True)
    random = torch.Generator().manual_seed(5)
    for _ in range(STEP):
        for model in wrapped:
            for parameter in model.parameters():
                parameter.main_grad.copy_(torch.randn(parameter.shape, generator=random))
        optimizer.step()
        schedule.step(1)
    return wrapped, optimizer, schedule


def save(wrapped, optimizer, schedule, ddp, config, kind, out):
    from megatron.bridge.training.checkpointing import save_checkpoint
    from megatron.bridge.training.config import CheckpointConfig, ConfigContainer, LoggerConfig
    from megatron.bridge.training.state import GlobalState
    from megatron.core.utils import get_model_config
    state = GlobalState()
    checkpoint = CheckpointConfig(async_save=False, save=out, save_optim=True, save_rng=False, ckpt_format="torch_dist", fully_parallel_save=True,
                                  dist_ckpt_optim_fully_reshardable=kind == "fully_reshardable")
    state.cfg = ConfigContainer(model=get_model_config(wrapped[0]), train=None, optimizer=config, ddp=ddp, scheduler=None, dataset=None,
                                logger=LoggerConfig(), tokenizer=None, checkpoint=checkpoint, dist=None)
    state.train_state.step = STEP
    save_checkpoint(state, wrapped, optimizer, schedule, 0)


def states_of(parameter, optimizer):
    """{state: this rank's elements, flat} and where they begin in the parameter, from the live optimizer and not from what it would save."""
    if not hasattr(optimizer, "model_param_gbuf_map"):
        main = parameter.main_param
        return dict(optimizer.optimizer.state[main], param=main), 0
    if parameter not in optimizer.model_param_gbuf_map:
        return {}, 0
    where = optimizer._get_model_param_range_map(parameter)["param"]
    return optimizer._get_main_param_and_optimizer_states(parameter), where.start


def pieces(models, optimizer):
    (optimizer,), found = optimizer.chained_optimizers, []
    for name, parameter in models[0].named_parameters():
        name = name.removeprefix("module.")  # of Float16Module
        found.append(("model." + name, parameter.shape, 0, parameter.detach().clone()))
        states, start = states_of(parameter, optimizer)
        found += [(f"{kind}.{name}", parameter.shape, start, states[kind].detach().clone()) for kind in KINDS if kind in states]
    return found


def dump(models, optimizer, out):
    gathered = [None] * RANKS
    dist.all_gather_object(gathered, pieces(models, optimizer))
    if dist.get_rank():
        return
    from safetensors.torch import save_file
    whole, seen = {}, {}
    for name, shape, start, tensor in sum(gathered, []):
        flat, mask = whole.setdefault(name, torch.zeros(shape.numel(), dtype=tensor.dtype)), seen.setdefault(name, torch.zeros(shape.numel(), dtype=torch.bool))
        flat[start:start + tensor.numel()] = tensor.reshape(-1)
        mask[start:start + tensor.numel()] = True
    assert all(mask.all() for mask in seen.values())
    shapes = {name: shape for name, shape, _, _ in sum(gathered, [])}
    save_file({name: flat.reshape(shapes[name]) for name, flat in whole.items()}, out + ".safetensors")


def save_rank(AutoBridge, hf, out, kind, rank, store):
    mcore_cpu.start(types.SimpleNamespace(tp=1, pp=1, ep=1, vpp=1, etp=None, ranks=RANKS), rank, store)
    load_optimizer.let_torch_adam_be_loaded()
    from megatron.core.dist_checkpointing.strategies import filesystem_async
    filesystem_async._results_queue = write_megatron.SaveResults()
    bridge = AutoBridge.from_hf_pretrained(hf, torch_dtype=torch.bfloat16)
    ddp, config = configurations(kind)
    wrapped, optimizer, schedule = trained(bridge, ddp, config)
    dump([model.module for model in wrapped], optimizer, out)
    save(wrapped, optimizer, schedule, ddp, config, kind, out)
    dist.barrier()
    dist.destroy_process_group()


def fork(log, *arguments):
    pid = os.fork()
    if pid:
        return pid
    code, rank = 1, arguments[-2]
    try:
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(RANKS))
        save_rank(*arguments)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def main():
    AutoBridge = export_bridge.import_bridge()
    from megatron.bridge.models import gpt_provider
    nameless = export_bridge.layer_spec
    for job in sys.argv[2:]:
        out, kind = job.rsplit("=", 1)
        export_bridge.layer_spec = nameless if kind == "nameless" else gpt_provider.local_layer_spec
        kind = kind.replace("nameless", "dp_reshardable")
        with tempfile.TemporaryDirectory() as work, open(f"{work}/log", "w+") as log:
            good = write_megatron.wait_for([fork(log.fileno(), AutoBridge, sys.argv[1], out, kind, rank, f"{work}/store") for rank in range(RANKS)])
            log.seek(0)
            print(json.dumps(dict(out=out, error=None if good else log.read()[-3000:])), flush=True)


if __name__ == "__main__":
    main()
