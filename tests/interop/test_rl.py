"""mcorefs-train --perform-rl-step beside vLLM: a server on the CPU answers prompts with weights that it reads through a mount of the run's own saves.

The small model of tests/train/rl.sh learns which answers are rewarded, as it does with the sampler that is built in; each rollout's weights are
compared by vLLM's own log-probs of a response, and all that it samples has the log-probs of the trainer. The head is a matrix of its own: vLLM 0.32
on the CPU packs a tied one when it starts, and keeps that when it reads other weights.
"""
import contextlib
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
from swept import ENGINES

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
