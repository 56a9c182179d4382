"""The tokenizer that a torch_dist checkpoint carries, through AutoTokenizer."""
import json

import pytest
import transformers

import program

# and the tokenizer that each was trained with: those of weights/ are of an earlier corpus, and stand in the checkpoints alone
CARRIERS = {"weights/deepseek-torch_dist-pp2-ep2": "weights/deepseek-torch_dist-pp2-ep2/iter_0000040/tokenizer",
            "weights/llama-torch_dist-tp2-pp2-vpp2": "weights/llama-torch_dist-tp2-pp2-vpp2/iter_0000040/tokenizer",
            "weights/mixtral-torch_dist-pp2-ep2": "weights/mixtral-torch_dist-pp2-ep2/iter_0000040/tokenizer",
            "weights/qwen3-torch_dist-tp4": "weights/qwen3-torch_dist-tp4/iter_0000040/tokenizer",
            "resume/llama-torch_dist-tp2-pp2": "data/tokenizer"}


def texts(fixtures, count=50):
    for name in ("tales", "notes"):
        with open(fixtures / "data" / f"{name}.jsonl") as lines:
            for _, line in zip(range(count), lines):
                yield json.loads(line)["text"]


@pytest.mark.parametrize("name", CARRIERS)
def test_round_trip(fixtures, name):
    reference = transformers.AutoTokenizer.from_pretrained(fixtures / CARRIERS[name])
    with program.hf(fixtures / name) as directory:
        tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
    checked = 0
    for text in texts(fixtures):
        tokens = tokenizer(text)["input_ids"]
        assert tokens == reference(text)["input_ids"]
        assert tokenizer.decode(tokens, skip_special_tokens=True) == text
        checked += 1
    assert checked == 100


@pytest.mark.parametrize("name", CARRIERS)
def test_vocabulary_by_tokenizer(fixtures, name):
    with program.hf(fixtures / name, vocab_size="tokenizer") as directory:
        config = transformers.AutoConfig.from_pretrained(directory)
        assert config.vocab_size == len(transformers.AutoTokenizer.from_pretrained(directory))
