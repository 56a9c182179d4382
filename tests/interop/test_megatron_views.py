"""Megatron views, read with plain torch: every element of a model once and in its place, at every kind of layout, and back again."""
import os
import pathlib
import random
import subprocess
import sys

import pytest

import checkpoints
import megatron_files
import swept
import venvs
from layouts import Layout, cover, grid, own
from views import export, views

FIXTURES = ["weights/deepseek-torch_dist-pp2-ep2", "weights/gpt2-torch-tp2-pp2", "weights/llama-torch-tp2-pp2",
            "weights/llama-torch_dist-tp2-pp2-vpp2", "weights/mixtral-torch-pp2-ep2", "weights/mixtral-torch_dist-pp2-ep2",
            "weights/qwen3-torch_dist-tp4", "resume/llama-torch-tp2-pp2", "resume/llama-torch_dist-tp2-pp2",
            "resume/llama-torch_dist-tp2-pp2-vpp2", "resume/qwen2-torch-tp2-dp2-distopt"]
LEGACY = [name for name in FIXTURES if "-torch-" in name]
VIEWS = swept.share(checkpoints.VIEWS, 2)


def of_blocks(specs):
    """Without HybridModels, whose names and numbers of layers are others than those of these views: test_megatron_core.py has them."""
    return [spec for spec in specs if "-hybrid-" not in spec.name]


WRITTEN, SWEPT = of_blocks(VIEWS + swept.WRITTEN), of_blocks(VIEWS + swept.LAYOUTS)
WIDEST = [Layout(8, 4, vpp=2), Layout(8, 4, ep=4, vpp=2), Layout(8, 4, ep=4, etp=1, vpp=2), Layout(4, 4, ep=4), Layout(1, 1)]
LOST = ("world_size", "data_parallel_size", "num_layers_per_virtual_pipeline_stage", "rng_state")  # what another layout has no place for
OF_A_RANK = ("rank", "local_rank")  # the arguments that differ between the files of one save


def by_name(spec):
    return spec.name


def few(layouts, count, seed):
    """The first one, which is the widest, and some others: the same ones each time."""
    return layouts[:1] + random.Random(seed).sample(layouts[1:], min(count, len(layouts) - 1))


class Source:
    """What a checkpoint holds, and what its views must hold."""

    def __init__(self, path):
        self.path, self.want = path, megatron_files.read(path, strict=False)
        self.own = own(self.want.args)

    def check(self, directory, what, **more):
        got = megatron_files.read(directory)
        if self.want.unread and got.states:  # a form that only the real optimizer reads (test_megatron_core.py): all views agree
            self.want.states, self.want.steps, self.want.unread = got.states, got.steps, []
        megatron_files.assert_same_contents(got, self.want, f"{self.path.name}: {what}", **more)
        return got


def check_layouts(source, layouts):
    with views(source.path) as view:
        for layout in layouts:
            got = source.check(view(layout.view), layout)
            assert own(got.args) == layout, f"{layout}: the arguments say {own(got.args)}"
        got = source.check(view("megatron/torch_dist"), "torch_dist")
        assert not got.unread


@pytest.mark.parametrize("name", FIXTURES)
def test_fixtures_at_every_layout(fixtures, name):
    source = Source(fixtures / name)
    check_layouts(source, cover(source.want.args, [source.own] if source.own else []))


@pytest.mark.parametrize("spec", WRITTEN, ids=by_name)
def test_written_at_some_layouts(checkpoint, spec):
    source = Source(checkpoint(spec))
    check_layouts(source, few(cover(source.want.args, WIDEST), 4, spec.name))


@pytest.mark.parametrize("name", FIXTURES)
def test_possible_layouts_are_there(needs_mount, fixtures, name):
    args = megatron_files.read(fixtures / name, strict=False).args
    with views(fixtures / name) as view:
        wrong = [str(layout) for layout in grid(args) if view(layout.view).is_dir() != layout.fits(args)]
        assert not wrong, f"{wrong[:8]} and others ({len(wrong)}) are there and should not be, or the reverse"
        for odd in ("tp2", "pp2-tp2", "tp02-pp2", "tp2-pp2-ep1-", "tp0-pp1", "tp2-pp2-vpp2-ep1", "tp4294967297-pp1"):
            assert not view(f"megatron/torch/{odd}").exists(), odd


