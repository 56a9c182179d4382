"""megatron-core itself loads the views, at the layouts they are for: logits as Megatron's, parameters and optimizer as from the source."""
import dataclasses
import json
import pathlib
import re
import subprocess

import pytest
import torch
from safetensors.torch import load_file

import checkpoints
import generated
import megatron_files
import models
import venvs
from layouts import Layout, own
from sft_runs import PACKED, collated, lines, loss_of, trained
from swept import share
from views import export


@dataclasses.dataclass(frozen=True)
class Load:
    source: str                 # a fixture, or a checkpoint that megatron-core writes for these tests
    layout: Layout              # at which Megatron loads it
    dist: bool = False          # by megatron/torch_dist, else by the legacy view of that layout
    native: bool = False        # the source itself
    optimizer: bool = False
    hybrid: bool = False        # as a HybridModel, which is built by the pattern in the arguments
    packed: bool = False        # the loss of packed rows is that of mcorefs-train
    core: str = checkpoints.Spec.core

    def __str__(self):
        what = "native" if self.native else "torch_dist" if self.dist else "torch"
        what = f"hybrid_{what}" if self.hybrid else what
        return f"{self.source.split('/')[-1]}-{what}-{self.layout}" + ("-optimizer" if self.optimizer else "-packed" if self.packed else "") + f"-core-{self.core}"


# Every family by both formats, from both, at layouts of up to four processes; every pair of sizes that meet in them.
WEIGHTS = [
    ("weights/llama-torch_dist-tp2-pp2-vpp2", [Layout(2, 2), Layout(1, 2, vpp=2), Layout(4, 1)], [Layout(4, 1), Layout(1, 3, first=2, last=1)]),
    ("views-llama-torch-adam", [Layout(2, 2, vpp=2), Layout(1, 4, vpp=2)], [Layout(2, 2, vpp=2)]),
    ("resume/qwen2-torch-tp2-dp2-distopt", [Layout(4, 1), Layout(2, 2)], [Layout(1, 2)]),
    ("weights/qwen3-torch_dist-tp4", [Layout(1, 4), Layout(2, 2, first=1)], [Layout(2, 2)]),
    ("weights/gpt2-torch-tp2-pp2", [Layout(1, 3, first=2, last=1), Layout(4, 1)], [Layout(4, 1), Layout(1, 2, vpp=2)]),
    ("weights/mixtral-torch_dist-pp2-ep2", [Layout(1, 1, ep=4), Layout(2, 1, ep=2), Layout(2, 2, etp=1)], [Layout(2, 1, ep=2, etp=1)]),
    ("views-mixtral-torch-adam", [Layout(1, 2, ep=2, vpp=2)], [Layout(1, 1, ep=4)]),
    ("weights/deepseek-torch_dist-pp2-ep2", [Layout(2, 2), Layout(1, 2, ep=2), Layout(2, 1, ep=2, etp=1)], [Layout(1, 1, ep=4)]),
    ("views-deepseek-torch-dist", [Layout(1, 4)], [Layout(2, 2)]),
]
OLDER = [  # tensor ranks outnumber query groups from 0.16 on
    ("weights/llama-torch_dist-tp2-pp2-vpp2", [Layout(2, 2)], [Layout(1, 2, vpp=2)]),
    ("resume/qwen2-torch-tp2-dp2-distopt", [Layout(1, 2)], [Layout(2, 1)]),
    ("weights/qwen3-torch_dist-tp4", [Layout(2, 1)], [Layout(1, 2)]),
    ("weights/gpt2-torch-tp2-pp2", [Layout(1, 2, first=1)], [Layout(2, 1)]),
    ("weights/mixtral-torch_dist-pp2-ep2", [Layout(2, 1, ep=2)], [Layout(1, 2)]),
    ("weights/deepseek-torch_dist-pp2-ep2", [Layout(1, 2)], [Layout(1, 1, ep=2)]),
]
OPTIMIZERS = [  # what a live optimizer of the source's own kind holds after loading
    ("resume/llama-torch-tp2-pp2", [Layout(1, 2), Layout(2, 2)], [Layout(2, 1)]),
    ("resume/qwen2-torch-tp2-dp2-distopt", [Layout(1, 2), Layout(2, 2)], [Layout(1, 1)]),
    ("resume/llama-torch_dist-tp2-pp2-vpp2", [Layout(2, 1), Layout(2, 2, vpp=2)], [Layout(1, 2)]),
    ("views-llama-dist-adam", [Layout(2, 2, vpp=2)], [Layout(1, 2)]),
    ("views-qwen3-dist-vpp", [Layout(1, 3, first=2, last=3)], [Layout(2, 1)]),
    ("views-gpt2-torch-vpp", [Layout(2, 2)], [Layout(1, 2)]),
    ("views-mixtral-torch-dist", [Layout(1, 2, ep=2), Layout(2, 1, ep=2, etp=1)], [Layout(1, 1, ep=2)]),
    ("views-mixtral-torch-adam", [Layout(2, 1, ep=2)], [Layout(2, 1, ep=2)]),   # two optimizers: Megatron cannot load them into one (ep 1)
    ("views-deepseek-dist-adam", [Layout(2, 1, ep=2)], [Layout(1, 1, ep=2)]),
    ("views-deepseek-torch-dist", [Layout(1, 2, ep=2), Layout(1, 2, ep=2, vpp=4)], [Layout(2, 1)]),  # vpp4: a chunk has no expert, and no buffer of them
]


