"""Trains real GPTModels of megatron-core on the CPU, as pretrain_gpt.py does: train_megatron.py JOBS

JOBS: a file of JSON objects, a line each: {"load": a legacy --load directory of one rank, or null for none, "args": Megatron's arguments that
differ from the checkpoint's, "dtype", "samples": .npy of int32 [samples, seq_length + 1] in the order of the run, "batches": samples of each
step, "out": a file}.  out gets a line of JSON for each step: iteration, loss, ahead (those of MTP layers), grad_norm, lr, weight_decay,
loss_scale, skipped.

Megatron's own code does all of it: schedules.forward_backward_no_pipelining, DistributedDataParallel, finalize_model_grads, its optimizers and
OptimizerParamScheduler.  The optimizer begins anew, from the
weights as they are: --finetune --no-load-optim.

With "resume", an iteration's directory in place of "load", the run goes on: megatron-core's dist_checkpointing (or torch.load, of a legacy one)
loads model, optimizer, scheduler and random states ("random": for how many stages and tensor ranks there are some).  The samples of the steps that are done are left out.  More keys then: "optimizer": "dist"
for the distributed one; "dump": a file of the tensors that model and optimizer hold (load_optimizer.py); "save": {"at": an iteration, "dir": a
--save directory}, written by dist_checkpointing.save.  The first line of out has "random": numbers that Python, numpy and torch draw from the
loaded states, and the seeds and places of CUDA's generators.
"""
import argparse
import functools
import json
import os
import pathlib
import random
import sys
import tempfile
import traceback

import numpy
import torch

import load_files
import load_optimizer
import mcore_cpu
import write_megatron


class One:
    """The layout of one process."""
    tp = pp = ep = vpp = etp = dp = ranks = 1
    sharding, singleton, format = "fully_reshardable", False, "torch_dist"

    def __init__(self, optimizer="float16"):
        self.optimizer = optimizer


DEFAULTS = dict(lr=1e-3, min_lr=0.0, lr_decay_style="linear", lr_decay_iters=None, lr_warmup_iters=0, lr_warmup_init=0.0,
                lr_wsd_decay_style="exponential", lr_wsd_decay_iters=None, weight_decay=0.01, start_weight_decay=None,
                end_weight_decay=None, weight_decay_incr_style="constant", clip_grad=1.0, adam_beta1=0.9, adam_beta2=0.999, adam_eps=1e-8,
                train_iters=10, optimizer="adam", sgd_momentum=0.9, global_batch_size=8, micro_batch_size=2, calculate_per_token_loss=False, eod_mask_loss=False,
                reset_position_ids=False, reset_attention_mask=False, eod=0, initial_loss_scale=2**32, min_loss_scale=1.0,
                loss_scale_window=1000, hysteresis=2, loss_scale=None, decoupled_lr=None, decoupled_min_lr=None,
                accumulate_allreduce_grads_in_fp32=False)


def arguments(job, saved):
    values = {**mcore_cpu.COMMON, **(vars(saved) if saved else {}), **DEFAULTS, **job["args"]}
    dtype = getattr(torch, job["dtype"])
    values.update(params_dtype=dtype, bf16=dtype is torch.bfloat16, fp16=dtype is torch.float16, tensor_model_parallel_size=1,
                  pipeline_model_parallel_size=1, virtual_pipeline_model_parallel_size=None, expert_model_parallel_size=1,
                  expert_tensor_parallel_size=1, sequence_parallel=False, context_parallel_size=1, moe_token_dispatcher_type="allgather",
                  moe_grouped_gemm=False, decoder_first_pipeline_num_layers=None, decoder_last_pipeline_num_layers=None)
    if not values.get("group_query_attention", True):
        values["num_query_groups"] = values["num_attention_heads"]
    return argparse.Namespace(**values)


def build(args, state):
    model, = mcore_cpu.build(args)
    if state:
        model.load_state_dict({k: v for k, v in state["model"].items()}, strict=False)
    cfg = model.config
    cfg.calculate_per_token_loss = args.calculate_per_token_loss
    cfg.deallocate_pipeline_outputs = False
    return model


