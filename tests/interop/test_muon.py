"""--optimizer muon against transformers' Llama, and Muon as its authors publish it, in torch: losses of several steps, and a run that goes on.

Megatron's Muon takes the momentum as a mean, has coefficients for each step, and updates queries, keys and values as matrices of their own;
gate and up are one matrix (megatron/core/optimizer/emerging_optimizers.py). megatron-core's needs a package that the index has for newer Pythons.
"""
import dataclasses
import os
import pathlib
import re
import subprocess

import pytest
import torch
import transformers

import megatron_files
import program
import test_mup

FIXTURES = pathlib.Path(os.environ["MCOREFS_FIXTURES"])
LR, DECAY, STEPS = 2e-3, 0.1, 5

# kellerjordan.github.io/posts/muon; leloykun.github.io/ponder/muon-opt-coeffs; arXiv:2505.16932
SIMPLE = [(3.4445, -4.7750, 2.0315)]
QUINTIC = [(4.0848, -6.8946, 2.9270), (3.9505, -6.3029, 2.6377), (3.7418, -5.5913, 2.3037), (2.8769, -3.1427, 1.2046), (2.8366, -3.0525, 1.2012)]
DEEPSEEK = SIMPLE * 8 + [(2, -1.5, 0.5)] * 2
CUBIC = [(3.3656576, -3.3420992, 0), (2.5744352, -1.4957376, 0), (2.5368962, -1.4312570, 0), (2.4418906, -1.2764040, 0), (2.2230472, -0.9630650, 0)]
POLAR = [(8.2051, -22.9019, 16.4607), (4.0664, -2.8612, 0.5184), (3.9096, -2.8234, 0.5250)]


@dataclasses.dataclass
class Case:
    flags: list
    coefficients: list
    momentum: float = 0.9
    nesterov: bool = False
    scale: str = "spectral"
    extra: float = 1.0
    split: bool = True
    medium: bool = False
    threshold: float = 0  # of --qk-clip; 0: none


ALPHA = 0.3  # of --qk-clip

CASES = {
    "cubic5": Case(["--muon-coefficient-type", "cubic5"], CUBIC),
    "bf16 products": Case(["--muon-fp32-matmul-prec", "medium"], QUINTIC, medium=True),
    "nesterov": Case(["--muon-nesterov", "--muon-momentum", 0.95, "--muon-scale-mode", "unit_rms_norm", "--muon-extra-scale-factor", 4,
                      "--muon-coefficient-type", "polar_express", "--muon-num-ns-steps", 3], POLAR, 0.95, True, "unit_rms_norm", 4),
    "whole": Case(["--muon-no-split-qkv", "--muon-scale-mode", "shape_scaling", "--muon-extra-scale-factor", 5, "--muon-coefficient-type", "simple",
                   "--muon-num-ns-steps", 7, "--muon-use-nesterov", "--muon-momentum", 0.3], SIMPLE * 7, 0.3, True, "shape_scaling", 5, False),
    "qk clip": Case(["--qk-clip", "--qk-clip-threshold", 0.12, "--qk-clip-alpha", ALPHA, "--muon-coefficient-type", "deepseekv4", "--muon-num-ns-steps", 11],
                    DEEPSEEK + [(2, -1.5, 0.5)], threshold=0.12),
}


def orthogonal(case, update):
    tall = update.shape[0] > update.shape[1]
    x = update.T if tall else update
    x = x / x.norm()
    x = x.bfloat16() if case.medium else x
    for a, b, c in case.coefficients:
        gram = x @ x.T
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c) if c else b * gram, x, beta=a)
    x = x.float()
    return x.T if tall else x


def scale(case, rows, cols):
    by = {"spectral": max(rows, cols), "unit_rms_norm": rows / cols, "shape_scaling": max(1, rows / cols)}[case.scale]
    return by**0.5 * case.extra


