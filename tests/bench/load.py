"""Loaders of weights into a GPU, in one run: theirs on a converted copy, ours on the unconverted source. Started by load.sh.

    load.py make DIR [BILLIONS] [--layouts WORDS]
                                    a random Llama in bf16 at DIR/hf, and as Megatron's legacy TP2 PP2 and TP8, and torch_dist
    load.py ranks DIR               one process a GPU, with the slices of vLLM's workers
    load.py disk DIR                bytes that 2 and 4 processes with the slices of vLLM's workers read from the disk together; needs no GPU
    load.py fio DIR                 cold, into the host's memory: what fio reads of a source's files with O_DIRECT, and what we load of it; needs no GPU
    load.py phases DIR              what a load into the first GPU is made of, in ms, of the whole model and of a worker's part; --cpu: into the host's memory
    load.py mount DIR MNT           theirs on the copy and on the mounted view MNT of a source, whose pages are dropped before each
    load.py time DIR [--what WORDS] [--runs N] [--cold]
                                    times: the best of N, in seconds and GB/s, and the share of the best loader of the copy
"""
import argparse
import gc
import glob
import itertools
import json
import os
import subprocess
import sys
import time

import torch

LAYOUTS = {"tp2pp2": "megatron/torch/tp2-pp2", "tp8": "megatron/torch/tp8-pp1", "dist": "megatron/torch_dist"}


# ---- what is loaded ----

def make_hf(where, billions):
    from safetensors.torch import save_file

    hidden, ffn, vocab, kv = 3072, 8192, 50048, 1024
    layer = 2 * hidden * hidden + 2 * hidden * kv + 3 * hidden * ffn
    layers = max(2, int((billions * 1e9 - 2 * vocab * hidden) / layer) // 2 * 2)
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": hidden, "intermediate_size": ffn, "num_attention_heads": 24,
              "num_key_value_heads": 8, "head_dim": 128, "num_hidden_layers": layers, "vocab_size": vocab, "max_position_embeddings": 4096,
              "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "hidden_act": "silu", "tie_word_embeddings": False, "torch_dtype": "bfloat16",
              "attention_bias": False, "mlp_bias": False, "bos_token_id": 1, "eos_token_id": 2}
    shapes = {"model.embed_tokens.weight": (vocab, hidden), "model.norm.weight": (hidden,), "lm_head.weight": (vocab, hidden)}
    for i in range(layers):
        p = f"model.layers.{i}."
        shapes.update({p + "self_attn.q_proj.weight": (hidden, hidden), p + "self_attn.k_proj.weight": (kv, hidden),
                       p + "self_attn.v_proj.weight": (kv, hidden), p + "self_attn.o_proj.weight": (hidden, hidden),
                       p + "mlp.gate_proj.weight": (ffn, hidden), p + "mlp.up_proj.weight": (ffn, hidden), p + "mlp.down_proj.weight": (hidden, ffn),
                       p + "input_layernorm.weight": (hidden,), p + "post_attention_layernorm.weight": (hidden,)})
    os.makedirs(where)
    json.dump(config, open(f"{where}/config.json", "w"))
    shards, size = [{}], 0
    for name, shape in shapes.items():
        bytes_ = 2 * torch.Size(shape).numel()
        if size + bytes_ > 2e9:
            shards.append({})
            size = 0
        shards[-1][name] = shape
        size += bytes_
    index, device = {}, "cuda" if torch.cuda.is_available() else "cpu"
    for i, shard in enumerate(shards):
        file = f"model-{i + 1:05}-of-{len(shards):05}.safetensors"
        save_file({n: torch.randn(s, dtype=torch.bfloat16, device=device).cpu() for n, s in shard.items()}, f"{where}/{file}", {"format": "pt"})
        index.update({n: file for n in shard})
    json.dump({"metadata": {"total_size": 2 * sum(torch.Size(s).numel() for s in shapes.values())}, "weight_map": index},
              open(f"{where}/model.safetensors.index.json", "w"))


