"""The shards to the byte: the safetensors library must write what we show."""
import json

import pytest
import safetensors
import safetensors.torch

import program
import swept
from test_fixtures import WITH_LOGITS

SOURCES = [name for name, _ in WITH_LOGITS] + ["weights/llama-torch-tp2-pp2", "weights/mixtral-torch-pp2-ep2"]


def shards(directory):
    found = sorted(directory.glob("*.safetensors"))
    assert found
    return found


def assert_canonical(path):
    """Rewriting the file with the library gives the same bytes: order, padding, metadata and all."""
    tensors = safetensors.torch.load_file(path)
    assert safetensors.torch.save(tensors, metadata={"format": "pt"}) == path.read_bytes(), path.name


def assert_indexed(directory):
    """The index and the shards agree on every tensor and on the number of bytes; a single file has no index."""
    found, index = shards(directory), directory / "model.safetensors.index.json"
    if len(found) == 1:
        assert found[0].name == "model.safetensors" and not index.exists()
        return
    written = json.loads(index.read_text())
    places, size = {}, 0
    for number, path in enumerate(found, 1):
        assert path.name == f"model-{number:05d}-of-{len(found):05d}.safetensors"
        with safetensors.safe_open(path, "pt") as shard:
            assert shard.metadata() == {"format": "pt"}
            for name in shard.keys():
                assert name not in places, f"{name} stands in two shards"
                places[name] = path.name
                tensor = shard.get_tensor(name)
                size += tensor.numel() * tensor.element_size()
    assert written["weight_map"] == places
    assert written["metadata"]["total_size"] == size


@pytest.mark.parametrize("shard_size", [None, 100_000, "150KB"])
@pytest.mark.parametrize("name", SOURCES)
def test_fixture_shards(fixtures, name, shard_size):
    with program.hf(fixtures / name, **(dict(shard_size=shard_size) if shard_size else {})) as directory:
        for path in shards(directory):
            assert_canonical(path)
        assert_indexed(directory)


@pytest.mark.parametrize("spec", [s for s in swept.LAYOUTS if s.family in ("deepseek", "gpt2")], ids=lambda spec: spec.name)
def test_mixed_types_and_transposes(checkpoint, spec):
    with program.hf(checkpoint(spec), shard_size=150_000) as directory:
        for path in shards(directory):
            assert_canonical(path)
        assert_indexed(directory)


@pytest.mark.parametrize("name", SOURCES)
def test_shard_size_moves_no_tensor(fixtures, name):
    def tensors(**options):
        with program.hf(fixtures / name, **options) as directory:
            return {key: value.clone() for path in shards(directory) for key, value in safetensors.torch.load_file(path).items()}

    whole, cut = tensors(), tensors(shard_size=100_000)
    assert whole.keys() == cut.keys()
    assert all(whole[key].dtype == cut[key].dtype and whole[key].equal(cut[key]) for key in whole)
