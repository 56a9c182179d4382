"""What mcorefs-train saves, read by others, and what they save, read by it: the run goes on as if it had not changed hands.

Each run of ours has six steps or more and saves after two; some are of several processes, where mpirun is. megatron-core loads that save (model, optimizer, scheduler, random states), trains
the other steps, and saves after two of them; ours goes on from there. transformers computes the loss of the third step from the weights that ours
saved. What torch.distributed.checkpoint reads of the save is what megatron-core's model and optimizer then hold, bit for bit, and what they
hold when they load the same iteration from a legacy view.
"""
import json
import pathlib
import re
import shutil
import subprocess
import sys

import numpy
import pytest
import torch

import models
import program
import test_train as runs
from swept import share

HERE = pathlib.Path(__file__).parent
ARGS = dict(lr=1e-3, min_lr=1e-4, lr_decay_style="cosine", lr_decay_iters=6, lr_warmup_iters=1)
FLAGS = {"qwen2": ["--use-distributed-optimizer"]}  # of ours
# Processes of ours, the layout of their random states (pipeline, tensor), and flags: each process writes its part of a save.
MTP = dict(mtp_loss_scaling_factor=0.6, lr=1e-3, min_lr=1e-4, lr_decay_style="cosine", lr_decay_iters=20, lr_warmup_iters=1)
# Models that no fixture has. Drawn weights are large, so that layers of MTP have losses of their own from the beginning.
DRAWN = {
    "qwen3-mtp": """--num-layers 3 --hidden-size 64 --ffn-hidden-size 96 --num-attention-heads 4 --group-query-attention --num-query-groups 2
                    --kv-channels 16 --qk-layernorm --mtp-num-layers 2 --disable-bias-linear""",
    "deepseek-mtp": """--num-layers 3 --hidden-size 64 --ffn-hidden-size 96 --num-attention-heads 4 --multi-latent-attention --q-lora-rank 24
                       --kv-lora-rank 16 --qk-head-dim 16 --qk-pos-emb-head-dim 8 --v-head-dim 12 --rope-type rope --qk-layernorm
                       --num-experts 8 --moe-router-topk 2 --moe-ffn-hidden-size 32 --moe-layer-freq [0,1,1]
                       --moe-shared-expert-intermediate-size 64 --moe-router-score-function sigmoid --moe-router-enable-expert-bias
                       --moe-router-dtype fp32 --mtp-num-layers 1 --disable-bias-linear""",
    "experts-biases": """--num-layers 3 --hidden-size 64 --ffn-hidden-size 96 --num-attention-heads 4 --group-query-attention --num-query-groups 2
                         --num-experts 4 --moe-router-topk 2 --moe-ffn-hidden-size 48 --moe-layer-freq [0,1,1]""",
    "experts-sinkhorn": """--num-layers 3 --hidden-size 64 --ffn-hidden-size 96 --num-attention-heads 4 --group-query-attention
                           --num-query-groups 2 --num-experts 8 --moe-router-topk 1 --moe-ffn-hidden-size 48 --moe-layer-freq [0,1,1]""",
    "qwen3-next": """--num-layers 4 --hidden-size 64 --num-attention-heads 4 --group-query-attention --num-query-groups 2 --kv-channels 20
                     --qk-layernorm --attention-output-gate --experimental-attention-variant gated_delta_net --linear-attention-freq 4
                     --linear-conv-kernel-dim 3 --linear-key-head-dim 12 --linear-value-head-dim 20 --linear-num-key-heads 2
                     --linear-num-value-heads 6 --apply-layernorm-1p --rotary-percent 0.4 --num-experts 4 --moe-router-topk 2
                     --moe-ffn-hidden-size 48 --moe-shared-expert-intermediate-size 56 --moe-shared-expert-gate --disable-bias-linear""",
}
DRAWN = {name: (flags + """ --swiglu --normalization RMSNorm --position-embedding-type rope --attention-dropout 0
                        --untie-embeddings-and-output-weights --max-position-embeddings 128 --hidden-dropout 0 --init-method-std 0.08""").split()
         for name, flags in DRAWN.items()}