def write_view(source, view, where):
    """Files of a view, 64 MiB at a time: what `mcorefs export` writes."""
    import mcorefs

    with mcorefs.Source(source, "no_optim") as root, root.open(view) as v:
        for file in v.files():
            path = os.path.join(where, file.name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as out:
                for at in range(0, file.size, 64 << 20):
                    out.write(v.read(file.name, at, min(64 << 20, file.size - at)))


def make(where, billions, layouts):
    make_hf(f"{where}/hf", billions)
    for name in layouts:
        write_view(f"{where}/hf", LAYOUTS[name], f"{where}/{name}")
    os.sync()


# ---- loaders ----

def files_of(copy):
    return sorted(glob.glob(f"{copy}/*.safetensors"))


def by_safetensors(copy):
    from safetensors.torch import load_file

    out = {}
    for f in files_of(copy):
        out.update(load_file(f, device="cuda:0"))
    return out


def by_transformers(copy):
    import transformers

    return transformers.AutoModelForCausalLM.from_pretrained(copy, dtype=torch.bfloat16, device_map="cuda:0")


def by_instanttensor(backend, copied=True):
    def run(copy):
        import instanttensor

        out = {}
        with instanttensor.safe_open(files_of(copy), framework="pt", device="cuda:0", backend=instanttensor.Backend[backend], copy=copied) as f:
            for name, tensor in f.tensors():
                out[name] = tensor if copied else None
        return out
    return run


def by_fastsafetensors(copy):
    from fastsafetensors import SafeTensorsFileLoader, SingleGroup

    loader = SafeTensorsFileLoader(SingleGroup(), "cuda:0", nogds=True)
    loader.add_filenames({0: files_of(copy)})
    buffer = loader.copy_files_to_device()
    out = {name: buffer.get_tensor(name) for name in loader.get_keys()}
    return out, buffer, loader


def by_runai(copy):
    from runai_model_streamer import SafetensorsStreamer

    out = {}
    with SafetensorsStreamer() as s:
        s.stream_files(files_of(copy))
        for name, tensor in s.get_tensors():
            out[name] = tensor.to("cuda:0", non_blocking=True)
    return out


def by_mcorefs(**how):
    def run(source):
        import mcorefs

        return mcorefs.load(source, device="cuda:0", progress=None, **how)
    return run


THEIRS = {"instanttensor URING_BUFFERED": by_instanttensor("URING_BUFFERED"), "instanttensor MMAP": by_instanttensor("MMAP"),
          "instanttensor MMAP, no copies": by_instanttensor("MMAP", False), "instanttensor URING": by_instanttensor("URING"),
          "fastsafetensors": by_fastsafetensors, "runai": by_runai, "safetensors": by_safetensors, "transformers": by_transformers}


# ---- timing ----

def drop_cache(where):
    os.sync()
    for root, _, names in os.walk(where):
        for n in names:
            fd = os.open(os.path.join(root, n), os.O_RDONLY)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(fd)


def warm(where):
    for root, _, names in os.walk(where):
        for n in names:
            with open(os.path.join(root, n), "rb") as f:
                while f.read(64 << 20):
                    pass


def timed(run, where, runs, cold):
    """Seconds of the fastest run. cold: pages of the files at `where` are dropped before each."""
    best = None
    for _ in range(runs):
        gc.collect()
        torch.cuda.empty_cache()
        if cold:
            drop_cache(where)
        torch.cuda.synchronize()
        start = time.perf_counter()
        out = run(where)
        torch.cuda.synchronize()
        took = time.perf_counter() - start
        best = took if best is None else min(best, took)
        del out
    return best


def size_of(copy):
    return sum(os.path.getsize(f) for f in files_of(copy))


def tell(name, source, seconds, size, best):
    share = f"{best / seconds:5.2f} of the copy's best" if best else ""
    print(f"{name:34} {source:8} {seconds:7.3f} s {size / seconds / 1e9:6.2f} GB/s {share}", flush=True)


def check(copy, source):
    """The same bits, by a loader that is not ours."""
    import mcorefs

    a, b = by_safetensors(copy), mcorefs.load(source, device="cuda:0")
    assert a.keys() == b.keys(), "other names"
    for name in a:
        assert torch.equal(a[name].view(torch.int16), b[name].view(torch.int16)), name


def resident(word):
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith(word)) / 1e6


