"""mcorefs-train beside megatron-core: the same weights, samples and arguments give the same losses, iteration after iteration.

One process (peers/train_megatron.py) trains all cases with megatron-core on the CPU, in fp32 unless a case says fp16. Samples are those of
`mcorefs sample`, which test_samples.py compares with Megatron's own. Both begin with the fixture's weights and without optimizer state.
"""
import dataclasses
import json
import os
import pathlib
import re
import subprocess
import sys

import numpy
import pytest

import program
from swept import share

HERE = pathlib.Path(__file__).parent
FIXTURES = pathlib.Path(os.environ["MCOREFS_FIXTURES"])
TRAIN = os.environ.get("MCOREFS_TRAIN", str(pathlib.Path(program.BINARY).with_name("mcorefs-train")))
SECONDS = 1800

LINE = re.compile(r"iteration +(\d+)/.* learning rate: ([0-9.E+-]+) .*?(?:lm loss: ([0-9.E+-]+) \| .*?)?loss scale: ([0-9.]+) \|"
                  r"(?: grad norm: ([0-9.]+) \|)?.* skipped iterations: +(\d+)")


@dataclasses.dataclass(frozen=True)
class Case:
    name: str
    source: str
    args: dict          # Megatron's, by dest; they go to both
    steps: int = 8
    batch: int = 8
    micro: int = 2
    seq: int = 128
    dtype: str = "float32"
    data: str = "0.7 tales_text_document 0.3 notes_text_document"
    split: str = "90,10,0"
    norm: float = 1e-3  # relative difference of the gradient norm

    def __str__(self):
        return self.name


