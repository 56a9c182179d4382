"""The committed checkpoints of Megatron-LM 0.20, trained on GPUs: transformers must give Megatron's logits."""
import json

import pytest
import transformers

import config_keys
import models
import program

# (directory, view): resume/*/logits.npz is of iteration 20, whatever the newest one is
WITH_LOGITS = [
    ("weights/deepseek-torch_dist-pp2-ep2", "latest/hf"),
    ("weights/gpt2-torch-tp2-pp2", "latest/hf"),
    ("weights/llama-torch_dist-tp2-pp2-vpp2", "latest/hf"),
    ("weights/mixtral-torch_dist-pp2-ep2", "latest/hf"),
    ("weights/qwen3-torch_dist-tp4", "latest/hf"),
    ("resume/llama-torch_dist-tp2-pp2", "iter_0000020/hf"),
    ("resume/llama-torch_dist-tp2-pp2-vpp2", "iter_0000020/hf"),
    ("resume/qwen2-torch-tp2-dp2-distopt", "iter_0000020/hf"),
]
NAMES = [name for name, _ in WITH_LOGITS]


@pytest.mark.parametrize("name, view", WITH_LOGITS, ids=NAMES)
def test_logits_are_megatrons(fixtures, name, view):
    with program.hf(fixtures / name, view) as directory:
        assert models.difference(models.load(directory), fixtures / name / "logits.npz") <= models.LOGIT_TOLERANCE


@pytest.mark.parametrize("name, view", WITH_LOGITS, ids=NAMES)
def test_iteration_directory_as_source(fixtures, name, view):
    iteration = view.split("/")[0]
    if iteration == "latest":
        iteration = f"iter_{int((fixtures / name / 'latest_checkpointed_iteration.txt').read_text()):07d}"
    with program.hf(fixtures / name / iteration, f"{iteration}/hf") as directory:
        assert models.difference(models.load(directory), fixtures / name / "logits.npz") <= models.LOGIT_TOLERANCE


@pytest.mark.parametrize("name, view", WITH_LOGITS, ids=NAMES)
def test_several_shards_hold_the_same_model(fixtures, name, view):
    with program.hf(fixtures / name, view, shard_size=100_000) as directory:
        assert len(list(directory.glob("*.safetensors"))) > 2
        assert models.difference(models.load(directory), fixtures / name / "logits.npz") <= models.LOGIT_TOLERANCE


@pytest.mark.parametrize("name, view", WITH_LOGITS, ids=NAMES)
def test_vocabulary_is_cropped_on_demand(fixtures, name, view):
    with program.hf(fixtures / name, view, vocab_size=1000) as directory:
        model = models.load(directory)
        assert model.config.vocab_size == model.get_input_embeddings().weight.shape[0] == 1000
        assert models.difference(model, fixtures / name / "logits.npz") <= models.LOGIT_TOLERANCE


@pytest.mark.parametrize("name, view", WITH_LOGITS, ids=NAMES)
def test_config_is_complete(fixtures, name, view):
    """Every value that AutoConfig ends up with and that shapes the model stands in config.json: nothing is left to a default."""
    with program.hf(fixtures / name, view) as directory:
        written = json.loads((directory / "config.json").read_text())
        assert written["architectures"] and written["vocab_size"] == 1024
        assert transformers.GenerationConfig.from_pretrained(directory) is not None
        unsaid = config_keys.unsaid(directory)
        assert not unsaid, f"left to transformers' defaults: {unsaid}"