def tell_peak(source):
    import mcorefs

    torch.zeros(1, device="cuda")
    before = resident("VmRSS")
    out = mcorefs.load(source, device="cuda:0")
    size = sum(t.numel() * t.element_size() for t in out.values()) / 1e9
    print(f"{size:.2f} GB in the GPU: {resident('VmHWM') - before:.2f} GB more of the host's memory at the peak, {before:.2f} GB before", flush=True)


# ---- on a mount ----

def is_cached(where):
    """Whether pages of the files stayed in memory: a mapping that still exists keeps its own."""
    for f in files_of(where):
        fd = os.open(f, os.O_RDONLY)
        for at in range(0, os.path.getsize(f), 64 << 20):
            try:
                os.preadv(fd, [bytearray(1)], at, os.RWF_NOWAIT)
                return True
            except BlockingIOError:
                pass
        os.close(fd)
    return False


def time_mount(where, view, runs, only):
    """The source's own pages stay in memory: what is dropped are the pages that FUSE keeps of the view."""
    copy = f"{where}/hf"
    size = size_of(copy)
    for name, run in THEIRS.items():
        if only and not any(w in name for w in only.split(",")):
            continue
        native = None
        for source, place in [("copy", copy), ("mount", view)]:
            try:
                seconds = timed(run, place, runs, place == view)
                drop_cache(view)
                if is_cached(view):
                    source += ", not first touch"
            except Exception as e:  # a loader that does not run here is left out, and told
                print(f"{name:34} {source:8} left out: {type(e).__name__}: {str(e)[:150]}", flush=True)
                continue
            tell(name, source, seconds, size, native)
            native = native or seconds


# ---- ranks ----

def rank_loads(rank, ranks, source, how, runs, barrier, queue):
    import mcorefs

    torch.cuda.set_device(rank)
    torch.zeros(1, device="cuda")
    view, file = ("hf", None) if ranks == 1 else (f"vllm/tp{ranks}", f"model-rank-{rank}-part-0.safetensors")
    for _ in range(runs):
        gc.collect()
        torch.cuda.empty_cache()
        barrier.wait()
        start = time.perf_counter()
        out = mcorefs.load(source, view=view, file=file, device=f"cuda:{rank}", **how)
        torch.cuda.synchronize()
        queue.put((time.perf_counter() - start, sum(t.numel() * t.element_size() for t in out.values())))
        del out
        barrier.wait()


def time_ranks(where, runs, layouts, ways):
    """One process a GPU, each with its own slices: bytes of all of them in the time of the slowest."""
    import torch.multiprocessing as mp

    context = mp.get_context("spawn")
    for source, (threads, memory, direct) in itertools.product([*layouts, "hf"], ways):
        one, how = None, dict(threads=int(threads), memory=int(memory) << 20, direct=direct)
        for ranks in range(1, torch.cuda.device_count() + 1):
            barrier, queue = context.Barrier(ranks), context.Queue()
            work = [context.Process(target=rank_loads, args=(r, ranks, f"{where}/{source}", how, runs, barrier, queue)) for r in range(ranks)]
            for w in work:
                w.start()
            rounds = [[queue.get() for _ in range(ranks)] for _ in range(runs)]
            for w in work:
                w.join()
            seconds, size = min((max(t for t, _ in r), sum(n for _, n in r)) for r in rounds)
            speed = size / seconds / 1e9
            one = one or speed
            print(f"{f'mcorefs {threads}:{memory}:{direct}, {ranks} GPUs':34} {source:8} {seconds:7.3f} s {speed:6.2f} GB/s {speed / one:5.2f} of one GPU", flush=True)


