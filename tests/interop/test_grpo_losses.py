"""Losses of policies: verl's and TRL's own functions, taken out of their files, give our losses, gradients and advantages, in fp32.

build/obj/tests/bench/policy_losses computes ours of numbers that it reads.
"""
import ast
import collections
import dataclasses
import math
import os
import pathlib
import subprocess
import sys
import types
import typing

import numpy
import pytest
import torch

import venvs

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = pathlib.Path(os.environ.get("MCOREFS_POLICY_LOSSES", ROOT / "build/obj/tests/bench/policy_losses"))
PROMPTS, GROUP, ROOM = 3, 4, 7
COUNT = PROMPTS * GROUP
CLIP, CISPO = 0, 1
LOW, HIGH, DUAL, MOST_WEIGHT = 0.2, 0.28, 3.0, 1.1
MOST = 1e-6


@dataclasses.dataclass
class Case:
    kind: int = CLIP
    kl: int = 2  # k3
    sequence: bool = False
    corrects: bool = False
    dual: float = math.inf
    kl_weight: float = 0.0
    entropy_weight: float = 0.0
    least: float = 1 - LOW
    most: float = 1 + HIGH
    norm: str = "std"
    aggregation: str = "token-mean"


def rows(seed):
    """lp, H, old, ref, roll [COUNT, ROOM]; tokens and rewards [COUNT]. Ratios are no closer than 1e-3 to where they are clipped."""
    random = torch.Generator().manual_seed(seed)

    def normal(scale):
        return scale * torch.randn(COUNT, ROOM, generator=random)

    old = -normal(1).abs() - 0.1
    delta = normal(0.4)
    for edge in (1 - LOW, 1 + HIGH, DUAL):
        delta = torch.where((delta - math.log(edge)).abs() < 1e-3, delta + 2e-3, delta)
    lengths = torch.randint(1, ROOM + 1, (COUNT,), generator=random)
    reward = torch.randint(0, 3, (COUNT,), generator=random).float() / 2
    mask = (torch.arange(ROOM) < lengths[:, None]).float()
    return types.SimpleNamespace(lp=(old + delta).requires_grad_(), entropy=normal(1).abs(), old=old, ref=old + normal(0.3), roll=old + normal(0.1),
                                 lengths=lengths, reward=reward, mask=mask)


def ours(case, data):
    """The loss, the advantages and the gradient."""
    text = [case.kind, case.kl, int(case.sequence), int(case.corrects), 0, case.least, case.most, case.dual, case.kl_weight, case.entropy_weight, 0,
            MOST_WEIGHT, case.norm, case.aggregation, PROMPTS, GROUP, ROOM]
    for pair in zip(data.reward.tolist(), data.lengths.tolist()):
        text += pair
    text += torch.stack([data.lp.detach(), data.entropy, data.old, data.ref, data.roll], -1).flatten().tolist()
    done = subprocess.run([PROGRAM], input=" ".join(map(str, text)), capture_output=True, text=True, check=True)
    numbers = torch.tensor([float(line) for line in done.stdout.split()], dtype=torch.float64)
    return numbers[0], numbers[1:1 + COUNT], numbers[1 + COUNT:].view(COUNT, ROOM)


@pytest.fixture(scope="module")
def peers():
    if not PROGRAM.exists():
        pytest.fail(f"{PROGRAM} is not there: make interop builds it")
    try:
        return venvs.folder("rl", "verl and TRL", sys.executable)
    except venvs.Missing as why:
        pytest.skip(str(why))


def functions(path, names, within):
    """Functions of a file and of its classes, without what decorates them, in the namespace `within`."""
    found = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef) and node.name in names]
    assert len(found) == len(names), [node.name for node in found]
    for node in found:
        node.decorator_list = []
    exec(compile(ast.Module(found, []), str(path), "exec"), within)
    return types.SimpleNamespace(**{name: within[name] for name in names})


class ActorConfig(types.SimpleNamespace):
    def get(self, name, default):
        return getattr(self, name, default)


VERL_LOSSES = ["compute_policy_loss_vanilla", "compute_policy_loss_gspo", "compute_policy_loss_cispo"]


@pytest.fixture(scope="module")
def verl(peers):
    within = {"torch": torch, "np": numpy, "defaultdict": collections.defaultdict, "ActorConfig": ActorConfig, "AlgoConfig": type("AlgoConfig", (), {}),
              "DictConfig": dict, "Optional": typing.Optional, "Any": typing.Any}
    sums = functions(peers / "verl/utils/torch_functional.py", ["masked_sum", "masked_mean"], dict(within))
    within["verl_F"] = sums
    return functions(peers / "verl/trainer/ppo/core_algos.py",
                     VERL_LOSSES + ["agg_loss", "kl_penalty", "kl_penalty_forward", "compute_grpo_outcome_advantage", "compute_rloo_outcome_advantage"], within)


def near(found, want, what):
    worst = (found - want.detach().double()).abs().max().item()
    assert worst <= MOST, f"{what}: {worst}"


