"""A plain PyTorch training loop of a Llama-shaped model, as a peer of mcorefs-train: torch.compile, SDPA, fused AdamW.

    torch_train.py --shape llama-1b [--device cuda|cpu] [--dtype bfloat16|float32] [--micro 1] [--accumulate 4] [--steps 8]
                   [--attention cudnn|flash] [--compile model|layer|no] [--compile-only] [--parallel fsdp|tp|dp] [--fp8]
    torch_train.py --product [--device cuda|cpu]

bf16 runs keep fp32 main parameters, fp32 gradients and fp32 moments, as Megatron does. It prints the time of each step, and one line of
JSON: tokens/s (median of the steps behind the first quarter) and peak memory. --compile-only is one forward and backward, which fill
the cache of compiled kernels. --product prints two speeds of a large product alone (see there).

With --parallel it is one of the processes that torchrun's variables speak of: fsdp divides parameters, gradients and state (FSDP2; bf16
weights are gathered, gradients are added up in fp32), dp does, too, but gathers weights once a step and adds up gradients behind the last
microbatch alone, and tp divides each layer and the loss (tensor and sequence parallelism by DTensor).
Layers are compiled one by one then. Tokens are those of all processes; rank 0 prints.

--fp8: products of layers are torchao's, of 8-bit floats with a scale for each tensor; the head stays as it is.

Experts are one product of groups (grouped_mm) for rows that are sorted by expert. Logits of the router are random, as with
--moe-router-force-load-balancing.
"""
import argparse
import contextlib
import functools
import json
import os
import statistics
import time

import torch
import torch.nn.functional as F
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import loss_parallel
from torch.nn.attention import SDPBackend, sdpa_kernel

SHAPES = {  # layers, hidden, ffn, heads, kv heads, head size, vocabulary, tied, q/k norm, sequence
    "llama-8b-8l": (8, 4096, 14336, 32, 8, 128, 128256, False, False, 4096),
    "llama-8b-16l": (16, 4096, 14336, 32, 8, 128, 128256, False, False, 4096),
    "llama-8b": (32, 4096, 14336, 32, 8, 128, 128256, False, False, 4096),
    "llama-32k": (16, 2048, 8192, 32, 8, 64, 128256, True, False, 32768),
    "llama-1b": (16, 2048, 8192, 32, 8, 64, 128256, True, False, 4096),
    "mixtral-2l": (2, 4096, 14336, 32, 8, 128, 32000, False, False, 4096),
    "qwen3-0.6b": (28, 1024, 3072, 16, 8, 128, 151936, True, True, 4096),
    "cpu": (6, 384, 1024, 6, 2, 64, 8192, True, False, 512),
    "tiny": (4, 64, 176, 4, 2, 16, 1024, False, False, 128),
    "tiny-moe": (2, 64, 176, 4, 2, 16, 1024, False, False, 128),
}
grouped_mm = getattr(F, "grouped_mm", None) or torch._grouped_mm
EXPERTS = {"mixtral-2l": (8, 2), "tiny-moe": (4, 2)}  # how many, and how many a token goes to


class MLP(torch.nn.Module):
    def __init__(self, hidden, ffn):
        super().__init__()
        self.fc1 = torch.nn.Linear(hidden, 2 * ffn, bias=False)
        self.fc2 = torch.nn.Linear(ffn, hidden, bias=False)

    def forward(self, x):
        gate, up = self.fc1(x).chunk(2, -1)
        return self.fc2(F.silu(gate) * up)


