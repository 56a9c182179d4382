"""Resumes a fixture's training with Megatron-LM's pretrain_gpt.py and compares the losses with the fixture's loss.csv.

    MEGATRON_LM=TREE resume.py LOAD --family llama --tp 2 --pp 2 --data DATA --loss-csv CSV [--vpp 2] [--ep 2] [-- MEGATRON OPTIONS]

LOAD is a --load directory of iteration 20, in either format; the format and the kind of optimizer are seen from its files.
"""
import argparse
import math
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time

from compare_loss import compare

HERE = pathlib.Path(__file__).resolve().parent

# The hyper-parameters of the fixtures: `args` of their checkpoints.
COMMON = """
--num-layers 4 --hidden-size 64 --num-attention-heads 4 --seq-length 128 --max-position-embeddings 256
--micro-batch-size 2 --global-batch-size 8 --train-iters 40 --eval-interval 20 --eval-iters 1 --log-interval 1 --seed 1234
--lr 1e-3 --min-lr 1e-4 --lr-decay-style cosine --lr-decay-iters 40 --lr-warmup-iters 5
--optimizer adam --adam-beta1 0.9 --adam-beta2 0.95 --weight-decay 0.1 --clip-grad 1.0
--attention-dropout 0 --hidden-dropout 0 --init-method-std 0.02
--transformer-impl local --no-persist-layer-norm --no-gradient-accumulation-fusion --no-masked-softmax-fusion --no-rope-fusion
--tokenizer-type HuggingFaceTokenizer --make-vocab-size-divisible-by 64 --num-workers 0 --split 90,10,0
--distributed-timeout-minutes 2
"""
ROPE = "--ffn-hidden-size 176 --normalization RMSNorm --swiglu --position-embedding-type rope --disable-bias-linear "
GROUPS = "--group-query-attention --num-query-groups 2 "
UNTIED = "--untie-embeddings-and-output-weights "
FAMILIES = {
    "llama": ROPE + GROUPS + UNTIED,
    "qwen2": ROPE + GROUPS + "--add-qkv-bias --rotary-base 1000000",
    "qwen3": ROPE + "--group-query-attention --num-query-groups 4 --kv-channels 32 --qk-layernorm --rotary-base 1000000",
    "gpt2": "--ffn-hidden-size 256 --normalization LayerNorm --position-embedding-type learned_absolute --add-qkv-bias",
    "mixtral": ROPE + GROUPS + UNTIED + "--num-experts 4 --moe-router-topk 2 --moe-ffn-hidden-size 176 --moe-aux-loss-coeff 1e-2 "
               "--moe-token-dispatcher-type alltoall",
    "deepseek": ROPE + UNTIED + "--multi-latent-attention --q-lora-rank 32 --kv-lora-rank 16 --qk-head-dim 16 --qk-pos-emb-head-dim 8 "
                "--v-head-dim 16 --rope-type rope --qk-layernorm --num-experts 4 --moe-router-topk 2 --moe-ffn-hidden-size 48 "
                "--moe-layer-freq [0]+[1]*3 --moe-router-score-function sigmoid --moe-router-enable-expert-bias "
                "--moe-router-load-balancing-type seq_aux_loss --moe-aux-loss-coeff 1e-4 --moe-router-dtype fp32 "
                "--moe-shared-expert-intermediate-size 48 --moe-token-dispatcher-type alltoall",
}
MOE = ("mixtral", "deepseek")


def layout_options(family, tp=1, pp=1, ep=1, vpp=1, etp=None):
    options = ["--tensor-model-parallel-size", tp, "--pipeline-model-parallel-size", pp]
    if vpp > 1:
        options += ["--num-virtual-stages-per-pipeline-rank", vpp]
    if family in MOE:
        options += ["--expert-model-parallel-size", ep, "--expert-tensor-parallel-size", etp or tp]
        if tp > 1:
            options += ["--sequence-parallel"]  # Megatron trains MoE with TP in no other way
    return [str(o) for o in options]


def ranks_needed(tp=1, pp=1, ep=1, etp=None, dp=1, **_):
    """The fewest ranks of that layout, times `dp`."""
    return pp * math.lcm(tp, ep * (etp or tp)) * dp


def what_is_there(load):
    """(format, kind of optimizer) of the latest iteration in a --load directory."""
    load = pathlib.Path(load)
    directory = load / f"iter_{int((load / 'latest_checkpointed_iteration.txt').read_text()):07d}"
    metadata = directory / ".metadata"
    if metadata.exists():
        return "torch_dist", "float16" if b"optimizer.state.fp32_param." in metadata.read_bytes() else "dist"
    return "torch", "dist" if any(directory.glob("mp_rank_*/distrib_optim.pt")) else "float16"