def optimizer_of(args, model, kind):
    from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
    from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
    # arguments.py: validate_args says it itself with --bf16 alone.
    in_fp32 = args.bf16 or args.accumulate_allreduce_grads_in_fp32
    wrapped = DistributedDataParallel(
        model.config, DistributedDataParallelConfig(grad_reduce_in_fp32=in_fp32, use_distributed_optimizer=kind == "dist"), model)
    config = OptimizerConfig(optimizer=args.optimizer, sgd_momentum=args.sgd_momentum, lr=args.lr, min_lr=args.min_lr, weight_decay=args.weight_decay, adam_beta1=args.adam_beta1,
                             adam_beta2=args.adam_beta2, adam_eps=args.adam_eps, bf16=args.bf16, fp16=args.fp16,
                             params_dtype=args.params_dtype, clip_grad=args.clip_grad, loss_scale=args.loss_scale,
                             initial_loss_scale=args.initial_loss_scale, min_loss_scale=args.min_loss_scale,
                             loss_scale_window=args.loss_scale_window, hysteresis=args.hysteresis, decoupled_lr=args.decoupled_lr,
                             decoupled_min_lr=args.decoupled_min_lr, use_distributed_optimizer=kind == "dist")
    optimizer = get_megatron_optimizer(config, [wrapped])
    if args.optimizer == "sgd":
        for part in getattr(optimizer, "chained_optimizers", [optimizer]):
            part.init_state_fn = init_momentum
    return wrapped, optimizer


def init_momentum(optimizer, *_):
    """The core has no init_state_fn for SGD, without which its loading has no place for what was saved."""
    for group in optimizer.param_groups:
        for p in group["params"]:
            if group["momentum"]:
                optimizer.state[p].setdefault("momentum_buffer", torch.zeros_like(p.data))


def scheduler_of(args, optimizer):
    """training.py: get_optimizer_param_scheduler, of a run whose length is given in iterations."""
    from megatron.core.optimizer_param_scheduler import OptimizerParamScheduler
    batch = args.global_batch_size
    decay = (args.lr_decay_iters or args.train_iters) * batch
    first, last = args.start_weight_decay, args.end_weight_decay
    return OptimizerParamScheduler(
        optimizer, init_lr=args.lr_warmup_init, max_lr=args.lr, min_lr=args.min_lr, lr_warmup_steps=args.lr_warmup_iters * batch,
        lr_decay_steps=decay, lr_decay_style=args.lr_decay_style, start_wd=args.weight_decay if first is None else first,
        end_wd=args.weight_decay if last is None else last, wd_incr_steps=args.train_iters * batch,
        wd_incr_style=args.weight_decay_incr_style, wsd_decay_steps=args.lr_wsd_decay_iters and args.lr_wsd_decay_iters * batch,
        lr_wsd_decay_style=args.lr_wsd_decay_style)


def microbatch(args, rows):
    from megatron.core.datasets.gpt_dataset import _get_ltor_masks_and_position_ids
    columns = []
    for row in rows:
        text = torch.from_numpy(row.astype(numpy.int64))
        tokens, labels = text[:-1].contiguous(), text[1:].contiguous()
        mask, loss_mask, positions = _get_ltor_masks_and_position_ids(tokens, args.eod, args.reset_position_ids, args.reset_attention_mask,
                                                                      args.eod_mask_loss, True)
        columns.append((tokens, labels, loss_mask, mask, positions))
    return [torch.stack(column) for column in zip(*columns)]


def forward_step(args, data, model):
    tokens, labels, loss_mask, mask, positions = next(data)
    losses = model(tokens, positions, mask, labels=labels, loss_mask=loss_mask)

    def loss_of(mask, output):
        loss = torch.sum(output.float().view(-1) * mask.view(-1))
        count = mask.sum().to(torch.int)
        return loss, count, {"lm loss": torch.stack([loss.detach(), count.float()])}

    return losses, functools.partial(loss_of, loss_mask)


def losses_ahead(microbatches):
    """What training_log() says of MTP layers, a number for each."""
    from megatron.core.transformer.multi_token_prediction import MTPLossLoggingHelper as Helper
    if "values" not in Helper.tracker:
        return []
    found = (Helper.tracker["values"] / microbatches).tolist()
    Helper.clean_loss_in_tracker()
    return found


# Runs that go on.

def common_state(directory):
    if (directory / "metadata.json").exists():
        return load_optimizer.common_state(directory)
    return load_optimizer.torch_load(directory / "mp_rank_00" / "model_optim_rng.pt")


def load_random_states(directory, shape):
    """As load_checkpoint() of Megatron does, but for CUDA's generators, which are not here. shape: stages and tensor ranks that have some."""
    from megatron.core import dist_checkpointing as dc
    wanted = [dc.mapping.ShardedObject("rng_state", None, tuple(shape), place) for place in numpy.ndindex(*shape)]
    (states,), *_ = dc.load({"rng_state": wanted}, str(directory))["rng_state"]
    random.setstate(states["random_rng_state"])
    numpy.random.set_state(states["np_rng_state"])
    torch.set_rng_state(states["torch_rng_state"])
    cuda = {"default": states["cuda_rng_state"], **states["rng_tracker_states"]}
    assert all(state.dtype is torch.uint8 for state in cuda.values())
    return dict(python=random.random(), numpy=numpy.random.random_sample(), torch=float(torch.rand(())),
                cuda={name: state.view(torch.int64).tolist() for name, state in cuda.items()})