HYBRID = [  # of a GPTModel's, and of a HybridModel's own
    ("weights/llama-torch_dist-tp2-pp2-vpp2", [Layout(2, 2)], [Layout(1, 2)]),
    ("llama-hybrid-torch-tp2", [Layout(1, 2)], [Layout(2, 1)]),
    ("weights/mixtral-torch_dist-pp2-ep2", [], [Layout(2, 1, ep=2)]),
]


def loads(table, **more):
    for source, legacy, dist in table:
        yield from (Load(source, layout, **more) for layout in legacy)
        yield from (Load(source, layout, dist=True, **more) for layout in dist)


LOADS = [*loads(share(WEIGHTS, 2)), *loads(share(OLDER, 3), core="0.15.3"), *loads(share(OPTIMIZERS, 2), optimizer=True),
         *loads(share(HYBRID, 2), hybrid=True), Load("resume/llama-torch-tp2-pp2", Layout(1, 1), packed=True)]


def as_blocks(tensors):
    """A HybridModel's tensors as a GPTModel dumps them: two of its layers are a block, and blocks are stacked."""
    found, layers = {}, {}
    for name, tensor in tensors.items():
        numbered = re.fullmatch(r"(.*decoder\.layers\.)(\d+)\.(.*)", name)
        if numbered:
            layers.setdefault(numbered[1] + numbered[3], {})[int(numbered[2]) // 2] = tensor
        else:
            found[name.replace("decoder.final_norm.", "decoder.final_layernorm.")] = tensor
    found |= {name: torch.stack([each[layer] for layer in sorted(each)]) for name, each in layers.items()}
    return {name.replace("mlp.linear_fc1.layer_norm_", "pre_mlp_layernorm."): tensor for name, tensor in found.items()}  # core's own, with experts


def answers(core, jobs, place, script="load_views.py", **more):
    """What a script of peers/ says of each job; more: of its environment."""
    try:
        python, environment = generated.interpreter(core)
    except venvs.Missing as reason:
        pytest.skip(str(reason))
    (place / "jobs").write_text("".join(json.dumps(job) + "\n" for job in jobs))
    script = pathlib.Path(__file__).parent / "peers" / script
    done = subprocess.run([python, script, place / "jobs"], capture_output=True, text=True, timeout=1800 + 60 * len(jobs), env=environment | more)
    said = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert len(said) == len(jobs), done.stderr[-3000:]
    return said


def job(directory, layout, **more):
    return dict(load=str(directory), **dataclasses.asdict(layout), **more)


class Megatron:
    """Answers to everything that this run asks of one core, from one process."""

    def __init__(self, wanted, fixtures, checkpoint, place):
        self.place, self.sources, jobs = place, {}, []
        for load in wanted:
            name = load.source
            path = fixtures / name if "/" in name else checkpoint(checkpoints.BY_NAME[name])
            args = megatron_files.read(path, strict=False).args
            self.sources[name] = path, args
        # A source's own dump: at its own layout, which every form of an optimizer can be loaded at.
        natives = {(load.source, load.optimizer): dataclasses.replace(load, native=True, hybrid=False, layout=own(self.sources[load.source][1])) for load in wanted
                   if not load.packed}
        self.loads = [*natives.values(), *wanted]
        self.errors = {}
        for number, load in enumerate(self.loads):
            path, args = self.sources[load.source]
            directory = path
            if not load.native:
                directory = place / str(number)
                try:
                    view = "megatron/torch_dist" if load.dist else load.layout.view
                    export(path, view.replace("/", "/hybrid_", 1) if load.hybrid else view, directory)
                except AssertionError as error:  # of one view, not of all of them
                    self.errors[load], directory = str(error), path
            logits = path / "logits.npz"
            data = {"dp": args.data_parallel_size} if load.native and load.optimizer else {}
            data |= {"packed": [collated(row) for row in PACKED]} if load.packed else {}
            jobs.append(job(directory, load.layout, **data, dump=str(place / f"{number}.safetensors"), optimizer=load.optimizer,
                            logits=str(logits) if logits.exists() else None))
        self.said = answers(wanted[0].core, jobs, place)

    def answer(self, load):
        number = self.loads.index(load)
        assert load not in self.errors, self.errors[load]
        assert not self.said[number]["error"], f"{load}: {self.said[number]['error']}"
        return self.said[number], load_file(self.place / f"{number}.safetensors")

    def check(self, load):
        path, args = self.sources[load.source]
        said, got = self.answer(load)
        if load.packed:
            (self.place / "packed.jsonl").write_text(lines(PACKED))
            loss = loss_of(trained(path, self.place / "packed.jsonl", len(PACKED)))
            assert abs(said["loss"] - loss) < 2e-5 * loss
            return
        _, want = self.answer(next(other for other in self.loads if other.native and (other.source, other.optimizer) == (load.source, load.optimizer)))
        if load.hybrid and "model.decoder.final_layernorm.weight" in want:
            got, want = as_blocks(got), as_blocks(want)
        megatron_files.assert_same_tensors(got, want, str(load), args.vocab_size)
        if (path / "logits.npz").exists():
            assert models.measured("logit", said["difference"], load) <= models.LOGIT_TOLERANCE


@pytest.fixture(scope="module")
def megatron(request, fixtures, checkpoint, tmp_path_factory):
    asked = [item.callspec.params["load"] for item in request.session.items if item.fspath == request.fspath]
    found = {}

    def of(core):
        if core not in found:
            found[core] = Megatron([load for load in asked if load.core == core], fixtures, checkpoint, tmp_path_factory.mktemp("loads"))
        return found[core]

    return of


@pytest.mark.parametrize("load", LOADS, ids=str)
def test_megatron_core_loads(megatron, load):
    megatron(load.core).check(load)
