"""The Python package, as its wheel installs it: bytes against exports, boxes against numpy, transformers without a mount, errors, forks, leaks."""
import errno
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import threading
import types

import numpy
import pytest
import safetensors
import safetensors.torch
import torch
import transformers

import hf_models
import models
import program
import swept

FULL = "weights/llama-torch_dist-tp2-pp2-vpp2"
VIEWS = {
    "weights/deepseek-torch_dist-pp2-ep2": ["hf", "raw"],
    "weights/gpt2-torch-tp2-pp2": ["hf", "hf-fp32"],
    "weights/llama-torch-tp2-pp2": ["hf", "hf-fp16"],
    FULL: ["hf", "hf-fp8", "vllm/tp2", "hf-bin"],
    "weights/mixtral-torch-pp2-ep2": ["hf"],
    "weights/mixtral-torch_dist-pp2-ep2": ["hf", "hf-bf16"],
    "weights/qwen3-torch_dist-tp4": ["hf", "hf-fp8-tensor"]}
# What a person does who has nothing but the package: no compiler in PATH, no torch, no numpy.
ALONE = """
import sys, mcorefs
with mcorefs.Source(sys.argv[1]) as source, source.open("hf") as view:
    info = view.find("lm_head.weight")
    assert view.read(info.file, info.offset, info.bytes) == view.read(info.file)[info.offset:info.offset + info.bytes]
    print(view.name, mcorefs.__version__, mcorefs.__file__)
"""


@pytest.fixture(scope="session")
def package(package_path):
    """The module, in this process, which has torch."""
    sys.path.insert(0, str(package_path))
    import mcorefs
    return mcorefs


def export(source, view, place):
    done = program.export(source, view, place)
    assert done.returncode == 0, done.stderr
    return place


def bits(tensor):
    return tensor.contiguous().view(torch.uint8) if tensor.ndim else tensor.reshape(1).view(torch.uint8)


def same(one, other):
    return one.dtype == other.dtype and one.shape == other.shape and torch.equal(bits(one), bits(other))


def refused(code, sentence, call):
    with pytest.raises(OSError) as caught:
        call()
    assert caught.value.errno == code and sentence in str(caught.value), f"{caught.value.errno}: {caught.value}"


def test_alone(package_path, fixtures):
    venv = package_path.parents[2]
    python = venv / "bin" / "python"
    done = subprocess.run([python, "-I", "-c", ALONE, fixtures / FULL], capture_output=True, text=True, timeout=program.SECONDS, env={"PATH": str(venv / "bin")})
    assert done.returncode == 0, done.stderr
    view, version, file = done.stdout.split()
    assert view == "iter_0000040/hf" and pathlib.Path(file).is_relative_to(venv) and version == program.run("--version").stdout.split()[1]


@pytest.mark.parametrize("source", [FULL, "weights/gpt2-torch-tp2-pp2"])
def test_transformers(package, fixtures, tmp_path, source):
    """The three lines of the README, and the logits of the directory that transformers reads itself."""
    config = transformers.AutoConfig.from_pretrained(package.stub(fixtures / source, tmp_path / "stub"))
    made = getattr(transformers, config.architectures[0])
    model = made.from_pretrained(None, config=config, state_dict=package.load(tmp_path / "stub"), dtype=torch.float32, attn_implementation="eager").eval()
    tokens = numpy.array([models.PROMPT])
    expected = models.logits(models.load(export(fixtures / source, "latest/hf", tmp_path / "hf")), tokens)
    assert numpy.array_equal(models.logits(model, tokens), expected)