DIVIDED = {
    "llama": (4, (2, 2), ["--tensor-model-parallel-size", 2, "--sequence-parallel", "--pipeline-model-parallel-size", 2]),
    "qwen2": (2, (1, 1), []),
} if shutil.which("mpirun") else {}
# Models whose layers Megatron has for Transformer Engine alone.
ENGINE = ("qwen3-next",)
# Cases whose legacy save is written by the trainer (--ckpt-format torch); that of the others is a view.
NATIVE = {"gpt2": ["model_optim_rng.pt"], "qwen2": ["distrib_optim.pt", "model_optim_rng.pt"], "sgd": ["model_optim_rng.pt"],
          "mixtral": ["model_optim_rng.pt"], "deepseek-mtp": ["model_optim_rng.pt"]}
CASES = [
    runs.Case("llama", runs.LLAMA, ARGS, steps=6),
    runs.Case("gpt2", "resume/gpt2-torch-tp2-pp2", ARGS, steps=6, data="tales_text_document"),
    runs.Case("qwen2", "resume/qwen2-torch-tp2-dp2-distopt", ARGS, steps=6, dtype="bfloat16", norm=0.05),
    runs.Case("sgd", runs.LLAMA, ARGS | dict(optimizer="sgd", lr=0.3, min_lr=0.03, sgd_momentum=0.8), steps=6, batch=4, seq=64),
    runs.Case("mixtral", "weights/mixtral-torch_dist-pp2-ep2", ARGS | dict(moe_aux_loss_coeff=0.01), steps=6),
    runs.Case("deepseek", "resume/deepseek-torch_dist-pp2-ep2", ARGS | dict(moe_aux_loss_coeff=1e-4), steps=6),
    runs.Case("qwen3-mtp", None, MTP, steps=8, batch=4, seq=64),
    runs.Case("deepseek-mtp", None, MTP | dict(moe_aux_loss_coeff=1e-2, moe_router_load_balancing_type="seq_aux_loss",
                                               moe_router_bias_update_rate=0.01), steps=8, batch=4, seq=64),
    runs.Case("experts-biases", None, ARGS | dict(moe_aux_loss_coeff=1e-2), steps=6, seq=64),
    runs.Case("experts-sinkhorn", None, ARGS | dict(moe_router_load_balancing_type="sinkhorn", moe_z_loss_coeff=1e-3), steps=6, seq=64),
    # Three of four layers have a gated delta net.
    runs.Case("qwen3-next", None, ARGS | dict(moe_aux_loss_coeff=1e-2), steps=6, batch=4, seq=96),
]
TODAY = share(CASES, 2)
AHEAD = re.compile(r"mtp_\d+ loss: ([0-9.E+-]+)")
HALF = 2e-2  # loss of 16-bit weights


def iteration(directory, number):
    return directory / f"iter_{number:07d}"


def ours(case, *more):
    """Steps of our log: iteration -> (learning rate, loss, loss scale, norm, skipped, losses of MTP layers)."""
    precision = ["--bf16"] if case.dtype == "bfloat16" else []
    count, _, divided = DIVIDED.get(case.name, (1, None, []))
    launcher = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n", count] if count > 1 else []
    command = [*launcher, runs.TRAIN, *divided, "--use-checkpoint-args", "--no-use-tokenizer-model-from-checkpoint-args", "--backend", "cpu", "--transformer-impl",
               "transformer_engine" if case.name in ENGINE else "local", "--tokenizer-type", "HuggingFaceTokenizer", "--tokenizer-model", runs.FIXTURES / "data" / "tokenizer",
               "--micro-batch-size", case.micro, "--global-batch-size", case.batch, "--seq-length", case.seq, "--data-path", *runs.words(case),
               "--split", case.split, "--eval-iters", 0, "--log-interval", 1, *precision, *FLAGS.get(case.name, []),
               *runs.flags(runs.optimization(case)), *more]
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=program.SECONDS)
    assert done.returncode == 0, f"{' '.join(str(c) for c in command)}\n{done.stdout[-1500:]}\n{done.stderr[-1500:]}"
    found = [(runs.LINE.search(line), [float(loss) for loss in AHEAD.findall(line)]) for line in done.stdout.splitlines()]
    return {int(f[1]): (float(f[2]), f[3] and float(f[3]), float(f[4]), f[5] and float(f[5]), int(f[6]), ahead) for f, ahead in found if f}


