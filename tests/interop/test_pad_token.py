"""A pad token of the tokenizer, against megatron-core's GPTDataset: which labels do not count, what is embedded in their place, and the loss.

The judge is asked for each sample as if it were a dataset's first one: Megatron keeps that one's mask for the others
(docs/formats/gpt-dataset.md). Losses of several microbatches are added up over all labels that count, as its training.py logs them.
"""
import dataclasses
import json
import pathlib
import re
import subprocess

import numpy
import pytest
import torch
import transformers
from tokenizers import Tokenizer, models

import program

MODELS = pathlib.Path(__file__).parents[1] / "fuzz/corpus/sentencepiece"
VOCAB, SEQ, BATCH = 256, 64, 4


@dataclasses.dataclass
class Case:
    """flags: ours; judge: what builds Megatron's tokenizer; pad: which token is padding."""
    flags: list
    judge: dict
    pad: int | None
    ambiguous: bool = False
    masks: dict = dataclasses.field(default_factory=dict)


def huggingface(name, pad, **more):
    return Case(["--tokenizer-type", "HuggingFaceTokenizer", "--tokenizer-model", f"TOKENIZERS/{name}"],
                dict(tokenizer_path=f"TOKENIZERS/{name}", metadata_path={"library": "huggingface"}), pad, **more)


# Tokens of the data: 0 ends documents, 1 is frequent.
CASES = {
    "pad": huggingface("pad", 1),
    "pad-in-the-vocabulary": huggingface("vocabulary", 1),
    "pad-of-the-map": huggingface("map", 1),
    "none": huggingface("none", None),
    "same-as-eos": huggingface("eos", None),
    "ambiguous": huggingface("eos", 0, ambiguous=True),
    "ambiguous-masks": huggingface("eos", 0, ambiguous=True, masks=dict(reset_attention_mask=True, reset_position_ids=True, eod_mask_loss=True)),
    "documents": huggingface("pad", 1, masks=dict(reset_attention_mask=True, reset_position_ids=True)),
    "null": dataclasses.replace(huggingface("pad", 1), flags=["--tokenizer-type", "NullTokenizer", "--vocab-size", VOCAB, "--null-tokenizer-pad-id", 1]),
    "sentencepiece": Case(["--tokenizer-type", "Llama2Tokenizer", "--tokenizer-model", MODELS / "ok-eos-last", "--make-vocab-size-divisible-by", VOCAB],
                          dict(tokenizer_path=str(MODELS / "ok-eos-last"), metadata_path={"library": "sentencepiece"}), 3),
}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Directories of a model and of tokenizers, the data's prefix, and the model."""
    where = tmp_path_factory.mktemp("pad")
    torch.manual_seed(1)
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(
        hidden_size=32, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=2, intermediate_size=64, vocab_size=VOCAB,
        max_position_embeddings=128, tie_word_embeddings=False)).float().eval()
    for p in model.parameters():
        p.data.copy_(torch.randn(p.shape) * 0.3 + (p.dim() == 1))
    model.save_pretrained(where / "hf")
    words = Tokenizer(models.WordLevel({f"w{i}": i for i in range(VOCAB)}, unk_token="w2"))
    for name, pad in (("pad", "w1"), ("eos", "w0"), ("none", None), ("vocabulary", None), ("map", None)):
        transformers.PreTrainedTokenizerFast(tokenizer_object=words, eos_token="w0", pad_token=pad).save_pretrained(where / name)
    config = json.loads((where / "vocabulary/tokenizer_config.json").read_text())
    (where / "vocabulary/tokenizer_config.json").write_text(json.dumps(config | {"pad_token": "w1"}))
    (where / "map/special_tokens_map.json").write_text('{"eos_token": "w0", "pad_token": {"content": "w1"}}')
    from megatron.core.datasets.indexed_dataset import IndexedDatasetBuilder
    random = numpy.random.default_rng(5)
    builder = IndexedDatasetBuilder(str(where / "d_text_document.bin"), dtype=numpy.uint16)
    for _ in range(120):
        row = random.integers(3, 100, random.integers(20, 90))
        row[random.random(len(row)) < 0.3] = 1
        builder.add_document([*row, 0], [len(row) + 1])
    builder.finalize(str(where / "d_text_document.idx"))
    return where, model


