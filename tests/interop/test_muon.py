"""--optimizer muon against transformers' Llama, and Muon as its authors publish it, in torch: losses of several steps, and a run that goes on.

Megatron's Muon takes the momentum as a mean, has coefficients for each step, and updates queries, keys and values as matrices of their own;
gate and up are one matrix (megatron/core/optimizer/emerging_optimizers.py). megatron-core's needs a package that the index has for newer Pythons.
"""
import dataclasses
import re
import subprocess

import pytest
import torch
import transformers

import program
import test_mup

LR, DECAY, STEPS = 2e-3, 0.1, 5

# kellerjordan.github.io/posts/muon; leloykun.github.io/ponder/muon-opt-coeffs; arXiv:2505.16932
SIMPLE = [(3.4445, -4.7750, 2.0315)]
QUINTIC = [(4.0848, -6.8946, 2.9270), (3.9505, -6.3029, 2.6377), (3.7418, -5.5913, 2.3037), (2.8769, -3.1427, 1.2046), (2.8366, -3.0525, 1.2012)]
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


CASES = {
    "default": Case([], QUINTIC),
    "bf16 products": Case(["--muon-fp32-matmul-prec", "medium"], QUINTIC, medium=True),
    "nesterov": Case(["--muon-nesterov", "--muon-momentum", 0.95, "--muon-scale-mode", "unit_rms_norm", "--muon-extra-scale-factor", 4,
                      "--muon-coefficient-type", "polar_express", "--muon-num-ns-steps", 3], POLAR, 0.95, True, "unit_rms_norm", 4),
    "whole": Case(["--muon-no-split-qkv", "--muon-scale-mode", "shape_scaling", "--muon-extra-scale-factor", 5, "--muon-coefficient-type", "simple",
                   "--muon-num-ns-steps", 7, "--muon-use-nesterov", "--muon-momentum", 0.3], SIMPLE * 7, 0.3, True, "shape_scaling", 5, False),
}


def orthogonal(case, update):
    tall = update.shape[0] > update.shape[1]
    x = update.T if tall else update
    x = x / x.norm()
    x = x.bfloat16() if case.medium else x
    for a, b, c in case.coefficients:
        gram = x @ x.T
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
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
    return Muon(case, matrices), adam


def llama():
    torch.manual_seed(3)
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(
        hidden_size=test_mup.HIDDEN, num_hidden_layers=2, num_attention_heads=test_mup.HEADS, num_key_value_heads=2, intermediate_size=96,
        vocab_size=test_mup.VOCAB, max_position_embeddings=test_mup.SEQ, tie_word_embeddings=False, rms_norm_eps=1e-5)).float().train()
    for p in model.parameters():
        p.data.copy_(torch.randn(p.shape) * 0.1 + (p.dim() == 1))
    return model


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
    # It goes on with the same bits, and names its optimizer.
    command[command.index("--load") + 1] = tmp_path / "saved"
    again = subprocess.run([str(word) for word in [*command, "--use-checkpoint-args", "--ckpt-step", 3]], capture_output=True, text=True, timeout=program.SECONDS)
    assert again.returncode == 0, again.stderr
    assert re.findall(r"lm loss: (\S+)", again.stdout) == re.findall(r"lm loss: (\S+)", done.stdout)[3:]