def drawn(case):
    """The flags of a model that begins with drawn weights, or none."""
    return DRAWN.get(case.name, [])


class Run:
    """Our run of a case, and what megatron-core is asked about it."""

    def __init__(self, case, where):
        self.case, self.where = case, where / case.name
        self.where.mkdir()
        self.saved, self.back = self.where / "ours", self.where / "megatron"
        begin = drawn(case) or ["--load", runs.FIXTURES / case.source, "--finetune", "--no-load-optim"]
        if (case.source or "").startswith("resume"):
            begin += ["--ckpt-step", 20]
        self.rows = ours(case, *begin, "--save", self.saved, "--save-interval", 2)
        self.samples = runs.samples(case, self.where)
        self.legacy = self.where / "legacy"
        if case.name in NATIVE:  # the same steps once more: all of it is deterministic
            ours(case, *begin, "--save", self.legacy, "--save-interval", 2, "--exit-interval", 2, "--ckpt-format", "torch")
            assert sorted(p.name for p in iteration(self.legacy, 2).rglob("*.pt")) == NATIVE[case.name]
            return
        done = program.export(self.saved, "iter_0000002/megatron/torch/tp1-pp1", self.legacy)
        assert done.returncode == 0, done.stderr

    def jobs(self):
        case = self.case
        job = {"dtype": case.dtype, "samples": self.samples, "batches": [case.batch] * case.steps,
               "optimizer": "dist" if case.name in FLAGS else "float16",
               "random": DIVIDED.get(case.name, (1, (1, 1)))[1],
               "args": runs.optimization(case) | {"global_batch_size": case.batch, "micro_batch_size": case.micro, "seq_length": case.seq,
                                                  "wgrad_deferral_limit": 0}}
        goes_on = job | {"resume": str(iteration(self.saved, 2)), "dump": str(self.where / "dist.dump"), "out": str(self.where / "dist.jsonl"),
                         "save": {"at": 4, "dir": str(self.back)}}
        legacy = job | {"resume": str(iteration(self.legacy, 2)), "dump": str(self.where / "legacy.dump"),
                        "out": str(self.where / "legacy.jsonl"), "batches": [case.batch] * 2}
        later = job | {"resume": str(iteration(self.saved, 4)), "out": str(self.where / "later.jsonl"), "batches": [case.batch] * 4}
        return [goes_on, legacy, later]

    def said(self, name):
        """The first line of a job's answer, and its steps."""
        first, *steps = map(json.loads, (self.where / f"{name}.jsonl").read_text().splitlines())
        return first, steps


@pytest.fixture(scope="module")
def trained(tmp_path_factory, request):
    """All runs that are asked for: one process of megatron-core answers all jobs, and one of torch reads all saves."""
    where = tmp_path_factory.mktemp("saves")
    asked = [item.callspec.params["case"] for item in request.session.items if item.fspath == request.fspath]
    all_runs = [Run(case, where) for case in CASES if case in asked]
    jobs = [job for run in all_runs for job in run.jobs()]
    (where / "jobs").write_text("".join(json.dumps(job) + "\n" for job in jobs))
    done = subprocess.run([sys.executable, HERE / "peers" / "train_megatron.py", where / "jobs"], capture_output=True, text=True,
                          timeout=runs.SECONDS)
    answers = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert len(answers) == len(jobs), done.stderr[-3000:]
    done = subprocess.run([sys.executable, HERE / "peers" / "load_files.py", *[iteration(run.saved, 2) for run in all_runs]],
                          capture_output=True, text=True, timeout=program.SECONDS)
    assert done.returncode == 0, done.stderr[-3000:]
    for run, errors in zip(all_runs, zip(*[iter(answer["error"] for answer in answers)] * 3)):
        run.errors = [error for error in errors if error]
    return {run.case.name: run for run in all_runs}


@pytest.fixture
def run(trained, case):
    found = trained[case.name]
    assert not found.errors, found.errors[0]
    return found