class Experts(torch.nn.Module):
    def __init__(self, hidden, ffn, count, each):
        super().__init__()
        self.count, self.each = count, each
        self.router = torch.nn.Linear(hidden, count, bias=False)
        self.fc1 = torch.nn.Parameter(torch.empty(count, hidden, 2 * ffn))
        self.fc2 = torch.nn.Parameter(torch.empty(count, ffn, hidden))

    def forward(self, x):
        rows = x.flatten(0, 1)
        logits = self.router(rows).float()
        logits = logits + (torch.randn_like(logits) - logits).detach()
        scores, experts = logits.topk(self.each, -1)
        order = experts.flatten().argsort(stable=True)
        ends = F.one_hot(experts.flatten(), self.count).sum(0).cumsum(0, dtype=torch.int32)
        gate, up = grouped_mm(rows[order // self.each], self.fc1, offs=ends).chunk(2, -1)
        scale = scores.softmax(-1).flatten()[order, None].to(x.dtype)
        back = grouped_mm(F.silu(gate) * up * scale, self.fc2, offs=ends)[order.argsort()]
        return back.view(-1, self.each, x.shape[-1]).sum(1).view_as(x)


class Layer(torch.nn.Module):
    def __init__(self, hidden, ffn, heads, kv, size, qk_norm, experts):
        super().__init__()
        self.heads, self.kv, self.size = heads, kv, size
        self.norm1, self.norm2 = torch.nn.RMSNorm(hidden, eps=1e-5), torch.nn.RMSNorm(hidden, eps=1e-5)
        self.q_norm = torch.nn.RMSNorm(size, eps=1e-6) if qk_norm else torch.nn.Identity()
        self.k_norm = torch.nn.RMSNorm(size, eps=1e-6) if qk_norm else torch.nn.Identity()
        self.qkv = torch.nn.Linear(hidden, (heads + 2 * kv) * size, bias=False)
        self.proj = torch.nn.Linear(heads * size, hidden, bias=False)
        self.mlp = Experts(hidden, ffn, *experts) if experts else MLP(hidden, ffn)

    @staticmethod
    def turn(x, cos, sin):
        a, b = x.float().chunk(2, -1)
        return torch.cat((a * cos - b * sin, b * cos + a * sin), -1).to(x.dtype)

    def forward(self, x, cos, sin):
        q, k, v = self.qkv(self.norm1(x)).split([self.heads * self.size, self.kv * self.size, self.kv * self.size], -1)
        batch, seq, _ = q.shape
        q = self.turn(self.q_norm(q.view(batch, seq, self.heads, self.size)), cos, sin).transpose(1, 2)
        k = self.turn(self.k_norm(k.view(batch, seq, self.kv, self.size)), cos, sin).transpose(1, 2)
        v = v.view(batch, seq, self.kv, self.size).transpose(1, 2)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=self.heads != self.kv)
        x = x + self.proj(y.transpose(1, 2).reshape(batch, seq, -1))
        return x + self.mlp(self.norm2(x))


class Model(torch.nn.Module):
    def __init__(self, layers, hidden, ffn, heads, kv, size, vocab, tied, qk_norm, seq, experts):
        super().__init__()
        self.seq, self.vocab = seq, vocab
        self.embedding = torch.nn.Embedding(vocab, hidden)
        self.layers = torch.nn.ModuleList(Layer(hidden, ffn, heads, kv, size, qk_norm, experts) for _ in range(layers))
        self.norm = torch.nn.RMSNorm(hidden, eps=1e-5)
        self.head = torch.nn.Linear(hidden, vocab, bias=False)
        if tied:
            self.head.weight = self.embedding.weight
        angles = torch.arange(seq)[:, None] * 500000.0 ** (-torch.arange(0, size, 2) / size)[None]
        self.register_buffer("cos", angles.cos()[:, None], persistent=False)
        self.register_buffer("sin", angles.sin()[:, None], persistent=False)
        for p in self.parameters():
            if p.dim() > 1:
                torch.nn.init.normal_(p, std=0.02)

    def forward(self, tokens, labels):
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x, self.cos, self.sin)
        return self.loss(self.head(self.norm(x)), labels)

    @staticmethod
    def loss(logits, labels):
        return F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten())


def say(options, text):
    if not options.parallel or os.environ["RANK"] == "0":
        print(text, flush=True)


def wait(device):
    if device == "cuda":
        torch.cuda.synchronize()


def product(device):
    """TFLOP/s of a large product of random matrices: ten in a row from rest, and as many as fit into a second, which lower the clock."""
    n, dtype = (8192, torch.bfloat16) if device == "cuda" else (512, torch.float32)
    a, b, out = torch.randn(n, n, device=device, dtype=dtype), torch.randn(n, n, device=device, dtype=dtype), None
    speeds = []
    for warm, least in ((3, 0), (0, 1)):
        for _ in range(warm):
            out = torch.matmul(a, b, out=out)
        wait(device)
        start, count = time.perf_counter(), 0
        while count == 0 or time.perf_counter() - start < least:
            for _ in range(10):
                out = torch.matmul(a, b, out=out)
            wait(device)
            count += 10
        speeds.append(count * 2 * n**3 / (time.perf_counter() - start) / 1e12)
    return speeds


def whole(x):
    return x.full_tensor() if isinstance(x, DTensor) else x


def part(x):
    """What this process has of it."""
    return x.to_local() if isinstance(x, DTensor) else x


class MainParameters:
    """fp32 copies of bf16 parameters, with fp32 gradients that microbatches add to."""

    def __init__(self, model):
        self.params = list(model.parameters())
        self.main = [p.detach().float() for p in self.params]
        for main, p in zip(self.main, self.params):
            main.grad = torch.zeros_like(main)
            p.register_post_accumulate_grad_hook(functools.partial(self.add, main))

    @staticmethod
    def add(main, parameter):
        main.grad.add_(parameter.grad)
        parameter.grad = None

    @torch.no_grad()
    def after(self):
        torch._foreach_copy_([part(p) for p in self.params], [part(m) for m in self.main])
        torch._foreach_zero_([part(m.grad) for m in self.main])


def to_fp8(model):
    from torchao.float8 import Float8LinearConfig, convert_to_float8_training

    convert_to_float8_training(model, config=Float8LinearConfig.from_recipe_name("tensorwise"), module_filter_fn=lambda module, name: name != "head")


def divide_parameters(model, mesh, each):
    """each: weights are gathered in each pass anew."""
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for layer in model.layers:
        fully_shard(layer, mesh=mesh, mp_policy=policy, reshard_after_forward=each)
    fully_shard(model, mesh=mesh, mp_policy=policy, reshard_after_forward=each)