def arguments(load, data, cache, family, format, optimizer, layout, extra=(), precision=("--bf16",)):
    """pretrain_gpt.py's command line."""
    data = pathlib.Path(data)
    options = [*COMMON.split(), *precision, *FAMILIES[family].split(), *layout_options(family, **layout),
               "--data-path", "0.7", data / "tales_text_document", "0.3", data / "notes_text_document", "--data-cache-path", cache,
               "--tokenizer-model", data / "tokenizer", "--ckpt-format", format]
    if load:
        options += ["--load", load, "--exit-on-missing-checkpoint"]
    if optimizer == "dist":
        options.append("--use-distributed-optimizer")
    return [str(o) for o in (*options, *extra)]


PORTS = iter(range(15000, 30000, 2))  # below those that the system hands out, and never one twice; mcorefs-train takes the next one


def is_free(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


class Job:
    """A training run: its processes and its log. `program` is Megatron-LM's script unless another one is named."""

    def __init__(self, log, gpus, options, program=()):
        self.log, self.start = pathlib.Path(log), time.monotonic()
        port = next(port for port in PORTS if is_free(port))
        self.log.parent.mkdir(parents=True, exist_ok=True)
        program = program or (sys.executable, HERE / "rank.py", os.environ["MEGATRON_LM"])
        self.log.write_text(" ".join(map(str, (*program, *options))) + "\n")
        env = dict(os.environ, MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), WORLD_SIZE=str(len(gpus)), OMP_NUM_THREADS="1",
                   CUDA_VISIBLE_DEVICES=",".join(map(str, gpus)), CUDA_DEVICE_MAX_CONNECTIONS="1", PYTHONUNBUFFERED="1",
                   PYTHONWARNINGS="ignore", TORCHINDUCTOR_COMPILE_THREADS="1", TOKENIZERS_PARALLELISM="false",
                   HF_HUB_OFFLINE="1")
        self.processes = [subprocess.Popen([*program, *options], stdout=file, stderr=file, stdin=subprocess.DEVNULL,
                                           start_new_session=True, env=dict(env, RANK=str(rank), LOCAL_RANK=str(rank)))
                          for rank in range(len(gpus)) for file in [self.log.open("ab")]]

    def running(self, limit):
        """Whether it goes on; ends it `limit` seconds after its start, and at once when one of its ranks failed."""
        states = [p.poll() for p in self.processes]
        if None not in states:
            return False
        if any(states) or time.monotonic() - self.start > limit:
            for process in self.processes:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
            for process in self.processes:
                process.wait()
            return False
        return True

    @property
    def text(self):
        return self.log.read_text(errors="replace")

    @property
    def status(self):
        return max(abs(p.returncode) for p in self.processes)


def excuse(text):
    """The line of a log that says best why it failed."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if "Error" in line and "elastic" not in line and "NCCL" not in line]
    return (errors or lines or ["empty log"])[-1 if not errors else 0][:400]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("load")
    parser.add_argument("--family", choices=FAMILIES, required=True)
    for name in ("tp", "pp", "ep", "vpp", "dp"):
        parser.add_argument("--" + name, type=int, default=1, help="dp: times the fewest ranks" if name == "dp" else None)
    parser.add_argument("--etp", type=int, help="TP of the experts; default: as TP")
    parser.add_argument("--data", required=True, help="the fixtures' data directory")
    parser.add_argument("--loss-csv")
    parser.add_argument("--log", default="resume.log")
    parser.add_argument("--cache", default="/tmp/megatron-index", help="where Megatron keeps its dataset indices")
    parser.add_argument("--limit", type=int, default=300, help="seconds")
    parser.add_argument("--tolerance", type=float)
    parser.add_argument("extra", nargs="*", help="more options for Megatron, after --")
    opt = parser.parse_args()
    layout = dict(tp=opt.tp, pp=opt.pp, ep=opt.ep, vpp=opt.vpp, etp=opt.etp)
    job = Job(opt.log, range(ranks_needed(**layout, dp=opt.dp)),
              arguments(opt.load, opt.data, opt.cache, opt.family, *what_is_there(opt.load), layout, opt.extra))
    while job.running(opt.limit):
        time.sleep(0.2)
    print(f"{opt.log}: status {job.status} after {time.monotonic() - job.start:.0f} s")
    if job.status:
        sys.exit(excuse(job.text))
    if opt.loss_csv:
        line, problems = compare(job.text, opt.loss_csv, tolerance=opt.tolerance)
        sys.exit("\n  ".join([line, *problems]) if problems else print(line))


if __name__ == "__main__":
    main()