LLAMA = "resume/llama-torch_dist-tp2-pp2"
CASES = [
    Case("llama-cosine", LLAMA, dict(lr=1e-3, min_lr=1e-4, lr_decay_style="cosine", lr_decay_iters=8, lr_warmup_iters=2)),
    Case("llama-constant", LLAMA, dict(lr=3e-4, lr_decay_style="constant"), data="tales_text_document", batch=6, micro=3, seq=64),
    Case("llama-wsd-exponential", LLAMA, dict(lr=1e-3, min_lr=1e-5, lr_decay_style="WSD", lr_wsd_decay_style="exponential", lr_decay_iters=8,
                                              lr_wsd_decay_iters=4, lr_warmup_iters=1)),
    Case("llama-wsd-sqrt", LLAMA, dict(lr=1e-3, min_lr=1e-5, lr_decay_style="WSD", lr_wsd_decay_style="minus_sqrt", lr_decay_iters=8,
                                       lr_wsd_decay_iters=5), batch=4, micro=4),
    Case("llama-inverse-sqrt", LLAMA, dict(lr=1e-3, lr_decay_style="inverse-square-root", lr_warmup_iters=3, lr_decay_iters=8)),
    Case("llama-decay-linear", LLAMA, dict(lr=1e-3, min_lr=1e-4, lr_decay_style="linear", lr_decay_iters=6, start_weight_decay=0.01,
                                           end_weight_decay=0.3, weight_decay_incr_style="linear")),
    Case("llama-decay-cosine", LLAMA, dict(lr=1e-3, min_lr=1e-4, lr_decay_style="linear", lr_decay_iters=6, start_weight_decay=0.0,
                                           end_weight_decay=0.5, weight_decay_incr_style="cosine", clip_grad=0.3, adam_eps=1e-6)),
    Case("llama-per-token", LLAMA, dict(lr=1e-3, lr_decay_style="constant", calculate_per_token_loss=True, eod_mask_loss=True)),
    Case("llama-documents", LLAMA, dict(lr=1e-3, lr_decay_style="constant", eod_mask_loss=True, reset_position_ids=True,
                                        reset_attention_mask=True)),
    Case("llama-rope-scaling", LLAMA, dict(lr=1e-3, lr_decay_style="constant", use_rope_scaling=True)),
    Case("llama-no-clip", LLAMA, dict(lr=1e-4, lr_decay_style="constant", clip_grad=0.0)),
    Case("llama-fp16", LLAMA, dict(lr=1e-3, lr_decay_style="constant", initial_loss_scale=2**28, hysteresis=2), steps=14, dtype="float16",
         norm=0.02),
    Case("llama-fp16-sums", LLAMA, dict(lr=1e-3, lr_decay_style="constant", initial_loss_scale=2**16, calculate_per_token_loss=True), steps=10,
         dtype="float16", norm=0.02),
    Case("llama-fp16-growing", LLAMA, dict(lr=1e-3, lr_decay_style="constant", initial_loss_scale=2**8, loss_scale_window=2), dtype="float16",
         norm=0.02),
    Case("llama-sgd", LLAMA, dict(optimizer="sgd", lr=0.3, lr_decay_style="cosine", lr_decay_iters=8, sgd_momentum=0.8), batch=4),
    Case("llama-sgd-plain", LLAMA, dict(optimizer="sgd", lr=0.05, lr_decay_style="constant", sgd_momentum=0.0, initial_loss_scale=2**16), steps=4,
         batch=4, dtype="float16", norm=0.02),
    Case("gpt2", "resume/gpt2-torch-tp2-pp2", dict(lr=1e-3, lr_decay_style="constant")),
    Case("qwen2", "resume/qwen2-torch-tp2-dp2-distopt", dict(lr=1e-3, lr_decay_style="constant"), split="969,30,1", data="notes_text_document"),
    Case("qwen3", "weights/qwen3-torch_dist-tp4", dict(lr=1e-3, lr_decay_style="constant")),
    # The weights of auxiliary losses are no arguments that a checkpoint gives to a run.
    Case("mixtral", "weights/mixtral-torch_dist-pp2-ep2", dict(lr=1e-3, lr_decay_style="constant", moe_aux_loss_coeff=0.01)),
    Case("mixtral-z-loss", "weights/mixtral-torch_dist-pp2-ep2", dict(lr=1e-3, lr_decay_style="constant", moe_z_loss_coeff=1e-3,
                                                                      moe_aux_loss_coeff=0.1)),
    Case("deepseek", "resume/deepseek-torch_dist-pp2-ep2", dict(lr=1e-3, lr_decay_style="constant", moe_aux_loss_coeff=1e-4,
                                                               moe_router_load_balancing_type="seq_aux_loss", moe_router_dtype="fp32")),
    Case("mixtral-per-token", "weights/mixtral-torch_dist-pp2-ep2", dict(lr=1e-3, lr_decay_style="constant", calculate_per_token_loss=True,
                                                                         eod_mask_loss=True, moe_z_loss_coeff=1e-2, moe_aux_loss_coeff=0.1)),
    # The mean of the microbatches so far: four in each step.
    Case("mixtral-global", "weights/mixtral-torch_dist-pp2-ep2", dict(lr=1e-3, lr_decay_style="constant", moe_aux_loss_coeff=0.3,
                                                                      moe_router_load_balancing_type="global_aux_loss")),
    # Two of four experts each, by softmax; test_train_saves.py has one of eight, by sigmoid.
    Case("mixtral-sinkhorn", "weights/mixtral-torch_dist-pp2-ep2", dict(lr=1e-3, lr_decay_style="constant", moe_aux_loss_coeff=0.0,
                                                                        moe_router_load_balancing_type="sinkhorn"), steps=6),
    Case("deepseek-three-losses", "resume/deepseek-torch_dist-pp2-ep2",
         dict(lr=1e-3, lr_decay_style="constant", moe_router_load_balancing_type=["seq_aux_loss", "global_aux_loss", "aux_loss"],
              moe_aux_loss_coeff=[0.1, 0.4, 0.2], moe_router_dtype="fp32"), steps=4),
    Case("deepseek-groups", "resume/deepseek-torch_dist-pp2-ep2",
         dict(lr=1e-3, lr_decay_style="constant", moe_aux_loss_coeff=0.05, moe_router_load_balancing_type="aux_loss", moe_router_num_groups=2,
              moe_router_group_topk=1, moe_router_topk_scaling_factor=2.5, moe_router_bias_update_rate=0.05, rope_type="yarn",
              rotary_scaling_factor=4.0, mscale_all_dim=0.5), steps=4),
]
TODAY = share(CASES, 2)


def flags(args):
    """Megatron's spelling of arguments."""
    for dest, value in args.items():
        flag = "--" + dest.replace("_", "-")
        if value is True:
            yield flag
        elif isinstance(value, list):
            yield from (flag, *map(str, value))
        elif value is not False and value is not None:
            yield from (flag, str(value))


def words(case):
    return [str(FIXTURES / "data" / w) if w.endswith("_document") else w for w in case.data.split()]


def optimization(case):
    return dict(train_iters=case.steps, weight_decay=0.1, adam_beta2=0.95) | case.args


