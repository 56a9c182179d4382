"""mcorefs-train --perform-rl-step beside vLLM and TRL.

A server of vLLM on the CPU answers prompts with weights that it reads through a mount of the run's own saves. The small model of tests/train/rl.sh
learns which answers are rewarded, as it does with the sampler that is built in; each rollout's weights are compared by vLLM's own log-probs of a
response, and all that it samples has the log-probs of the trainer. The head is a matrix of its own: vLLM 0.32 on the CPU packs a tied one when it
starts, and keeps that when it reads other weights.

TRL's GRPOTrainer takes optimizer steps on the responses of a rollout here, from the same policy, and gets the same weights.
"""
import contextlib
import dataclasses
import json
import os
import pathlib
import random
import re
import socket
import subprocess
import sys
import tempfile

import pytest

import program
import venvs
from swept import ENGINES

HERE = pathlib.Path(__file__).parent
TRAIN = os.environ.get("MCOREFS_TRAIN", str(pathlib.Path(program.BINARY).with_name("mcorefs-train")))
SECONDS = 1200
WORDS = ["<eos>", *"0123456789+="]
TOKENIZER = {
    "version": "1.0", "truncation": None, "padding": None,
    "added_tokens": [dict(id=0, content="<eos>", single_word=False, lstrip=False, rstrip=False, normalized=False, special=True)],
    "normalizer": None, "pre_tokenizer": dict(type="Split", pattern=dict(Regex="."), behavior="Isolated", invert=False),
    "post_processor": None, "decoder": dict(type="Fuse"),
    "model": dict(type="WordLevel", unk_token="<eos>", vocab={word: i for i, word in enumerate(WORDS)})}
MODEL = """--num-layers 2 --hidden-size 64 --num-attention-heads 2 --ffn-hidden-size 128 --seq-length 64 --max-position-embeddings 64 --normalization RMSNorm
--swiglu --position-embedding-type rope --disable-bias-linear --init-method-std 0.1 --make-vocab-size-divisible-by 16 --untie-embeddings-and-output-weights --tokenizer-type HuggingFaceTokenizer
--adam-beta2 0.95 --weight-decay 0 --eval-iters 0 --backend cpu --threads 1 --log-interval 1""".split()


def train(where, *arguments):
    return subprocess.Popen([TRAIN, *MODEL, "--tokenizer-model", where / "tokenizer", *map(str, arguments)], stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, text=True)


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """A model that answers "7+4=" with 4 about every second time."""
    where = tmp_path_factory.mktemp("rl")
    draw = random.Random(5)
    (where / "tokenizer").mkdir()
    (where / "tokenizer/tokenizer.json").write_text(json.dumps(TOKENIZER))
    (where / "tokenizer/tokenizer_config.json").write_text(json.dumps(dict(eos_token="<eos>", tokenizer_class="PreTrainedTokenizerFast")))
    sums = [(draw.randrange(10), draw.randrange(10)) for _ in range(30000)]
    text = "".join(json.dumps(dict(text=f"{a}+{b}={draw.randrange(10) if draw.random() < .6 else b}")) + "\n" for a, b in sums)
    subprocess.run([program.BINARY, "pack", "--tokenizer", where / "tokenizer", "--append-eod", where / "sums"], input=text, text=True, check=True)
    (where / "prompts.jsonl").write_text("".join(
        json.dumps(dict(prompt=f"{a}+{b}=", answer=b)) + "\n" for a in range(10) for b in range(10)))
    process = train(where, *"--split 100,0,0 --micro-batch-size 16 --global-batch-size 16 --train-iters 200 --lr 3e-3 --min-lr 1e-3".split(),
                    *"--lr-decay-style cosine --lr-warmup-iters 5 --reset-position-ids --reset-attention-mask --save-interval 200".split(),
                    "--data-path", where / "sums", "--save", where / "base")
    assert process.communicate(timeout=SECONDS) and process.returncode == 0
    return where


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


@contextlib.contextmanager
def vllm(model, port, log):
    """A server of vLLM; its processes are a group of their own."""
    env = os.environ | dict(VLLM_SERVER_DEV_MODE="1", VLLM_CPU_KVCACHE_SPACE="1", VLLM_CPU_OMP_THREADS_BIND="nobind", OMP_NUM_THREADS="1",
                            TORCHDYNAMO_DISABLE="1", VLLM_CPU_CI_ENV="1", VLLM_NO_USAGE_STATS="1", HF_HUB_OFFLINE="1")
    command = f"""-m vllm.entrypoints.openai.api_server --model {model} --served-model-name policy --port {port} --host 127.0.0.1 --enable-scale-out
        --logprobs-mode processed_logprobs --generation-config vllm --skip-tokenizer-init --dtype float32 --enforce-eager --max-num-seqs 16
        --max-model-len 64""".split()
    with open(log, "w") as out:
        server = subprocess.Popen([sys.executable, *command], env=env, stdout=out, stderr=out, start_new_session=True)
    try:
        yield server
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(server.pid, 15)
        server.wait(60)