@pytest.mark.parametrize("source", VIEWS)
def test_bytes(package, fixtures, tmp_path, source):
    """Each tensor of each file, by load(), stream() and safe_open()."""
    with package.Source(fixtures / source) as root:
        for view in VIEWS[source]:
            place = export(fixtures / source, f"latest/{view}", tmp_path / view.replace("/", "_"))
            with root.open(view) as opened:
                for info in opened.files():
                    assert opened.read(info.name) == (place / info.name).read_bytes(), (view, info.name)
                files = sorted({t.file for t in opened.tensors()})
                assert files
                for file in files:
                    expected = safetensors.torch.load_file(place / file) if file.endswith(".safetensors") else torch.load(place / file)
                    loaded = package.load(opened, file=file)
                    assert loaded.keys() == expected.keys() and all(same(loaded[name], expected[name]) for name in expected), (view, file)
                    streamed = dict(package.stream(opened, file=file, ahead=100_000))
                    assert streamed.keys() == expected.keys() and all(same(streamed[name], expected[name]) for name in expected), (view, file)
                    with package.safe_open(opened, file=file) as tensors:
                        name = list(expected)[0]
                        assert same(tensors.get_tensor(name), expected[name]) and tensors.get_slice(name).get_shape() == list(expected[name].shape)


def test_safetensors_interface(package, fixtures, tmp_path):
    place = export(fixtures / FULL, "latest/hf", tmp_path / "hf")
    with package.safe_open(fixtures / FULL, "pt", "cpu") as ours, safetensors.safe_open(place / "model.safetensors", "pt") as theirs:
        assert sorted(ours.keys()) == sorted(theirs.keys()) and ours.metadata() == theirs.metadata() and ours.offset_keys() == theirs.offset_keys()
        for name in theirs.keys():
            one, other = ours.get_slice(name), theirs.get_slice(name)
            assert (one.get_dtype(), one.get_shape()) == (other.get_dtype(), other.get_shape())
            assert same(one[:], other[:]) and same(one[3:9], other[3:9]) and same(one[...], other[...]) and same(one[-1:], ours.get_tensor(name)[-1:])
        with pytest.raises(IndexError):
            ours.get_slice("lm_head.weight")[5000]
        refused(errno.ENOENT, "did you mean 'lm_head.weight'?", lambda: ours.get_tensor("lm_head.wait"))
    refused(errno.EBADF, "closed", lambda: ours.get_tensor("lm_head.weight"))


def random_index(chance, shape):
    index = []
    for n in shape:
        first, end = sorted(chance.randrange(n + 1) for _ in range(2))
        index.append(chance.choice([slice(first, end), slice(first, end, chance.randrange(1, 4)), slice(None), chance.randrange(-n, n)]))
    return tuple(index[:chance.randrange(len(index) + 1)] + [...] * chance.randrange(2))


def test_random_boxes(package, fixtures):
    """Slices against numpy's, and boxes into arrays with random strides, of which nothing else is touched."""
    chance = random.Random(swept.SEED)
    for source, view in ((FULL, "hf-fp32"), ("weights/gpt2-torch-tp2-pp2", "hf"), (FULL, "hf-fp8")):
        with package.Source(fixtures / source) as root, root.open(view) as opened:
            whole = package.load(opened, framework="np-bits")
            with package.safe_open(opened, "np-bits") as tensors:
                for _ in range(60):
                    name = chance.choice(list(whole))
                    index = random_index(chance, whole[name].shape)
                    assert numpy.array_equal(tensors.get_slice(name)[index], whole[name][index]), (name, index)
            boxes, checks = [], []
            for name in chance.sample(list(whole), 12):
                array = whole[name]
                box = [slice(*sorted(chance.randrange(n + 1) for _ in range(2))) for n in array.shape]
                order = chance.sample(range(array.ndim), array.ndim)
                steps = [chance.randrange(1, 4) for _ in order]
                wanted = array[tuple(box)]
                around = numpy.full([wanted.shape[a] * s + 1 for a, s in zip(order, steps)], 77).astype(array.dtype)
                inside = tuple(slice(0, wanted.shape[a] * s, s) for a, s in zip(order, steps))
                target = around[inside].transpose(numpy.argsort(order))
                boxes.append((name, target, box))
                checks.append((around, inside, wanted.transpose(order)))
            state = opened.fill(boxes, memory=1 << 20, threads=chance.randrange(3))
            assert state.done == state.bytes == sum(target.nbytes for _, target, _ in boxes)
            for around, inside, wanted in checks:
                expected = numpy.full(around.shape, 77).astype(around.dtype)
                expected[inside] = wanted
                assert numpy.array_equal(around, expected)