VERL = {
    "vanilla": ("compute_policy_loss_vanilla", Case(dual=DUAL)),
    "vanilla, weights, k3": ("compute_policy_loss_vanilla", Case(dual=DUAL, corrects=True, kl_weight=0.1)),
    "vanilla, means of means, k2": ("compute_policy_loss_vanilla", Case(dual=DUAL, aggregation="seq-mean-token-mean", kl=1, kl_weight=0.1)),
    "vanilla, sums, k1": ("compute_policy_loss_vanilla", Case(dual=DUAL, aggregation="seq-mean-token-sum", kl=0, kl_weight=0.1)),
    "vanilla, Dr.GRPO": ("compute_policy_loss_vanilla", Case(dual=DUAL, aggregation="seq-mean-token-sum-norm", norm="none")),
    "gspo": ("compute_policy_loss_gspo", Case(sequence=True, aggregation="seq-mean-token-mean")),
    "gspo, weights": ("compute_policy_loss_gspo", Case(sequence=True, corrects=True)),
    "cispo": ("compute_policy_loss_cispo", Case(kind=CISPO, corrects=True)),
    "rloo": ("compute_policy_loss_vanilla", Case(dual=DUAL, norm="rloo")),
}


def verls_advantages(verl, case, data):
    rewards = torch.zeros(COUNT, ROOM)
    rewards[:, 0] = data.reward
    index = numpy.arange(COUNT) // GROUP
    every = torch.ones(COUNT, ROOM)
    if case.norm == "rloo":
        return verl.compute_rloo_outcome_advantage(rewards, every, index)[0][:, 0]
    return verl.compute_grpo_outcome_advantage(rewards, every, index, norm_adv_by_std_in_grpo=case.norm == "std")[0][:, 0]


@pytest.mark.parametrize("name", VERL)
def test_verl(verl, name):
    function, case = VERL[name]
    data = rows(len(name))
    advantages = verls_advantages(verl, case, data)
    config = ActorConfig(clip_ratio=LOW, clip_ratio_low=LOW, clip_ratio_high=HIGH, clip_ratio_c=DUAL, global_batch_info={})
    weights = torch.exp(data.old - data.roll).clamp(max=MOST_WEIGHT) if case.corrects else None
    loss, _ = getattr(verl, function)(data.old, data.lp, advantages[:, None].expand(COUNT, ROOM), data.mask, case.aggregation, config, weights)
    if case.kl_weight:
        kl = verl.kl_penalty(data.lp, data.ref, f"k{case.kl + 1}")
        loss = loss + case.kl_weight * verl.agg_loss(kl, data.mask, case.aggregation)
    loss.backward()
    found, our_advantages, gradient = ours(case, data)
    near(our_advantages, advantages, "advantages")
    near(found, loss, "loss")
    near(gradient, data.lp.grad, "gradient")


TRL = {
    "dapo": ("dapo", Case(norm="none")),
    "dapo, KL, entropy": ("dapo", Case(norm="batch", kl_weight=0.05, entropy_weight=0.01)),
    "grpo": ("grpo", Case(norm="none", aggregation="seq-mean-token-mean")),
    "dr_grpo": ("dr_grpo", Case(norm="none", aggregation="seq-mean-token-sum-norm")),
    "grpo, weights": ("grpo", Case(norm="none", aggregation="seq-mean-token-mean", corrects=True)),
    "grpo, of sequences": ("grpo", Case(norm="none", aggregation="seq-mean-token-mean", sequence=True)),
    "cispo": ("cispo", Case(norm="none", kind=CISPO, least=0.0, most=HIGH + 1)),
}


def trainer(loss_type, case, data):
    """What _compute_loss() asks of its trainer."""
    accelerator = types.SimpleNamespace(num_processes=1, gather=lambda x: x, reduce=lambda x, reduction: x, sync_gradients=True)
    return types.SimpleNamespace(
        _get_per_token_logps_and_entropies=lambda *a, **k: (data.lp, data.entropy, None), aux_loss_enabled=False, top_entropy_quantile=1.0,
        off_policy_mask_threshold=None, importance_sampling_level="sequence" if case.sequence else "token", beta=case.kl_weight, loss_type=loss_type,
        args=types.SimpleNamespace(use_bias_correction_kl=False, delta=None, steps_per_generation=1), epsilon_low=LOW,
        epsilon_high=case.most if loss_type == "cispo" else HIGH, use_vllm=case.corrects, vllm_importance_sampling_correction=True,
        model=types.SimpleNamespace(training=True), current_gradient_accumulation_steps=1, max_completion_length=ROOM, accelerator=accelerator,
        _entropy_bonus_enabled=case.entropy_weight != 0, use_adaptive_entropy=False, entropy_coef=case.entropy_weight,
        _metrics={"train": collections.defaultdict(list)})


@pytest.mark.parametrize("name", TRL)
def test_trl(peers, name):
    loss_type, case = TRL[name]
    data = rows(100 + len(name))
    trl = functions(peers / "trl/trainer/grpo_trainer.py", ["_compute_loss"], {"torch": torch, "nanmin": torch.min, "nanmax": torch.max})
    found, advantages, gradient = ours(case, data)
    ids = torch.zeros(COUNT, ROOM, dtype=torch.long)
    inputs = {"prompt_ids": ids, "prompt_mask": ids, "completion_ids": ids, "completion_mask": data.mask, "advantages": advantages.float(),
              "old_per_token_logps": data.old, "ref_per_token_logps": data.ref, "num_items_in_batch": data.mask.sum(),
              "importance_sampling_ratio": torch.exp(data.old - data.roll).clamp(max=MOST_WEIGHT)}
    loss = trl._compute_loss(trainer(loss_type, case, data), None, inputs)
    loss.backward()
    near(found, loss, "loss")
    near(gradient, data.lp.grad, "gradient")