def test_vllm_over_the_mount(base, tmp_path):
    if "rl" not in ENGINES:
        pytest.skip("rollouts of vLLM: another day's turn (MCOREFS_ALL_LAYOUTS=1)")
    if os.environ.get("MCOREFS_NO_VLLM"):
        pytest.skip(f"vLLM: could not be installed: {os.environ['MCOREFS_NO_VLLM']}")
    if not program.can_mount():
        pytest.skip("there is no FUSE")
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="mcorefs-rl-", dir=memory) as sync, program.mounted(sync, vocab_size="tokenizer") as point:
        port = free_port()
        process = train(base, *"--perform-rl-step --rl-reward match --rl-label-key answer --grpo-prompts-per-step 16 --grpo-group-size 8".split(),
                        *"--grpo-iterations 1 --global-batch-size 128 --micro-batch-size 1 --grpo-clamp-eps-lower 0.2 --grpo-clamp-eps-upper 0.2".split(),
                        *"--grpo-kl-beta 0 --rl-max-response-length 3 --rl-use-sequence-packing --hidden-dropout 0 --attention-dropout 0".split(),
                        *"--lr 1e-3 --lr-decay-style constant --train-iters 30 --rl-verify-model-weights-swap".split(),
                        "--pretrained-checkpoint", base / "base", "--rl-prompt-data", base / "prompts.jsonl", "--rl-sync-dir", sync,
                        "--rl-mount", point, "--rl-inference-url", f"http://127.0.0.1:{port}")
        try:
            for line in process.stdout:
                if line.startswith("engines: "):
                    break
            with vllm(f"{point}/iter_0000000/hf", port, tmp_path / "server.log"):
                said, _ = process.communicate(timeout=SECONDS)
        finally:
            process.kill()
    assert process.returncode == 0, said[-2000:] + (tmp_path / "server.log").read_text()[-2000:]
    rewards = [float(x) for x in re.findall(r"mean reward: ([0-9.]+)", said)]
    drifts = [float(x) for x in re.findall(r"rl/rollout_drift: ([0-9.E+-]+)", said)]
    assert len(rewards) == 30 and sum(rewards[:3]) < 3 * .75 and sum(rewards[-3:]) > 3 * .9, rewards
    assert max(drifts) < 3e-3, drifts


# ---- steps of TRL's GRPOTrainer ----

ADAM = dict(learning_rate=1e-3, adam_beta1=0.9, adam_beta2=0.95, weight_decay=0.1)


@dataclasses.dataclass(frozen=True)
class Steps:
    """The same steps, as flags here and as what TRL's GRPOConfig gets."""
    flags: str
    config: dict
    steps: int = 1   # passes over the rollout
    reward: str = "match length --rl-overlong-buffer 4 --rl-overlong-factor 0.5"
    clip: float = 0  # the norm of gradients is held below it
    eps: float = 1e-4  # Adam's: not so small that a first step is lr times a sign
    most: float = 3e-4  # difference of a weight, of how far the furthest one goes: a weight near 1 has steps of 1.2e-7


STEPS = {
    # The norm is held; the second step is off its policy, and away from its reference.
    "dapo": Steps("--rl-advantage-norm batch --grpo-kl-beta 0.5",
                  dict(loss_type="dapo", scale_rewards="batch", beta=0.5, use_bias_correction_kl=False), steps=2, clip=0.1),
    "dr_grpo": Steps("--rl-advantage-norm none --rl-loss-aggregation seq-mean-token-sum-norm", dict(loss_type="dr_grpo", scale_rewards="none")),
    # TRL adds 1e-4 to a group's deviation, and 1e-6 is added here: it is 0 or 0.35 and more.
    "grpo": Steps("--rl-advantage-norm std --rl-loss-aggregation seq-mean-token-mean", dict(loss_type="grpo", scale_rewards="group"), reward="match", most=2e-3),
    "gspo": Steps("--rl-advantage-norm none --rl-loss gspo --rl-loss-aggregation seq-mean-token-mean",
                  dict(loss_type="grpo", scale_rewards="none", importance_sampling_level="sequence"), steps=2),
    "cispo": Steps("--rl-advantage-norm none --rl-loss cispo --grpo-clamp-eps-lower 1 --grpo-clamp-eps-upper 0.02",
                   dict(loss_type="cispo", scale_rewards="none", epsilon_high=1.02), steps=2),
}
PROMPTS, GROUP, ROOM, HEAT = 8, 8, 5, 5.0  # so hot that responses have one token to five