def test_dlpack(package, fixtures):
    arrays, tensors = (package.load(fixtures / FULL, view="hf-fp32", framework=framework, names=["lm_head.weight"]) for framework in ("np", "pt"))
    assert torch.equal(torch.from_dlpack(arrays["lm_head.weight"]), tensors["lm_head.weight"])
    assert numpy.array_equal(numpy.from_dlpack(tensors["lm_head.weight"]), arrays["lm_head.weight"])


def test_bad_input(package, fixtures, tmp_path):
    source = fixtures / FULL
    refused(errno.ENOENT, "No such file or directory", lambda: package.load(tmp_path / "nowhere"))
    refused(errno.ENOENT, "has no view 'hff'", lambda: package.load(source, view="hff"))
    refused(errno.EINVAL, "is of mounts", lambda: package.load(source, options={"allow_other": True}))
    refused(errno.ENOTSUP, "framework 'tf' is unknown", lambda: package.load(source, framework="tf"))
    refused(errno.EINVAL, "arrays of numpy are in host memory", lambda: package.load(source, framework="np", device="cuda:0"))
    refused(errno.EEXIST, "several files have a tensor", lambda: package.load(source, view="vllm/tp2"))
    refused(errno.EEXIST, "is not empty", lambda: package.stub(source, fixtures))
    refused(errno.EINVAL, "has 2 datasets", lambda: package.rows(fixtures / "data"))
    with package.Source(source) as root, root.open() as view:
        array = numpy.zeros((4, 64), numpy.float32)
        refused(errno.EINVAL, "is BF16, and what it is to be read into is float32", lambda: view.fill([("lm_head.weight", array, [slice(4), slice(64)])]))
        refused(errno.EINVAL, "the box has shape [4, 64]", lambda: view.fill([("lm_head.weight", array[:3], [slice(4), slice(64)])]))
        refused(errno.EINVAL, "one place", lambda: view.fill([("lm_head.weight", torch.zeros(64, dtype=torch.bfloat16).expand(1024, 64))]))
        refused(errno.ENOENT, "there is no tensor 9999", lambda: view.fill([(9999, array)]))
        refused(errno.ENOENT, "tokenizer.jso", lambda: view.read("tokenizer.jso"))
    if not torch.cuda.is_available():
        with pytest.raises(RuntimeError):  # torch's own sentence
            package.load(source, device="cuda")


