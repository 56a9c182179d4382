"""Megatron-Bridge turns our torch_dist views into HuggingFace weights, and they are those of our hf view, byte for byte."""
import json
import os
import pathlib
import subprocess
import sys

import pytest
from safetensors.torch import load_file

import hf_models
import megatron_files
import venvs
from views import export

SOURCES = ["weights/llama-torch_dist-tp2-pp2-vpp2", "resume/qwen2-torch-tp2-dp2-distopt", "weights/qwen3-torch_dist-tp4", "hf/llama", "hf/qwen2"]
PEER = pathlib.Path(__file__).parent / "peers" / "export_bridge.py"


@pytest.fixture(scope="module")
def exported(fixtures, tmp_path_factory):
    """{source: (what Bridge wrote, the directory that it must equal, error)}, from one process."""
    try:
        folder = venvs.folder("bridge", "Megatron-Bridge", sys.executable)
    except venvs.Missing as reason:
        pytest.skip(str(reason))
    place, found, arguments = tmp_path_factory.mktemp("bridge"), {}, []
    for number, name in enumerate(SOURCES):
        family = name.removeprefix("hf/")
        source = hf_models.make(family, place / f"{number}-source") if family in hf_models.CONFIGS else fixtures / name
        hf = export(source, "hf", place / f"{number}-hf")
        dist = export(source, "megatron/torch_dist", place / f"{number}-dist")
        out = place / f"{number}-bridge"
        found[name] = out, (source if source.parent == place else hf)
        arguments += [dist, hf, out]
    environment = dict(os.environ, PYTHONPATH=str(folder))
    done = subprocess.run([sys.executable, PEER, *map(str, arguments)], capture_output=True, text=True, timeout=1800, env=environment)
    said = {line["out"]: line["error"] for line in map(json.loads, filter(lambda line: line.startswith('{"out"'), done.stdout.splitlines()))}
    assert len(said) == len(SOURCES), done.stdout[-1000:] + done.stderr[-3000:]
    return {name: (out, want, said[str(out)]) for name, (out, want) in found.items()}


@pytest.mark.parametrize("name", SOURCES)
def test_bridge_exports_the_hf_view(exported, name):
    out, want, error = exported[name]
    assert not error, error
    got, want = ({k: t for path in directory.glob("*.safetensors") for k, t in load_file(path).items()} for directory in (out, want))
    assert got.keys() == want.keys(), sorted(got.keys() ^ want.keys())[:5]
    wrong = [key for key, tensor in want.items() if not megatron_files.same(got[key], tensor)]
    assert not wrong, wrong[:5]