def divide_layers(model, mesh):
    """The columns of linear_qkv and linear_fc1 are not sorted by part: of drawn weights it makes no difference."""
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, SequenceParallel, parallelize_module
    norm = SequenceParallel(use_local_output=True)
    columns, rows = ColwiseParallel(input_layouts=Shard(1)), RowwiseParallel(output_layouts=Shard(1))
    parallelize_module(model, mesh, {
        "embedding": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
        "norm": norm,
        "head": ColwiseParallel(input_layouts=Shard(1), output_layouts=Shard(-1), use_local_output=False),
    })
    for layer in model.layers:
        layer.heads, layer.kv = layer.heads // mesh.size(), layer.kv // mesh.size()
        parallelize_module(layer, mesh, {"norm1": norm, "qkv": columns, "proj": rows,
                                         "norm2": norm, "mlp.fc1": columns, "mlp.fc2": rows})


def begin_processes(options):
    """The mesh of all of them."""
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if options.device == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    torch.distributed.init_process_group("nccl" if options.device == "cuda" else "gloo", rank=rank, world_size=world)
    return torch.distributed.init_device_mesh(options.device, (world,))


def train(options, model, step_model, own):
    """The seconds of each step, and the last loss."""
    seq, vocab, parameters = model.seq, model.vocab, own.main if own else list(model.parameters())
    optimizer = torch.optim.AdamW(parameters, lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    times = []
    for i in range(options.steps):
        start = time.perf_counter()
        data = torch.randint(vocab, (options.accumulate, options.micro, seq + 1), device=options.device)
        total = torch.zeros((), device=options.device)
        for number, tokens in enumerate(data):
            if options.parallel == "dp":
                last = number == options.accumulate - 1
                model.set_requires_gradient_sync(last)
                model.set_reshard_after_backward(last)
            loss = step_model(tokens[:, :-1], tokens[:, 1:]) / options.accumulate
            loss.backward()
            total += whole(loss.detach())
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        own.after() if own else optimizer.zero_grad(set_to_none=False)
        total.item()
        wait(options.device)
        times.append(time.perf_counter() - start)
        say(options, f"step {i + 1}: {times[-1] * 1e3:.2f} ms, loss {total.item():.4f}")
    return times, total.item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--shape", choices=SHAPES)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--micro", type=int, default=1)
    parser.add_argument("--accumulate", type=int, default=4)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--attention", choices=("cudnn", "flash"), default="cudnn")
    parser.add_argument("--compile", choices=("model", "layer", "no"), default="model")
    parser.add_argument("--compile-only", action="store_true")
    parser.add_argument("--parallel", choices=("fsdp", "tp", "dp"))
    parser.add_argument("--fp8", action="store_true")
    parser.add_argument("--product", action="store_true")
    options = parser.parse_args()
    if options.product:
        print(*product(options.device))
        return
    dtype, backends = getattr(torch, options.dtype), [SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION]
    if options.attention == "flash":
        backends.reverse()
    mesh = begin_processes(options) if options.parallel else None
    torch.manual_seed(1234)
    with torch.device(options.device):
        model = Model(*SHAPES[options.shape], EXPERTS.get(options.shape))
    fsdp = options.parallel in ("fsdp", "dp")
    own = dtype != torch.float32 and not fsdp  # FSDP keeps fp32 parameters itself
    if own:
        model.to(dtype)
    model.cos, model.sin = model.cos.float(), model.sin.float()
    if options.fp8:
        to_fp8(model)
    step_model = torch.compile(model) if options.compile == "model" and not mesh else model
    if options.compile == "layer" or options.compile == "model" and mesh:
        if options.parallel != "tp":  # loss_parallel() cannot be compiled
            model.loss = torch.compile(model.loss)
        for layer in model.layers:
            layer.compile()
    if mesh:
        divide_parameters(model, mesh, options.parallel == "fsdp") if fsdp else divide_layers(model, mesh)
    parts = mesh.size() if fsdp else 1
    if parts > 1:
        torch.manual_seed(mesh.get_rank())
    with sdpa_kernel([*backends, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH], set_priority=True), \
            loss_parallel() if options.parallel == "tp" else contextlib.nullcontext():
        if options.compile_only:
            tokens = torch.randint(model.vocab, (options.micro, model.seq + 1), device=options.device)
            step_model(tokens[:, :-1], tokens[:, 1:]).backward()
            wait(options.device)
            return
        times, loss = train(options, model, step_model, MainParameters(model) if own else None)
    tokens = options.accumulate * options.micro * model.seq * parts
    say(options, json.dumps({
        "peer": f"torch {torch.__version__}", "shape": options.shape, "dtype": options.dtype, "attention": options.attention, "fp8": options.fp8,
        "parallel": options.parallel, "tokens_per_s": tokens / statistics.median(times[len(times) // 4 + 1:]), "loss": loss,
        "peak_gib": torch.cuda.max_memory_allocated() / 2**30 if options.device == "cuda" else None}))
    if mesh:
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