# The source's own layout.

def assert_same_files(directory, source, ignored=()):
    """Every file is, object for object, what Megatron wrote; but nothing of a rank's name stands in the arguments.

    Where the tensor ranks of experts are not those of the rest, Megatron writes only the files, and only the optimizer's parts, of some
    data-parallel ranks; a view has them for all.
    """
    directory, source = megatron_files.iteration(directory), megatron_files.iteration(source)
    names, shown = ({str(path.relative_to(place)) for path in place.glob("mp_rank_*/*.pt")} for place in (source, directory))
    assert names <= shown and (names == shown or "etp" in str(own(megatron_files.read(directory).args))), sorted(names ^ shown)
    for name in sorted(names):
        want, got = megatron_files.load(source / name), megatron_files.load(directory / name)
        if isinstance(want, list):
            got = [part if there else None for there, part in zip(want, got)]
        found = megatron_files.differences(want, got, name, (*OF_A_RANK, *ignored))
        assert not found, "\n".join(found[:12])


@pytest.mark.parametrize("name", LEGACY)
def test_own_layout_is_the_fixture(fixtures, name):
    with views(fixtures / name) as view:
        assert_same_files(view(own(megatron_files.read(fixtures / name, strict=False).args).view), fixtures / name)


SAME_FILES = [s for s in WRITTEN if s.format == "torch"
              and not s.te_names                            # renamed by our writer, and so without Transformer Engine's own state
              and not s.set.get("moe_grouped_gemm")]        # shown as single experts, as every Megatron can load them


@pytest.mark.parametrize("spec", SAME_FILES, ids=by_name)
def test_own_layout_is_what_was_written(checkpoint, spec):
    layout = own(megatron_files.read(checkpoint(spec)).args)
    if layout:
        ignored = ["num_layers_per_virtual_pipeline_stage"] if layout.first or layout.last else []  # our writer's alone: there is no such number
        with views(checkpoint(spec)) as view:
            assert_same_files(view(layout.view), checkpoint(spec), ignored)


@pytest.mark.parametrize("name", [*swept.share(FIXTURES, 2), "mixtral-dist-grouped-tp2"])
def test_names_of_transformer_engine(fixtures, checkpoint, name):
    """Norms are fused into the linears behind them; experts are fused where the run has them so."""
    source = Source(fixtures / name if "/" in name else checkpoint(checkpoints.BY_NAME[name]))
    with views(source.path, spec="te") as view:
        for layout in few(cover(source.want.args), 3, name):
            got = source.check(view(layout.view), f"{layout}, te")
            files = megatron_files.iteration(view(layout.view)).glob("mp_rank_00*/model_optim_rng.pt")  # of all stages
            keys = [key for path in files for chunk in megatron_files.chunks_of(megatron_files.load(path)) for key in chunk]
            assert any(key.endswith("layer_norm_weight") for key in keys)
            assert any(key.endswith("linear_fc1.weight0") for key in keys) == bool(got.args.num_experts and got.args.moe_grouped_gemm)
            assert any(".local_experts." in key for key in keys) == bool(got.args.num_experts and not got.args.moe_grouped_gemm)
        source.check(view("megatron/torch_dist"), "torch_dist, te")


# torch's own loaders.

def ask(python, directories, environment=None):
    script = pathlib.Path(__file__).parent / "peers" / "load_files.py"
    done = subprocess.run([python, script, *map(str, directories)], capture_output=True, text=True, timeout=1800, env=environment)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    return done.stdout


PYTHONS = swept.todays(["main", "old"], 1)


