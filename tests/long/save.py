"""Saves a tiny model again and again with megatron-core, as 8 ranks of a run do, and deletes all but the last few saves.

save.py ROOT WORK RANKS

Iterations begin at 1000: 1000, 1001 and 1003 first, which are left as they are.  Then WORK/saved is there, and what follows
waits for WORK/go and ends at WORK/stop.  All elements of an iteration's weights have the same distance, as 16-bit numbers, from
those of iteration 1000: what holds bytes of two saves shows itself.  WORK/deleting has the names of iterations whose deletion has
begun, one a line, and WORK/saves a line for each save.
"""
import os
import shutil
import sys
import time

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[:0] = [os.path.join(TESTS, "interop"), os.path.join(TESTS, "interop", "peers")]
import torch
import torch.distributed as dist

import checkpoints
import mcore_cpu
import write_megatron

FIRST, KEPT, NUMBERS = 1000, 4, (1000, 1001, 1003)
SIZES = dict(num_layers=8, hidden_size=128, num_attention_heads=8, num_query_groups=4, kv_channels=16, ffn_hidden_size=512)


def append(path, line):
    with open(path, "a") as file:
        file.write(f"{line}\n")


@torch.no_grad()
def advance(models, by):
    """Adds to the bits of each weight."""
    for model in models:
        for parameter in model.parameters():
            parameter.view(torch.int16).add_(by)


def save(spec, args, models, root, number):
    """One save as Megatron-LM's save_checkpoint makes it: the tracker comes last."""
    directory = os.path.join(root, f"iter_{number:07d}")
    os.makedirs(directory, exist_ok=True)
    dist.barrier()
    args.iteration = number
    write_megatron.save_torch_dist(spec, args, models, None, directory, iteration=number)
    dist.barrier()
    if dist.get_rank() == 0:
        with open(os.path.join(root, "latest_checkpointed_iteration.txt"), "w") as file:
            file.write(str(number))


def delete_old(root, work, numbers):
    """As runs do that keep their last few saves."""
    while len(numbers) > KEPT:
        name = f"iter_{numbers.pop(0):07d}"
        append(os.path.join(work, "deleting"), name)
        shutil.rmtree(os.path.join(root, name))


def agreed(condition):
    """What rank 0 found, on all ranks."""
    flag = torch.tensor([int(condition)])
    dist.broadcast(flag, 0)
    return bool(flag.item())


def save_until_stopped(spec, args, models, root, work):
    numbers, number = [], NUMBERS[-1]
    while not agreed(os.path.exists(os.path.join(work, "stop"))):
        began = time.monotonic()
        number += 1
        advance(models, 1)
        save(spec, args, models, root, number)
        if dist.get_rank() == 0:
            numbers.append(number)
            append(os.path.join(work, "saves"), f"{number} {time.monotonic() - began:.2f}")
            delete_old(root, work, numbers)


def run_rank(spec, rank, root, work):
    mcore_cpu.start(spec, rank, os.path.join(work, "store"))
    from megatron.core.dist_checkpointing.strategies import filesystem_async
    filesystem_async._results_queue = write_megatron.SaveResults()
    args = mcore_cpu.megatron_args(spec)
    args.no_save_optim, args.no_save_rng = True, False
    models = mcore_cpu.build(args)
    mcore_cpu.fill(args, models)
    reached = FIRST
    for number in NUMBERS:
        advance(models, number - reached)
        save(spec, args, models, root, number)
        reached = number
    if rank == 0:
        append(os.path.join(work, "saved"), len(NUMBERS))
    while not agreed(os.path.exists(os.path.join(work, "go"))):
        time.sleep(0.2)
    save_until_stopped(spec, args, models, root, work)
    dist.destroy_process_group()


def main():
    root, work, ranks = sys.argv[1], sys.argv[2], int(sys.argv[3])
    layout = {8: dict(tp=2, pp=2, dp=2), 4: dict(tp=2, pp=2), 2: dict(tp=2)}[ranks]
    spec = checkpoints.make("soak", "llama", **layout, **SIZES)
    write_megatron.import_megatron()
    write_megatron.write_rank = lambda spec, rank, out, store: run_rank(spec, rank, out, work)
    pids = [write_megatron.rank_process(spec, rank, root, work, 2) for rank in range(spec.ranks)]
    sys.exit(0 if write_megatron.wait_for(pids) else 1)


if __name__ == "__main__":
    main()