def close(case, mine, theirs):
    """A step of ours, and one of Megatron's log or of ours."""
    assert mine[0] == pytest.approx(theirs[0], rel=1e-6)
    assert mine[1] == pytest.approx(theirs[1], abs=1e-4 if case.dtype == "float32" else HALF)
    assert mine[3] == pytest.approx(theirs[3], rel=case.norm, abs=6e-4)
    assert mine[5] == pytest.approx(theirs[5], abs=1e-4 if case.dtype == "float32" else HALF)


@pytest.mark.parametrize("case", TODAY, ids=str)
def test_megatron_goes_on(run, case):
    first, steps = run.said("dist")
    assert first["iteration"] == 2 and first["consumed"] == 2 * case.batch
    assert [row["iteration"] for row in steps] == list(range(3, case.steps + 1))
    for row in steps:
        close(case, run.rows[row["iteration"]], (row["lr"], row["loss"], 1.0, row["grad_norm"], 0, row["ahead"]))


@pytest.mark.parametrize("case", TODAY, ids=str)
def test_ours_goes_on(run, case):
    rows = ours(case, "--load", run.back)
    assert sorted(rows) == list(range(5, case.steps + 1))
    for number, row in rows.items():
        close(case, row, run.rows[number])


@pytest.mark.parametrize("case", TODAY, ids=str)
def test_tensors(run, case):
    """Every tensor of the save and its bytes: as torch.distributed.checkpoint reads them, and as megatron-core's objects hold them."""
    stored = torch.load(run.saved / "loaded")
    dumps = [torch.load(run.where / f"{name}.dump") for name in ("dist", "legacy")]
    assert sorted(dumps[0]) == sorted(dumps[1])
    names = {name.replace("optimizer.state.", "") if name.startswith("optimizer.state.") else f"model.{name}": name for name in stored}
    names = {f"fp32_{short}" if short.startswith("param.") else short: name for short, name in names.items()}
    assert sorted(names) == sorted(dumps[0])
    for short, name in names.items():
        for dump in dumps:
            assert dump[short].dtype is stored[name].dtype, short
            assert torch.equal(dump[short].reshape(stored[name].shape), stored[name]), short


@pytest.mark.parametrize("case", TODAY, ids=str)
def test_random_states(run, case):
    """Megatron draws other numbers after each save, and its trackers have the seeds that it gives them."""
    states = [run.said(name)[0]["random"] for name in ("dist", "later")]
    for generator in ("python", "numpy", "torch"):
        assert states[0][generator] != states[1][generator]
    seeds = {"default": 1234, "data-parallel-rng": 1234, "model-parallel-rng": 1234 + 2718, "expert-parallel-rng": 1234 + 1024}
    for number, state in zip((2, 4), states):
        assert {name: seed for name, (seed, _) in state["cuda"].items()} == seeds
        assert {place for _, place in state["cuda"].values()} == {number << 32}


@pytest.mark.parametrize("case", [case for case in TODAY if case.name not in ("qwen3-mtp", "experts-biases", "experts-sinkhorn")], ids=str)
def test_transformers(run, case):
    """The losses of the third step are those of transformers' model with the weights of the second."""
    rows = torch.from_numpy(numpy.load(run.samples)[2 * case.batch:3 * case.batch].astype(numpy.int64))
    padded = torch.load(run.where / "dist.dump")["model.embedding.word_embeddings.weight"].shape[0]
    with program.hf(run.saved, "iter_0000002/hf", vocab_size=padded) as directory:
        model = models.load(directory)
        logits = torch.from_numpy(models.logits(model, rows[:, :-1].numpy()))
        ahead = models.logits_ahead(model, directory, rows[:, :-1].numpy()) if run.rows[3][5] else []
    assert len(ahead) == len(run.rows[3][5])
    for places, (layer, said) in enumerate(zip(ahead, run.rows[3][5]), 1):  # ahead of the label
        loss = torch.nn.functional.cross_entropy(torch.from_numpy(layer)[:, :-places].flatten(0, 1), rows[:, 1 + places:].flatten())
        assert float(loss) == pytest.approx(said, abs=1e-4)
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())
    assert float(loss) == pytest.approx(run.rows[3][1], abs=1e-4 if case.dtype == "float32" else HALF)