def test_changed_sources(package, fixtures, tmp_path):
    """What was opened and is another file now is refused, and so is a stub of it."""
    source = tmp_path / "source"
    shutil.copytree(fixtures / FULL, source)
    stub = package.stub(source, tmp_path / "stub")
    with package.Source(source) as root, root.open() as view:
        whole = package.load(view)
        for file in source.glob("iter_*/*.distcp"):
            os.truncate(file, file.stat().st_size // 2)
        refused(errno.ESTALE, "distcp", lambda: package.load(view))
        refused(errno.ESTALE, "distcp", lambda: dict(package.stream(view)))
    for file in (fixtures / FULL).glob("iter_*/*.distcp"):
        shutil.copy(file, source / file.parent.name)
    refused(errno.ESTALE, "another release of mcorefs wrote it: write it anew", lambda: package.load(stub))
    assert package.load(source).keys() == whole.keys()


def test_one_tensor(package, fixtures, monkeypatch):
    """A source may be far away: one tensor is waited for in steps, too, and Ctrl-C is seen between them."""
    from mcorefs import _library
    calls, call = [], _library.call
    monkeypatch.setattr(_library, "call", lambda name, *args: calls.append(name) or call(name, *args))
    with package.safe_open(fixtures / FULL) as f:
        assert same(f.get_tensor("lm_head.weight")[:2], f.get_slice("lm_head.weight")[:2])
    assert "load_fill" not in calls and calls.count("load_next") == 4


def test_cancelled(package, fixtures):
    """A load that nobody waits for ends before its arrays go; a stream that is left, too."""
    with package.Source(fixtures / FULL) as root, root.open() as view:
        for _ in range(20):
            arrays = [(t, torch.empty(t.shape, dtype=torch.bfloat16)) for t in view.tensors()]
            work = view.start(arrays)
            work.cancel()
            try:
                work.wait()
            except package.McorefsError as error:
                assert error.errno == errno.ECANCELED
            del work, arrays
        for _ in range(20):
            next(package.stream(view, ahead=200_000))


def test_threads(package, fixtures):
    with package.Source(fixtures / FULL) as root, root.open() as view:
        whole, wrong = package.load(view), []

        def read():
            loaded = package.load(view)
            wrong.extend(name for name in whole if not same(loaded[name], whole[name]))
        readers = [threading.Thread(target=read) for _ in range(8)]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join()
        assert not wrong


def test_fork(package, fixtures):
    """A child is told that it must open for itself; it can, and its parent goes on."""
    with package.Source(fixtures / FULL) as root, root.open() as view:
        names = [t.name for t in view.tensors()]
        pid = os.fork()
        if not pid:
            status = 1
            try:
                refused(errno.EINVAL, "forked", lambda: package.load(view, framework="np-bits"))
                view.close()
                status = 0 if list(package.load(fixtures / FULL, framework="np-bits")) == names else 2
            finally:
                os._exit(status)
        assert os.waitpid(pid, 0)[1] == 0
        assert list(package.load(view)) == names


def resident():
    return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_leaks(package, fixtures):
    """A thousand sources, opened and read, leave no descriptor, no thread and no memory."""
    source = fixtures / "weights/gpt2-torch-tp2-pp2"

    def once():
        with package.Source(source) as root, root.open() as view:
            package.load(view, framework="np-bits", names=["transformer.ln_f.weight"])

    def held():
        return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))

    for _ in range(100):
        once()
    before, memory = held(), resident()
    for _ in range(900):
        once()
    assert held() == before and resident() - memory < 8 << 20, (held(), before, resident() - memory)


@pytest.mark.parametrize("name", ["tales_text_document", "notes_text_document"])
def test_rows(package, fixtures, name):
    """Of Megatron's .bin, which are mapped and not copied."""
    index = numpy.fromfile(fixtures / "data" / f"{name}.idx", numpy.uint8)
    code, count = index[17], int(index[18:26].view(numpy.int64)[0])
    dtype = {1: numpy.uint8, 4: numpy.int32, 8: numpy.uint16}[int(code)]
    lengths, stream = index[34:34 + 4 * count].view(numpy.int32), numpy.fromfile(fixtures / "data" / f"{name}.bin", dtype)
    rows, ends = package.rows(fixtures / "data" / name), numpy.cumsum(lengths)
    assert len(rows) == count and rows.dtype == dtype and rows.is_mapped
    for i, end in enumerate(ends):
        assert numpy.array_equal(rows[i], stream[end - lengths[i]:end])
    assert numpy.array_equal(rows[-1], rows[count - 1]) and not rows[0].flags.writeable and isinstance(rows[1].base, numpy.memmap)
    with pytest.raises(IndexError):
        rows[count]
    source = package.Source(fixtures / "data" / name)
    assert numpy.array_equal(package.rows(source, name)[2], rows[2])


def test_rows_of_datasets(package, fixtures):
    """What datasets has written (README.md of the fixtures): several files, and rows in an order of their own."""
    def tokens(i):
        return [(i * 131 + k * 17) % 1000 for k in range(i * 7 % 11)]

    made = {"saved": [[] if i % 13 == 5 else tokens(i) for i in range(40)], "cache": [tokens(i) for i in range(30)],
            "indices": [tokens(i) for i in (16, 12, 18, 8, 3, 13, 15, 10, 6, 1, 2, 11)]}
    for name, expected in made.items():
        rows = package.rows(fixtures / "data/hf_dataset" / name)
        assert [row.tolist() for row in rows] == expected and rows.is_mapped, name