@pytest.mark.parametrize("python", PYTHONS)
def test_torch_loads_every_file(fixtures, tmp_path, python):
    """torch.load with and without weights_only, with Megatron's allow-list; FileSystemReader and dcp.load without processes."""
    places = []
    for name in FIXTURES if python == "main" else FIXTURES[::3]:
        (tmp_path / name).mkdir(parents=True)
        args = megatron_files.read(fixtures / name, strict=False).args
        for layout in (own(args), cover(args)[0]):
            places.append(export(fixtures / name, layout.view, tmp_path / name / str(layout)))
        places.append(export(fixtures / name, "megatron/torch_dist", tmp_path / name / "torch_dist"))
    try:
        interpreter, environment = (sys.executable, None) if python == "main" else (venvs.python("old", "torch 2.5.1"), dict(os.environ))
        if environment:
            environment["PYTHONPATH"] = str(venvs.core("0.12.3", interpreter))
    except venvs.Missing as reason:
        pytest.skip(str(reason))
    said = ask(interpreter, [megatron_files.iteration(place) for place in places], environment)
    assert said.count("\n") == len(places)
    for place in places:
        if place.name == "torch_dist":
            want, got = megatron_files.stored_tensors(megatron_files.iteration(place)), megatron_files.load(place / "loaded")
            assert got.keys() == want.keys() and all(megatron_files.same(got[key], tensor) for key, tensor in want.items())


# There and back.

def padded_alike(args, layout):
    """Whether the vocabulary keeps its rows at `layout`: what is padded further stays so where nobody says the true size."""
    multiple = args.make_vocab_size_divisible_by * layout.tp
    return args.vocab_size or args.padded_vocab_size % multiple == 0


def round_trip(source, tmp_path, layout, same_files):
    """The source at `layout`, written out; its own layout and torch_dist from there; and each as a source once more."""
    there = export(source.path, layout.view, tmp_path / "there")
    dist = export(source.path, "megatron/torch_dist", tmp_path / "dist")
    back = source.own or Layout()
    for step, path in ((f"by {layout}", there), ("by torch_dist", dist)):
        with views(path) as view:
            source.check(view(back.view), f"{step} and back")
            source.check(view("megatron/torch_dist"), f"{step} to torch_dist")
            if same_files and padded_alike(source.want.args, layout):
                assert_same_files(view(back.view), source.path, LOST)


def by_hf(source, tmp_path, layout):
    """Weights alone, and the rows of the vocabulary that are a model's."""
    hf = export(source.path, "hf", tmp_path / "hf")
    with views(hf) as view:
        for name in (layout.view, "megatron/torch_dist"):
            got = megatron_files.read(view(name))
            assert not got.states and not got.unread
            megatron_files.assert_same_contents(got, source.want, f"{source.path.name}: by hf, {name}", states=False, cropped=True)


@pytest.mark.parametrize("name", swept.share(FIXTURES, 2))
def test_fixtures_there_and_back(fixtures, tmp_path, name):
    source = Source(fixtures / name)
    layout = cover(source.want.args)[0]
    round_trip(source, tmp_path, layout, name in LEGACY)
    by_hf(source, tmp_path, layout)


@pytest.mark.parametrize("spec", SWEPT, ids=by_name)
def test_written_there_and_back(checkpoint, tmp_path, spec):
    source = Source(checkpoint(spec))
    layout = cover(source.want.args, WIDEST)[0]
    round_trip(source, tmp_path, layout, source.own and spec in SAME_FILES)
    by_hf(source, tmp_path, layout)


def test_wrong_bytes_are_noticed(fixtures, tmp_path):
    """These tests can fail: one bit of one tensor, and two shards exchanged."""
    name = "weights/mixtral-torch-pp2-ep2"
    source = Source(fixtures / name)
    view = export(fixtures / name, "megatron/torch/tp2-pp2-ep2", tmp_path / "view")
    source.check(view, "unharmed")
    files = sorted(view.glob("iter_*/mp_rank_*/model_optim_rng.pt"))
    whole = files[0].read_bytes()
    place = len(whole) // 2
    files[0].write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1:])
    with pytest.raises(AssertionError):
        source.check(view, "one bit")
    files[0].write_bytes(whole)
    source.check(view, "unharmed")
    other = files[-1].read_bytes()
    files[-1].write_bytes(whole)
    with pytest.raises((AssertionError, KeyError)):
        source.check(view, "a rank's file for another's")
    files[-1].write_bytes(other)
    source.check(view, "unharmed")