def bytes_from_disk():
    return next(int(line.split()[1]) for line in open("/proc/self/io") if line.startswith("read_bytes"))


def rank_reads(rank, ranks, source, direct, barrier, queue):
    import mcorefs

    with mcorefs.Source(source) as root, root.open(f"vllm/tp{ranks}") as view:
        barrier.wait()  # all have opened it
        barrier.wait()  # its pages are dropped
        before, start = bytes_from_disk(), time.perf_counter()
        mcorefs.load(view, framework="np-bits", file=f"model-rank-{rank}-part-0.safetensors", direct=direct)
        queue.put((bytes_from_disk() - before, time.perf_counter() - start))


def tell_disk(where, runs, layouts):
    import torch.multiprocessing as mp

    context = mp.get_context("spawn")
    for source, ranks, direct, _ in itertools.product(["hf", *layouts], [2, 4], ["never", "always"], range(runs)):
        barrier, queue = context.Barrier(ranks + 1), context.Queue()
        work = [context.Process(target=rank_reads, args=(r, ranks, f"{where}/{source}", direct, barrier, queue)) for r in range(ranks)]
        for w in work:
            w.start()
        barrier.wait()
        drop_cache(f"{where}/{source}")
        barrier.wait()
        told = [queue.get() for _ in range(ranks)]
        size = sum(os.path.getsize(os.path.join(root, n)) for root, _, names in os.walk(f"{where}/{source}") for n in names)
        print(f"{source:8} {ranks} ranks, direct={direct:6} {sum(n for n, _ in told) / size:6.3f} of the source's bytes, {max(t for _, t in told):.2f} s", flush=True)


# ---- phases ----

def phases_of(source, view, file, device):
    """Milliseconds of each, as load() does them."""
    from mcorefs import _arrays, _load
    import mcorefs

    marks, framework = [("", time.perf_counter())], _arrays.framework_of("pt", device)

    def mark(name):
        marks.append((name, time.perf_counter()))

    with mcorefs.Source(source) as root:
        mark("source")
        with root.open(view) as v:
            mark("view")
            tensors = _load.chosen(v, file, None)
            mark("tensors")
            arrays = [framework.empty(t.shape, t.dtype) for t in tensors]
            mark("memory")
            with v.start(zip(tensors, arrays)) as work:
                mark("plan")
                work.next()
                mark("first")
                work.wait()
                mark("rest")
        mark("close")
    return {name: 1e3 * (at - before) for (_, before), (name, at) in zip(marks, marks[1:])}


def tell_phases(where, runs, layouts, device):
    for source in [*layouts, "hf"]:
        for view, file in [("hf", None), ("vllm/tp2", "model-rank-0-part-0.safetensors")]:
            rounds = []
            for _ in range(runs):
                gc.collect()
                if device != "cpu":
                    torch.cuda.empty_cache()
                rounds.append(phases_of(f"{where}/{source}", view, file, device))
            best = min(rounds[1:] or rounds, key=lambda r: sum(r.values()))
            for name, r in [("first", rounds[0]), ("best", best)]:
                told = " ".join(f"{phase} {ms:.1f}" for phase, ms in r.items())
                print(f"{source:8} {view:9} {name:5} {sum(r.values()):7.1f} ms: {told}", flush=True)


# ---- next to fio ----

def by_fio(files):
    """GB/s of all files with O_DIRECT, 8 MiB a read, 8 at a time."""
    done = subprocess.run(["fio", "--name=cold", "--rw=read", "--direct=1", "--bs=8M", "--ioengine=io_uring", "--iodepth=8", "--readonly",
                           "--file_service_type=sequential", "--filename=" + ":".join(files), "--output-format=json"],
                          capture_output=True, text=True, check=True)
    return json.loads(done.stdout)["jobs"][0]["read"]["bw_bytes"] / 1e9