class Muon:
    """matrices: lists of parameters, whose rows together are one matrix."""

    def __init__(self, case, matrices):
        self.case, self.matrices = case, matrices
        self.momenta = [torch.zeros(sum(len(p) for p in m), m[0].shape[1]) for m in matrices]

    @torch.no_grad()
    def step(self):
        case = self.case
        for parts, momentum in zip(self.matrices, self.momenta):
            grad = torch.cat([p.grad for p in parts])
            momentum.lerp_(grad, 1 - case.momentum)
            update = grad.lerp(momentum, case.momentum) if case.nesterov else momentum
            update = orthogonal(case, update) * scale(case, *update.shape)
            for p, u in zip(parts, update.split([len(p) for p in parts])):
                p.mul_(1 - LR * DECAY).add_(u, alpha=-LR)


def recording(module, query, key, value, mask, scaling, dropout=0.0, **_):
    """Attention that notes the largest score of each head in module.most."""
    key, value = (x.repeat_interleave(module.num_key_value_groups, 1) for x in (key, value))
    scores = (query @ key.transpose(2, 3) * scaling).masked_fill(torch.ones(query.shape[2], query.shape[2]).triu(1).bool(), -torch.inf)
    module.most = torch.maximum(getattr(module, "most", torch.tensor(0.0)), scores.detach().amax((0, 2, 3)))
    return (scores.softmax(-1) @ value).transpose(1, 2), None


transformers.AttentionInterface.register("recording", recording)


