"""A plain PyTorch training loop of a Llama-shaped model, as a peer of mcorefs-train: torch.compile, SDPA, fused AdamW.

    torch_train.py --shape llama-1b [--device cuda|cpu] [--dtype bfloat16|float32] [--micro 1] [--accumulate 4] [--steps 12]

bf16 runs keep fp32 main parameters, fp32 gradients and fp32 moments, as Megatron does. It prints one line of JSON: tokens/s (median of
the steps behind the first quarter), TFLOP/s by Megatron's formula, peak memory, and the TFLOP/s of a large GEMM measured beside it.
"""
import argparse
import functools
import json
import statistics
import time

import torch
import torch.nn.functional as F

SHAPES = {  # layers, hidden, ffn, heads, kv heads, head size, vocabulary, tied, q/k norm, sequence
    "llama-8b-8l": (8, 4096, 14336, 32, 8, 128, 128256, False, False, 4096),
    "llama-1b": (16, 2048, 8192, 32, 8, 64, 128256, True, False, 4096),
    "qwen3-0.6b": (28, 1024, 3072, 16, 8, 128, 151936, True, True, 4096),
    "cpu": (6, 384, 1024, 6, 2, 64, 8192, True, False, 512),
    "tiny": (4, 64, 176, 4, 2, 16, 1024, False, False, 128),
}


class Layer(torch.nn.Module):
    def __init__(self, hidden, ffn, heads, kv, size, qk_norm):
        super().__init__()
        self.heads, self.kv, self.size = heads, kv, size
        self.norm1, self.norm2 = torch.nn.RMSNorm(hidden, eps=1e-5), torch.nn.RMSNorm(hidden, eps=1e-5)
        self.q_norm = torch.nn.RMSNorm(size, eps=1e-6) if qk_norm else torch.nn.Identity()
        self.k_norm = torch.nn.RMSNorm(size, eps=1e-6) if qk_norm else torch.nn.Identity()
        self.qkv = torch.nn.Linear(hidden, (heads + 2 * kv) * size, bias=False)
        self.proj = torch.nn.Linear(heads * size, hidden, bias=False)
        self.fc1 = torch.nn.Linear(hidden, 2 * ffn, bias=False)
        self.fc2 = torch.nn.Linear(ffn, hidden, bias=False)

    @staticmethod
    def turn(x, cos, sin):
        a, b = x.float().chunk(2, -1)
        return torch.cat((a * cos - b * sin, b * cos + a * sin), -1).to(x.dtype)

    def forward(self, x, cos, sin):
        batch, seq, _ = x.shape
        q, k, v = self.qkv(self.norm1(x)).split([self.heads * self.size, self.kv * self.size, self.kv * self.size], -1)
        q = self.turn(self.q_norm(q.view(batch, seq, self.heads, self.size)), cos, sin).transpose(1, 2)
        k = self.turn(self.k_norm(k.view(batch, seq, self.kv, self.size)), cos, sin).transpose(1, 2)
        v = v.view(batch, seq, self.kv, self.size).transpose(1, 2)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=self.heads != self.kv)
        x = x + self.proj(y.transpose(1, 2).reshape(batch, seq, -1))
        gate, up = self.fc1(self.norm2(x)).chunk(2, -1)
        return x + self.fc2(F.silu(gate) * up)


class Model(torch.nn.Module):
    def __init__(self, layers, hidden, ffn, heads, kv, size, vocab, tied, qk_norm, seq):
        super().__init__()
        self.embedding = torch.nn.Embedding(vocab, hidden)
        self.layers = torch.nn.ModuleList(Layer(hidden, ffn, heads, kv, size, qk_norm) for _ in range(layers))
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
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1).float(), labels.flatten())


def flops_per_token(layers, hidden, ffn, heads, kv, size, vocab, tied, qk_norm, seq):
    """Megatron's: 3 passes, 2 operations; attention counted causal."""
    attention = hidden * size * (heads + 2 * kv) + heads * size * hidden + heads * size * seq
    return 6 * (layers * (attention + 3 * hidden * ffn) + hidden * vocab)


def gemm_peak(device, dtype):
    n = 8192 if device == "cuda" else 1024
    a, b = torch.randn(n, n, device=device, dtype=dtype), torch.randn(n, n, device=device, dtype=dtype)
    best = 1e9
    for _ in range(20):
        if device == "cuda":
            torch.cuda.synchronize()
        start = time.perf_counter()
        a @ b
        if device == "cuda":
            torch.cuda.synchronize()
        best = min(best, time.perf_counter() - start)
    return 2 * n**3 / best / 1e12


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
        torch._foreach_copy_(self.params, self.main)
        torch._foreach_zero_([m.grad for m in self.main])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--shape", choices=SHAPES, required=True)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--micro", type=int, default=1)
    parser.add_argument("--accumulate", type=int, default=4)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--no-compile", action="store_true")
    options = parser.parse_args()
    shape, dtype = SHAPES[options.shape], getattr(torch, options.dtype)
    seq, vocab = shape[-1], shape[6]
    torch.manual_seed(1234)
    model = Model(*shape).to(options.device).to(dtype)
    model.cos, model.sin = model.cos.float(), model.sin.float()
    own = MainParameters(model) if dtype != torch.float32 else None
    parameters = own.main if own else list(model.parameters())
    optimizer = torch.optim.AdamW(parameters, lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    step_model = model if options.no_compile else torch.compile(model)
    peak = gemm_peak(options.device, dtype)
    times = []
    for _ in range(options.steps):
        data = torch.randint(vocab, (options.accumulate, options.micro, seq + 1))
        start = time.perf_counter()
        total = torch.zeros((), device=options.device)
        for tokens in data:
            tokens = tokens.to(options.device)
            loss = step_model(tokens[:, :-1], tokens[:, 1:]) / options.accumulate
            loss.backward()
            total += loss.detach()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        own.after() if own else optimizer.zero_grad(set_to_none=False)
        total.item()
        if options.device == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    seconds = statistics.median(times[len(times) // 4 + 1:])
    tokens = options.accumulate * options.micro * seq
    print(json.dumps({"peer": f"torch {torch.__version__}", "shape": options.shape, "dtype": options.dtype,
                      "tokens_per_s": tokens / seconds, "tflops": tokens / seconds * flops_per_token(*shape) / 1e12, "gemm_tflops": peak,
                      "peak_gib": torch.cuda.max_memory_allocated() / 2**30 if options.device == "cuda" else None,
                      "loss": total.item()}))


if __name__ == "__main__":
    main()