def batches(case, where):
    """Of training and of validation."""
    from megatron.core.datasets.blended_megatron_dataset_builder import BlendedMegatronDatasetBuilder
    from megatron.core.datasets.gpt_dataset import GPTDataset, GPTDatasetConfig
    from megatron.core.tokenizers import MegatronTokenizer
    judge = {k: v.replace("TOKENIZERS", str(where)) if isinstance(v, str) else v for k, v in case.judge.items()}
    masks = dict(reset_position_ids=False, reset_attention_mask=False, eod_mask_loss=False) | case.masks
    config = GPTDatasetConfig(random_seed=1234, sequence_length=SEQ, blend=([str(where / "d_text_document")], None), split="70,30,0",
                              tokenizer=MegatronTokenizer.from_pretrained(**judge), path_to_cache=str(where / "cache"), create_attention_mask=True,
                              mid_level_dataset_surplus=0.005, allow_ambiguous_pad_tokens=case.ambiguous, **masks)
    for split in BlendedMegatronDatasetBuilder(GPTDataset, [BATCH, BATCH, 0], lambda: True, config).build()[:2]:
        found = []
        for i in range(BATCH):
            split.masks_and_position_ids_are_cached = False
            found.append(split[i])
        yield found


def loss(model, found):
    total, counted = 0.0, 0.0
    for b in found:
        with torch.no_grad():
            logits = model(b["tokens"][None], position_ids=b["position_ids"][None], attention_mask=torch.where(b["attention_mask"], -1e30, 0.0)[None]).logits
        each = torch.nn.functional.cross_entropy(logits[0], b["labels"], reduction="none")
        total += float((each * b["loss_mask"]).sum())
        counted += float(b["loss_mask"].sum())
    return total / counted


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_loss(case, run):
    where, model = run
    flags = [str(f).replace("TOKENIZERS", str(where)) for f in case.flags]
    flags += ["--" + name.replace("_", "-") for name in case.masks] + ["--allow-ambiguous-pad-tokens"] * case.ambiguous
    command = [program.BINARY + "-train", "--load", where / "hf", "--backend", "cpu", "--data-path", where / "d_text_document", "--split", "70,30,0",
               "--seq-length", SEQ, "--micro-batch-size", 1, "--global-batch-size", BATCH, "--lr", 0, "--min-lr", 0, "--lr-decay-style", "constant",
               "--train-iters", 1, "--log-interval", 1, "--eval-iters", 1, "--eval-interval", 1, "--hidden-dropout", 0, "--attention-dropout", 0, *flags]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=program.SECONDS)
    assert done.returncode == 0, done.stderr
    ours = [float(x) for x in re.findall(r"lm loss(?: value)?: (\S+)", done.stdout)]
    train, valid = batches(case, where)
    assert ours[:2] == pytest.approx([loss(model, train), loss(model, valid)], rel=2e-6), done.stdout
    assert ("labels that are the pad token" in done.stdout) == (case.pad is not None)
    if case.pad is None or case.masks:
        return
    # Some labels are masked, and those alone.
    printed = program.run("sample", where / "d_text_document", "--split", "70,30,0", "--seq-length", SEQ, "--global-batch-size", BATCH, "--train-iters", 1,
                          "--step", 1, "--pad", case.pad)
    lines = [json.loads(line) for line in printed.stdout.splitlines()]
    assert [line["loss_mask"] for line in lines] == [b["loss_mask"].int().tolist() for b in train]
    assert case.pad == 3 or 0 in lines[0]["loss_mask"]