class Clip:
    """megatron/core/transformer/attention.py: clip_qk: a group has the largest score of its heads."""

    def __init__(self, case, model):
        self.case, self.layers, self.clipped = case, [layer.self_attn for layer in model.model.layers], 0

    @torch.no_grad()
    def step(self):
        for a in self.layers:
            most = a.most.view(-1, a.num_key_value_groups).amax(1)
            eta = (self.case.threshold / most).clamp(max=1.0)
            self.clipped += int((eta < 1).sum())
            a.q_proj.weight.mul_(eta.pow(ALPHA).repeat_interleave(len(a.q_proj.weight) // len(eta))[:, None])
            a.k_proj.weight.mul_(eta.pow(1 - ALPHA).repeat_interleave(len(a.k_proj.weight) // len(eta))[:, None])
            del a.most


def optimizers(case, model):
    matrices = []
    for layer in model.model.layers:
        a, m = layer.self_attn, layer.mlp
        qkv = [a.q_proj.weight, a.k_proj.weight, a.v_proj.weight]
        matrices += [[w] for w in qkv] if case.split else [qkv]
        matrices += [[a.o_proj.weight], [m.gate_proj.weight, m.up_proj.weight], [m.down_proj.weight]]
    taken = {id(p) for m in matrices for p in m}
    others = [p for p in model.parameters() if id(p) not in taken]
    adam = torch.optim.AdamW([{"params": [p for p in others if p.dim() == 2], "weight_decay": DECAY},
                              {"params": [p for p in others if p.dim() == 1], "weight_decay": 0}], lr=LR, betas=(0.9, 0.95), eps=1e-6)
    return (Muon(case, matrices), adam, *([Clip(case, model)] if case.threshold else []))


def llama():
    torch.manual_seed(3)
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(
        hidden_size=test_mup.HIDDEN, num_hidden_layers=2, num_attention_heads=test_mup.HEADS, num_key_value_heads=2, intermediate_size=96,
        vocab_size=test_mup.VOCAB, max_position_embeddings=test_mup.SEQ, tie_word_embeddings=False, rms_norm_eps=1e-5)).float().train()
    model.set_attn_implementation("recording")
    for p in model.parameters():
        p.data.copy_(torch.randn(p.shape) * 0.1 + (p.dim() == 1))
    return model


def test_latent_attention_is_clipped(tmp_path):
    """With a rate of 0 a step is the clipping alone: multi_latent_attention.py: _clip_q_proj_weight, _clip_kv_proj_weight."""
    fixture = FIXTURES / "resume/deepseek-torch_dist-pp2-ep2"
    command = [program.BINARY + "-train", "--load", fixture, "--no-load-optim", "--use-checkpoint-args", "--override-opt-param-scheduler", "--backend", "cpu",
               "--mock-data", "--eod-id", 0, "--vocab-size", 1024, "--make-vocab-size-divisible-by", 1, "--seq-length", 32, "--micro-batch-size", 2,
               "--global-batch-size", 2, "--lr", 0, "--min-lr", 0, "--train-iters", 21, "--eval-iters", 0, "--optimizer", "muon", "--save", tmp_path,
               "--save-interval", 1, "--qk-clip", "--qk-clip-threshold", 1e-3, "--qk-clip-alpha", ALPHA]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=program.SECONDS)
    assert done.returncode == 0, done.stderr
    old, new = (megatron_files.read(place).weights for place in (fixture, tmp_path))
    for layer in range(4):
        q, kv = (f"decoder.layers.{layer}.self_attention.linear_{name}_up_proj.weight" for name in ("q", "kv"))
        factors = []
        for name, parts in ((q, [16, 8]), (kv, [16, 16])):
            before, after = (x[name].float().view(4, sum(parts), -1).split(parts, 1) for x in (old, new))
            factors += [a.norm(dim=(1, 2)) / b.norm(dim=(1, 2)) for a, b in zip(after, before)]
            assert all(torch.allclose(a, b * f[:, None, None], atol=1e-6) for a, b, f in zip(after, before, factors[-2:]))
        nope, eta, keys, values = factors
        assert eta.max() < 0.5
        assert torch.allclose(nope, eta**ALPHA, rtol=1e-2) and torch.allclose(keys, eta**(1 - ALPHA), rtol=1e-2) and torch.allclose(values, torch.ones(4))


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_losses(case, tmp_path):
    model = llama()
    model.save_pretrained(tmp_path / "hf")
    command = [program.BINARY + "-train", "--load", tmp_path / "hf", "--backend", "cpu", "--data-path", test_mup.DATA, "--split", "100,0,0",
               "--seq-length", test_mup.SEQ, "--micro-batch-size", 2, "--global-batch-size", test_mup.BATCH, "--lr", LR, "--min-lr", 0,
               "--lr-decay-style", "constant", "--weight-decay", DECAY, "--adam-beta2", 0.95, "--adam-eps", 1e-6, "--clip-grad", 0,
               "--train-iters", STEPS, "--log-interval", 1, "--eval-iters", 0, "--tokenizer-type", "NullTokenizer", "--vocab-size", test_mup.VOCAB,
               "--hidden-dropout", 0, "--attention-dropout", 0, "--save", tmp_path / "saved", "--save-interval", 3, "--optimizer", "muon",
               "--muon-fp32-matmul-prec", "high", *case.flags]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=program.SECONDS)
    assert done.returncode == 0, done.stderr
    steps, losses = optimizers(case, model), []
    for rows in test_mup.batches(tmp_path):
        model.zero_grad()
        logits = model(rows[:, :-1]).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())
        loss.backward()
        for step in steps:
            step.step()
        losses.append(float(loss.detach()))
    ours = [float(x) for x in re.findall(r"lm loss: (\S+)", done.stdout)]
    assert ours == pytest.approx(losses, rel=1e-3 if case.medium else 2e-5)
    assert losses[0] - losses[-1] > 0.05
    assert not case.threshold or 0 < steps[-1].clipped < STEPS * len(model.model.layers) * 2
    # It goes on with the same bits, and names its optimizer.
    command[command.index("--load") + 1] = tmp_path / "saved"
    again = subprocess.run([str(word) for word in [*command, "--use-checkpoint-args", "--ckpt-step", 3]], capture_output=True, text=True, timeout=program.SECONDS)
    assert again.returncode == 0, again.stderr
    assert re.findall(r"lm loss: (\S+)", again.stdout) == re.findall(r"lm loss: (\S+)", done.stdout)[3:]
