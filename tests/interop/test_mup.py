"""--use-mup against transformers' Granite, whose multipliers are muP's, and torch's optimizers with a rate for each class of parameters as
Megatron's get_mup_config_overrides() gives them: losses of several steps. Released megatron-core on the index has no muP yet.
"""
import dataclasses
import json
import math
import pathlib
import pickle
import re
import subprocess
import types

import numpy
import pytest
import torch
import transformers

import program

DATA = pathlib.Path(__file__).parents[1] / "fixtures/data/tales_text_document"
VOCAB, SEQ, BATCH, STEPS, HIDDEN, HEADS = 1024, 64, 4, 5, 64, 4


@dataclasses.dataclass
class Case:
    flags: list             # in addition to --use-mup
    base: int               # hidden size of the model whose rates were found
    embedding: float = 1.0
    output: float | None = None
    attention: float = HEADS / HIDDEN
    sgd: bool = False


CASES = {
    "width": Case(["--mup-base-hidden-size", 16], 16),
    "no-width": Case([], HIDDEN),
    "all": Case(["--mup-base-hidden-size", 32, "--mup-embedding-mult", 3, "--mup-output-mult", 0.7, "--mup-base-head-dim", 4,
                 "--mup-attn-scale-power", 0.75], 32, 3.0, 0.7, 2 / 16**0.75),
    "sgd": Case(["--mup-base-hidden-size", 16, "--optimizer", "sgd", "--sgd-momentum", 0.8], 16, sgd=True),
}


def granite(case):
    output = HIDDEN and (case.base / HIDDEN if case.output is None else case.output)
    torch.manual_seed(3)
    model = transformers.GraniteForCausalLM(transformers.GraniteConfig(
        hidden_size=HIDDEN, num_hidden_layers=2, num_attention_heads=HEADS, num_key_value_heads=2, intermediate_size=96, vocab_size=VOCAB,
        max_position_embeddings=SEQ, tie_word_embeddings=False, embedding_multiplier=case.embedding, logits_scaling=1 / output,
        attention_multiplier=case.attention, residual_multiplier=1.0, rms_norm_eps=1e-5, attention_dropout=0.0)).float().train()
    for p in model.parameters():
        p.data.copy_(torch.randn(p.shape) * 0.1 + (p.dim() == 1))
    return model


def optimizer(case, model):
    """Vectors are norms, the embedding and the head."""
    width, lr = HIDDEN / case.base, 1e-2
    vector = [p for n, p in model.named_parameters() if p.dim() == 1 or "embed_tokens" in n or "lm_head" in n]
    matrix = [p for p in model.parameters() if not any(p is v for v in vector)]
    if case.sgd:
        return torch.optim.SGD([{"params": vector, "lr": lr * width}, {"params": matrix, "lr": lr}], momentum=0.8)
    return torch.optim.AdamW([{"params": vector, "lr": lr, "eps": 1e-3}, {"params": matrix, "lr": lr / width, "eps": 1e-3 / width}],
                             betas=(0.9, 0.95), weight_decay=0)


def batches(where):
    for step in range(1, STEPS + 1):
        done = program.run("sample", DATA, "--split", "100,0,0", "--seq-length", SEQ, "--global-batch-size", BATCH, "--train-iters", STEPS, "--step", step,
                           "--npy", where / "step.npy")
        assert done.returncode == 0, done.stderr
        yield torch.from_numpy(numpy.load(where / "step.npy").astype(numpy.int64))


class Lenient(pickle.Unpickler):
    """Without the enums that the installed megatron-core does not know."""

    def find_class(self, module, name):
        try:
            return super().find_class(module, name)
        except AttributeError:
            return lambda *_: None


def groups(directory):
    """What a save has of them, in Megatron's order: rows of numbers."""
    lenient = types.ModuleType("lenient")
    lenient.Unpickler, lenient.load = Lenient, pickle.load
    common = torch.load(directory / "common.pt", weights_only=False, pickle_module=lenient)
    return [[g["wd_mult"], g["max_lr"], g["min_lr"], g["lr"], g.get("eps", 0), g["default_config"]]
            for g in common["optimizer"]["param_groups"]]


def megatrons_groups(case):
    """optimizer/__init__.py: _get_param_groups: sorted by what they override, those that override nothing first."""
    width, lr, eps = HIDDEN / case.base, 1e-2, 0 if case.sgd else 1e-3
    plain, none = [1.0, lr, 0.0, lr, eps, True], [0.0, lr, 0.0, lr, eps, True]
    if case.sgd:
        return [plain, [1.0, lr * width, 0.0, lr * width, 0, False], [0.0, lr * width, 0.0, lr * width, 0, False]]
    return [plain, none] if width == 1 else [plain, [1.0, lr / width, 0.0, lr / width, eps / width, False], none]


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_losses(case, tmp_path):
    model = granite(case)
    model.save_pretrained(tmp_path / "hf")
    config = json.loads((tmp_path / "hf/config.json").read_text())
    for name in ("embedding_multiplier", "logits_scaling", "attention_multiplier", "residual_multiplier"):
        del config[name]
    config |= {"architectures": ["LlamaForCausalLM"], "model_type": "llama"}
    (tmp_path / "hf/config.json").write_text(json.dumps(config))
    command = [program.BINARY + "-train", "--load", tmp_path / "hf", "--backend", "cpu", "--data-path", DATA, "--split", "100,0,0", "--seq-length", SEQ,
               "--micro-batch-size", 2, "--global-batch-size", BATCH, "--lr", 1e-2, "--min-lr", 0, "--lr-decay-style", "constant", "--weight-decay", 0,
               "--adam-beta2", 0.95, "--adam-eps", 1e-3, "--clip-grad", 0, "--train-iters", STEPS, "--log-interval", 1, "--eval-iters", 0,
               "--tokenizer-type", "NullTokenizer", "--vocab-size", VOCAB, "--hidden-dropout", 0, "--attention-dropout", 0, "--save", tmp_path / "saved",
               "--save-interval", 3, "--use-mup", *case.flags]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=program.SECONDS)
    assert done.returncode == 0, done.stderr
    step, losses = optimizer(case, model), []
    for rows in batches(tmp_path):
        step.zero_grad()
        logits = model(rows[:, :-1]).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())
        loss.backward()
        step.step()
        losses.append(float(loss.detach()))
    assert [float(x) for x in re.findall(r"lm loss: (\S+)", done.stdout)] == pytest.approx(losses, rel=2e-5)
    assert abs(losses[-1] - losses[0]) > 1e-2 and not math.isnan(losses[-1])
    numpy.testing.assert_allclose(groups(tmp_path / "saved/iter_0000003"), megatrons_groups(case), rtol=1e-12)
    if case is not CASES["all"]:
        return
    # A model of the hub says nothing of it; and the run goes on as itself alone.
    shown = program.run("inspect", tmp_path / "saved")
    assert "use_mup" in shown.stdout + shown.stderr
    command[command.index("--load") + 1] = tmp_path / "saved"
    again = subprocess.run([str(word) for word in [*command, "--use-checkpoint-args", "--ckpt-step", 3]], capture_output=True, text=True, timeout=program.SECONDS)
    assert again.returncode == 0, again.stderr
    assert re.findall(r"lm loss: (\S+)", again.stdout) == re.findall(r"lm loss: (\S+)", done.stdout)[3:]
    command.remove("--use-mup")
    other = subprocess.run([str(word) for word in [*command, "--use-checkpoint-args", "--ckpt-step", 3]], capture_output=True, text=True, timeout=program.SECONDS)
    assert other.returncode and "expected --use-mup" in other.stderr, other.stderr