def resume(job, directory, state, model, optimizer, scheduler):
    """What the first line of out says."""
    options = One(job.get("optimizer", "float16"))
    random_states = None
    if (directory / "metadata.json").exists():
        load_optimizer.load_torch_dist(options, directory, state, [model], optimizer)
        random_states = load_random_states(directory, job.get("random", (1, 1)))
    else:
        load_optimizer.load_torch(options, directory / "mp_rank_00", [model], optimizer)
    scheduler.load_state_dict(state["opt_param_scheduler"])
    if "dump" in job:
        found = load_optimizer.pieces([model], optimizer, options.optimizer)
        torch.save(load_optimizer.assemble([found]), job["dump"])
    return dict(iteration=state["iteration"], random=random_states, consumed=state["args"].consumed_train_samples)


def save(job, args, model, optimizer, scheduler, iteration):
    from megatron.core.dist_checkpointing.strategies import filesystem_async
    filesystem_async._results_queue = write_megatron.SaveResults()
    place = pathlib.Path(job["save"]["dir"])
    directory = place / f"iter_{iteration:07d}"
    directory.mkdir(parents=True)
    args.consumed_train_samples, args.no_save_optim, args.no_save_rng = sum(job["batches"][:iteration]), None, None
    write_megatron.save_torch_dist(One(), args, [model], optimizer, str(directory), iteration=iteration,
                                   opt_param_scheduler=scheduler.state_dict())
    (place / "latest_checkpointed_iteration.txt").write_text(str(iteration))


def train(job):
    from megatron.core.distributed import finalize_model_grads
    from megatron.core.pipeline_parallel import get_forward_backward_func
    state, goes_on = None, job.get("resume") and pathlib.Path(job["resume"])
    if goes_on:
        state = common_state(goes_on)
    elif job.get("load"):
        state = load_optimizer.torch_load(next(pathlib.Path(job["load"]).glob("iter_*/mp_rank_00/model_optim_rng.pt")))
    args = arguments(job, state and state["args"])
    model = build(args, None if goes_on else state)
    model.train()
    wrapped, optimizer = optimizer_of(args, model, job.get("optimizer"))
    config = model.config
    config.grad_scale_func, config.finalize_model_grads_func = optimizer.scale_loss, finalize_model_grads
    scheduler = scheduler_of(args, optimizer)
    samples, at, done = numpy.load(job["samples"]), 0, 0
    with open(job["out"], "w") as out:
        if goes_on:
            begin = resume(job, goes_on, state, model, optimizer, scheduler)
            done = begin["iteration"]
            print(json.dumps(begin), file=out, flush=True)
        for iteration, batch in enumerate(job["batches"], 1):
            if iteration <= done:
                at += batch
                continue
            rows = samples[at:at + batch]
            at += batch
            data = iter([microbatch(args, rows[i:i + args.micro_batch_size]) for i in range(0, batch, args.micro_batch_size)])
            wrapped.zero_grad_buffer()
            optimizer.zero_grad()
            used = max(g["lr"] for g in optimizer.param_groups)
            decay = max(g["weight_decay"] for g in optimizer.param_groups)
            losses = get_forward_backward_func()(
                forward_step_func=functools.partial(forward_step, args), data_iterator=data, model=[wrapped],
                num_microbatches=batch // args.micro_batch_size, seq_length=args.seq_length, micro_batch_size=args.micro_batch_size,
                forward_only=False)
            updated, norm, _ = optimizer.step()
            if updated:
                scheduler.step(increment=batch)
            total = sum(d["lm loss"] for d in losses)
            row = dict(iteration=iteration, loss=float(total[0] / total[1]), ahead=losses_ahead(len(losses)),
                       grad_norm=None if norm is None else float(norm), used_lr=used, lr=max(g["lr"] for g in optimizer.param_groups), weight_decay=decay,
                       loss_scale=float(optimizer.get_loss_scale()), skipped=not updated)
            print(json.dumps(row), file=out, flush=True)
            if job.get("save", {}).get("at") == iteration:
                save(job, args, model, optimizer, scheduler, iteration)


def fork(job, work):
    pid = os.fork()
    if pid:
        return os.waitpid(pid, 0)[1]
    code = 1
    try:
        log = os.open(f"{work}/log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE="1")
        mcore_cpu.start(One, 0, f"{work}/store")
        load_files.allow()
        load_optimizer.let_torch_adam_be_loaded()
        train(job)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def main():
    for number, line in enumerate(pathlib.Path(sys.argv[1]).read_text().splitlines()):
        with tempfile.TemporaryDirectory() as work:
            status = fork(json.loads(line), work)
            error = pathlib.Path(work, "log").read_text()[-1500:] if status else None
            print(json.dumps({"job": number, "error": error}), flush=True)


if __name__ == "__main__":
    main()