def our_steps(base, case, where):
    """Takes the steps, and leaves the policy and the responses in `where`."""
    process = train(base, *"--perform-rl-step --rl-label-key answer".split(), "--rl-reward", *case.reward.split(),
                    *"--grpo-clamp-eps-lower 0.05 --grpo-clamp-eps-upper 0.05 --grpo-kl-beta 0 --rl-use-sequence-packing --micro-batch-size 1".split(),
                    *"--hidden-dropout 0 --attention-dropout 0 --lr-decay-style constant --lr-warmup-iters 0 --no-save-optim".split(),
                    "--grpo-prompts-per-step", PROMPTS, "--grpo-group-size", GROUP, "--global-batch-size", PROMPTS * GROUP,
                    "--rl-max-response-length", ROOM, "--rl-default-temperature", HEAT, "--grpo-iterations", case.steps, "--train-iters", case.steps, "--save-interval", case.steps,
                    "--lr", ADAM["learning_rate"], "--adam-eps", case.eps, "--weight-decay", ADAM["weight_decay"], "--clip-grad", case.clip,
                    "--pretrained-checkpoint", base / "base", "--rl-prompt-data", base / "sums.jsonl", "--save", where / "ours",
                    "--rl-log-samples", where / "samples.jsonl", *case.flags.split())
    said, _ = process.communicate(timeout=SECONDS)
    assert process.returncode == 0, said[-2000:]


@pytest.fixture(scope="module")
def stepped(base, tmp_path_factory):
    """Where a case's policies are, after our steps and after TRL's, which one process takes for all cases."""
    where = tmp_path_factory.mktemp("trl")
    try:
        packages = venvs.folder("rl", "verl and TRL", sys.executable)
    except venvs.Missing as why:
        pytest.skip(str(why))
    # Prompts of two lengths: TRL pads them on the left.
    (base / "sums.jsonl").write_text("".join(json.dumps(dict(prompt=f"{a}+{b}=" if b % 2 else f"{a}+1+{b}=", answer=b)) + "\n"
                                             for a in range(10) for b in range(10)))
    jobs = []
    for name, case in STEPS.items():
        (where / name).mkdir()
        our_steps(base, case, where / name)
        config = ADAM | dict(adam_epsilon=case.eps, max_grad_norm=case.clip, num_generations=GROUP, max_completion_length=ROOM, temperature=HEAT, max_steps=case.steps,
                             num_iterations=case.steps, epsilon=0.05) | case.config
        jobs.append(dict(samples=f"{where / name}/samples.jsonl", out=f"{where / name}/theirs", config=config))
    assert program.export(base / "base", "latest/hf", where / "policy", vocab_size="tokenizer").returncode == 0
    (where / "jobs").write_text("".join(json.dumps(job) + "\n" for job in jobs))
    done = subprocess.run([sys.executable, HERE / "peers/train_trl.py", where / "policy", where / "jobs"], capture_output=True, text=True,
                          timeout=SECONDS, env=os.environ | dict(PYTHONPATH=str(packages)))
    assert done.returncode == 0, done.stderr[-3000:]
    return where


def distance(a, b):
    """The largest difference of two models' weights, which have the same names and shapes, and how many tensors differ."""
    done = program.run("diff", "--json", "-n", 1000, "-o", "no_optim", a, b)
    found = json.loads(done.stdout)
    assert not found["only_a"] and not found["only_b"] and not found["arguments"], found
    return max([tensor["largest"] for tensor in found["different"]], default=0.0), found["tensors_different"]


@pytest.mark.parametrize("name", STEPS)
def test_steps_of_trl(stepped, base, name):
    """One optimizer step, or two of one rollout: from the same policy, responses and rewards TRL's GRPOTrainer gets the same weights."""
    where = stepped / name
    moved, tensors = distance(stepped / "policy", where / "theirs")
    apart, _ = distance(where / "ours", where / "theirs")
    print(f"{name}: {tensors} tensors differ from the first policy, by {moved:.2g} at most, and ours from TRL's by {apart:.2g}")
    assert moved > 1e-4 and apart <= STEPS[name].most * moved