def test_stub_of_both(package, fixtures, tmp_path):
    """The command and the package write the same."""
    package.stub(fixtures / FULL, tmp_path / "ours", options={"shard_size": 300000, "tokenizer": fixtures / "data/tokenizer"})
    done = program.run("stub", fixtures / FULL, tmp_path / "theirs", "-o", f"shard_size=300000,tokenizer={fixtures / 'data/tokenizer'}")
    assert done.returncode == 0, done.stderr
    ours, theirs = ({path.name: path.read_bytes() for path in (tmp_path / who).iterdir()} for who in ("ours", "theirs"))
    assert ours == theirs and json.loads(ours["mcorefs.json"])["view"] == "iter_0000040/hf"
    assert package.load(tmp_path / "theirs").keys() == package.load(fixtures / FULL).keys()


def test_url(package, fixtures):
    """A gateway's directory as a source."""
    with program.serving(f"lab/llama={fixtures / FULL}") as address:
        served = package.load(f"{address}/files/lab/llama/main/")
    mine = package.load(fixtures / FULL)
    assert all(same(served[name], mine[name]) for name in mine)


def test_vllm_shard(package, tmp_path):
    """The parts of vllm/tp2 into parameters, as the load format does, without vLLM's processes."""
    from mcorefs import _ranks, vllm
    made = hf_models.make("llama", tmp_path / "llama", head_dim=32, vocab_size=1000)
    place = export(made, "vllm/tp2", tmp_path / "shards")
    for asked, parts, found in (("hf", "tp2", "vllm/tp2"), ("iter_0000040/hf", "tp2-ep2", "iter_0000040/vllm/tp2-ep2"), ("vllm/tp2", "tp4", None),
                                ("hf-fp16", "tp2", None), ("latest/hf-fp8", "tp2", "latest/vllm-fp8/tp2"),
                                ("hf-fp8-tensor", "tp2", "vllm-fp8-tensor/tp2"), ("vllm-fp8-tensor/tp2", "tp2", "vllm-fp8-tensor/tp2"),
                                ("sglang/tp2", "tp2", None)):
        assert _ranks.rank_view(asked, parts, vllm.VIEWS) == found
    with package.Source(made) as root, root.open("vllm/tp2") as view:
        for rank in range(2):
            expected = safetensors.torch.load_file(place / f"model-rank-{rank}-part-0.safetensors")
            parameters = {name: torch.nn.Parameter(torch.empty_like(tensor)) for name, tensor in expected.items()}
            _ranks.fill(view, _ranks.places(view, rank, parameters))
            assert all(same(parameters[name].data, expected[name]) for name in expected)
            wider = {name: torch.nn.Parameter(torch.empty(tensor.shape)) for name, tensor in expected.items()}
            _ranks.fill(view, _ranks.places(view, rank, wider))
            assert all(same(wider[name].data, expected[name].float()) for name in expected)
            parameters.popitem()
            with pytest.raises(_ranks.Differs):
                _ranks.places(view, rank, parameters)


def test_sglang_updates(package, fixtures, tmp_path):
    """A directory that gives no weights is refused before SGLang's model is changed."""
    from mcorefs import sglang
    source = tmp_path / "source"
    shutil.copytree(fixtures / FULL, source)
    good, parts = package.stub(source, tmp_path / "good"), tmp_path / "parts"
    sglang._check_whole(good)
    shutil.copytree(good, parts)
    about = json.loads((parts / "mcorefs.json").read_text())
    (parts / "mcorefs.json").write_text(json.dumps(about | {"view": "iter_0000040/sglang/tp2"}))
    with pytest.raises(ValueError, match="a stub of hf fits all workers"):
        sglang._check_whole(parts)
    (parts / "mcorefs.json").write_text(json.dumps(about | {"mcorefs_stub": 1}))
    refused(errno.ENOTSUP, "reads 2: write it anew", lambda: sglang._check_whole(parts))
    os.utime(next(source.glob("iter_*/*.distcp")), (1, 1))
    refused(errno.ESTALE, "write it anew", lambda: sglang._check_whole(good))