def samples(case, where):
    """The run's samples, in the order of its steps: a .npy in the directory where."""
    where.mkdir(exist_ok=True)
    rows = []
    for step in range(1, case.steps + 1):
        done = program.run("sample", words(case)[-1], "--data-path", " ".join(words(case)), "--split", case.split, "--seq-length", case.seq,
                           "--global-batch-size", case.batch, "--train-iters", case.steps, "--step", step, "--npy", where / "step.npy")
        assert done.returncode == 0, done.stderr
        rows.append(numpy.load(where / "step.npy"))
    numpy.save(where / "samples.npy", numpy.concatenate(rows).astype(numpy.int32))
    return str(where / "samples.npy")


@pytest.fixture(scope="session")
def megatron(tmp_path_factory, request):
    """megatron(case): what megatron-core's training gave, a dict for each step, or the end of its log."""
    where = tmp_path_factory.mktemp("train")
    wanted = [item.callspec.params["case"] for item in request.session.items if "case" in getattr(getattr(item, "callspec", None), "params", {})
              and item.callspec.params["case"] in CASES]
    exported, jobs = {}, []
    for case in wanted:
        if case.source not in exported:
            exported[case.source] = where / case.source.replace("/", "-")
            number = "iter_0000020" if case.source.startswith("resume") else "iter_0000040"
            done = program.export(FIXTURES / case.source, f"{number}/megatron/torch/tp1-pp1", exported[case.source])
            assert done.returncode == 0, done.stderr
        jobs.append({"load": str(exported[case.source]), "dtype": case.dtype, "samples": samples(case, where / str(case)),
                     "batches": [case.batch] * case.steps,
                     "args": optimization(case) | {"global_batch_size": case.batch, "micro_batch_size": case.micro, "seq_length": case.seq},
                     "out": str(where / f"{case}.jsonl")})
    (where / "jobs").write_text("".join(json.dumps(job) + "\n" for job in jobs))
    done = subprocess.run([sys.executable, HERE / "peers" / "train_megatron.py", where / "jobs"], capture_output=True, text=True, timeout=SECONDS)
    answers = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert len(answers) == len(jobs), done.stderr[-3000:]

    def of(case):
        number = wanted.index(case)
        assert answers[number]["error"] is None, answers[number]["error"]
        return [json.loads(line) for line in open(jobs[number]["out"])]

    return of


def train(case):
    """Rows of our log: iteration -> (learning rate, loss or None, loss scale, norm or None, skipped)."""
    precision = {"float32": [], "float16": ["--fp16"], "bfloat16": ["--bf16"]}[case.dtype]
    source = FIXTURES / case.source
    command = [TRAIN, "--load", source, "--use-checkpoint-args", "--no-use-tokenizer-model-from-checkpoint-args", "--finetune", "--no-load-optim", "--no-load-rng", "--backend", "cpu",
               "--transformer-impl", "local", "--tokenizer-type", "HuggingFaceTokenizer", "--tokenizer-model", FIXTURES / "data" / "tokenizer",
               "--micro-batch-size", case.micro, "--global-batch-size", case.batch, "--seq-length", case.seq, "--data-path", *words(case),
               "--split", case.split, "--eval-iters", 0, "--log-interval", 1, *precision, *flags(optimization(case))]
    if case.source.startswith("resume"):
        command += ["--ckpt-step", "20"]
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, f"{' '.join(str(c) for c in command)}\n{done.stdout[-1500:]}\n{done.stderr[-1500:]}"
    rows = {}
    for line in done.stdout.splitlines():
        if found := LINE.search(line):
            number, lr, loss, scale, norm, skipped = found.groups()
            rows[int(number)] = (float(lr), loss and float(loss), float(scale), norm and float(norm), int(skipped))
    return rows


@pytest.mark.parametrize("case", TODAY, ids=str)
def test_losses(case, megatron):
    theirs, ours = megatron(case), train(case)
    assert sorted(ours) == [row["iteration"] for row in theirs]
    tolerance = 1e-4 if case.dtype == "float32" else 2e-3
    for row in theirs:
        lr, loss, scale, norm, skipped = ours[row["iteration"]]
        where = f"iteration {row['iteration']}: ours {ours[row['iteration']]}, Megatron's {row}"
        assert bool(skipped) == row["skipped"], where
        assert lr == pytest.approx(row["lr"], rel=1e-6, abs=1e-12), where
        assert scale == row["loss_scale"], where
        if not row["skipped"]:
            assert loss == pytest.approx(row["loss"], abs=tolerance), where
            assert norm == pytest.approx(row["grad_norm"], rel=case.norm, abs=6e-4), where