def tell_fio(source, runs):
    import statistics

    import mcorefs

    files = [f for f in glob.glob(f"{source}/**/*", recursive=True) if os.path.isfile(f)]
    theirs, ours = [], []
    for _ in range(runs):
        drop_cache(source)
        theirs.append(by_fio(files))
        drop_cache(source)
        start = time.perf_counter()
        tensors = mcorefs.load(source)
        took = time.perf_counter() - start
        ours.append(sum(t.numel() * t.element_size() for t in tensors.values()) / took / 1e9)
        del tensors
        print(f"fio {theirs[-1]:.2f} GB/s, mcorefs {ours[-1]:.2f}", flush=True)
    print(f"medians: {statistics.median(theirs):.2f} and {statistics.median(ours):.2f} GB/s, {statistics.median(ours) / statistics.median(theirs):.2f} of fio's")


def main():
    p = argparse.ArgumentParser()
    p.add_argument("do", choices=["make", "time", "ranks", "disk", "fio", "phases", "mount"])
    p.add_argument("where")
    p.add_argument("more", nargs="?", help="of make, billions of parameters (3.15); of mount, the mounted view")
    p.add_argument("--what", default="theirs,ours")
    p.add_argument("--only", default="")
    p.add_argument("--ours", default="", help="ways of ours, as threads:memory:direct")
    p.add_argument("--layouts", default=",".join(LAYOUTS))
    p.add_argument("--runs", type=int, default=3)
    p.add_argument("--cold", action="store_true")
    p.add_argument("--cpu", action="store_true")
    p.add_argument("--peak", action="store_true", help="only ours, once, and how much memory the process took for it")
    o = p.parse_args()
    if o.do == "make":
        return make(o.where, float(o.more or 3.15), o.layouts.split(","))
    if o.do == "mount":
        return time_mount(o.where, o.more, o.runs, o.only)
    ways = [w.split(":") for w in o.ours.split(",")] if o.ours else [["0", "0", "auto"]]
    if o.do == "ranks":
        return time_ranks(o.where, o.runs, o.layouts.split(","), ways)
    if o.do == "disk":
        return tell_disk(o.where, o.runs, o.layouts.split(","))
    if o.do == "fio":
        return tell_fio(f"{o.where}/{o.layouts.split(',')[0]}", o.runs)
    if o.do == "phases":
        return tell_phases(o.where, o.runs, o.layouts.split(","), "cpu" if o.cpu else "cuda:0")
    copy = f"{o.where}/hf"
    size, best = size_of(copy), None
    if o.peak:
        return tell_peak(f"{o.where}/{o.layouts.split(',')[0]}")
    torch.cuda.init()
    torch.zeros(1, device="cuda")
    if not o.cold:
        warm(o.where)
    if "theirs" in o.what:
        for name, run in THEIRS.items():
            if o.only and not any(w in name for w in o.only.split(",")):
                continue
            try:
                took = timed(run, copy, o.runs, o.cold)
            except Exception as e:  # a loader that does not run here is left out, and told
                print(f"{name:34} left out: {type(e).__name__}: {str(e)[:150]}", flush=True)
                continue
            best = min(best or took, took)
            tell(name, "copy", took, size, None)
    if "ours" in o.what:
        for source in ["hf", *o.layouts.split(",")]:
            if not o.cold:
                check(copy, f"{o.where}/{source}")
            for threads, memory, direct in ways:
                run = by_mcorefs(threads=int(threads), memory=int(memory) << 20, direct=direct)
                tell(f"mcorefs {threads}:{memory}:{direct}", source, timed(run, f"{o.where}/{source}", o.runs, o.cold), size, best)


if __name__ == "__main__":
    main()