@pytest.mark.parametrize("verify", [{}, {"_verify_load_format": print}])
def test_sglang_registers(package, verify, monkeypatch):
    """The load format is offered only where it can be loaded."""
    from mcorefs import sglang
    offered, hooks = [], []
    made = {"server_args": dict(LOAD_FORMAT_CHOICES=offered, add_load_format_choices=offered.extend),
            "configs.load_config": dict(LoadConfig=type("LoadConfig", (), verify)),
            "plugins.hook_registry": dict(HookRegistry=types.SimpleNamespace(register=lambda *hook: hooks.append((*hook, list(offered)))),
                                          HookType=types.SimpleNamespace(AROUND="around"))}
    for name in ("sglang", "sglang.srt", "sglang.srt.configs", "sglang.srt.plugins", *(f"sglang.srt.{name}" for name in made)):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    for name, members in made.items():
        vars(sys.modules[f"sglang.srt.{name}"]).update(members)
    sys.modules["sglang.srt"].server_args = sys.modules["sglang.srt.server_args"]
    sglang.register()
    sglang.register()
    assert offered == ["mcorefs"] * bool(verify) and [hook[2:] for hook in hooks] == [("around", [])] * bool(verify)


def runner_module(monkeypatch, name, said):
    """One that has vLLM's second model runner, as far as it is asked here."""
    class Runner:
        def reload_weights(self, weights_iterator=None, weights_path=None, is_checkpoint_format=True):
            said.append(weights_path)

        def get_model(self):
            return self.model

        def reset_mm_cache(self):
            said.append("reset")

    module = types.ModuleType(name)
    module.GPUModelRunner = Runner
    monkeypatch.setitem(sys.modules, name, module)
    return Runner


def test_vllm_reloads_in_place(package, fixtures, monkeypatch):
    """A worker's own part goes to where the parameters are; what is not as it was loaded, and other load formats, go vLLM's way."""
    from mcorefs import vllm

    said, source = [], str(fixtures / FULL)
    for name in ("vllm", "vllm.v1", "vllm.v1.worker", "vllm.v1.worker.gpu"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    runners = [runner_module(monkeypatch, f"vllm.v1.worker.{name}", said) for name in ("gpu_model_runner", "gpu.model_runner")]
    one = types.ModuleType("vllm.distributed")
    one.get_tensor_model_parallel_world_size, one.get_tensor_model_parallel_rank = lambda: 1, lambda: 0
    monkeypatch.setitem(sys.modules, one.__name__, one)
    monkeypatch.setattr(vllm, "_alone", lambda state: state)
    vllm._reload_in_place()
    vllm._reload_in_place()
    wanted = package.load(source, "vllm/tp1")
    parameters = {name: torch.nn.Parameter(torch.zeros_like(tensor)) for name, tensor in wanted.items()}
    model = types.SimpleNamespace(state_dict=lambda: parameters, modules=lambda: [], parameters=parameters.values)
    config = types.SimpleNamespace(model="old", revision="old", quantization=None)
    for kind in runners:
        runner = kind()
        runner.model = model
        runner.vllm_config = types.SimpleNamespace(load_config=types.SimpleNamespace(load_format="mcorefs"), model_config=config,
                                                   parallel_config=types.SimpleNamespace(enable_expert_parallel=False))
        said.clear()
        runner.reload_weights(weights_path=source)  # of the CPU, which packs its weights
        assert said == [source] and config.model == "old"
        with monkeypatch.context() as patch:
            patch.setattr(vllm, "_as_loaded", lambda model: True)
            for parameter in parameters.values():
                parameter.data.zero_()
            runner.reload_weights(weights_path=source)
            assert said == [source, "reset"]
            runner.reload_weights(weights_path=str(fixtures / "weights/gpt2-torch-tp2-pp2"))  # no such view of it
            runner.vllm_config.load_config.load_format = "auto"
            runner.reload_weights(weights_path="other")
        assert said[2:] == [str(fixtures / "weights/gpt2-torch-tp2-pp2"), "other"] and (config.model, config.revision) == (source, None)
        assert all(torch.equal(bits(parameters[name].data), bits(tensor)) for name, tensor in wanted.items())
        config.model = config.revision = "old"
