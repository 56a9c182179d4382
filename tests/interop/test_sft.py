"""Fine-tuning on conversations: the loss of mcorefs-train --sft is that of transformers, whose tokenizer renders the template and says what counts."""
import importlib.util
import json
import pathlib
import re
import shutil

import datasets
import pyarrow
import pyarrow.parquet
import pytest
import torch
import transformers

import hf_models
import models
import program
from sft_runs import PACKED, apart, collated, lines, loss_of, trained

TOKENIZER = pathlib.Path(__file__).parents[1] / "fixtures/data/tokenizer"
BLOCKS = ("{% for m in messages %}{{ '<|' ~ m.role ~ '|>\n' }}{% if m.role == 'assistant' %}{% generation %}{{ m.content|trim }}{{ eos_token }}"
          "{% endgeneration %}{% else %}{{ m.content|trim }}{% endif %}{{ '\n' }}{% endfor %}")
TALKS = [
    [("user", "What is a fox?"), ("assistant", "An animal, \u00fc\u4f60 \U0001f98a.")],
    [("system", "Be short."), ("user", " And a dog? "), ("assistant", "Too."), ("user", "Why?"), ("assistant", "It has\n\nlegs.")],
    [("user", "One"), ("assistant", "Two three four five six seven eight nine ten")],
    [("user", "?"), ("assistant", "!")],
]


def template_of_vllm(name):
    vllm = importlib.util.find_spec("vllm")
    if vllm is None:
        pytest.skip("vllm is not installed")
    return (pathlib.Path(vllm.submodule_search_locations[0]) / "transformers_utils/chat_templates" / name).read_text()


def wanted(directory, tokenizer, answers):
    """The mean loss of all tokens that count, each conversation by itself."""
    model, total, count = models.load(directory), 0.0, 0
    for talk in TALKS:
        messages = [{"role": role, "content": content} for role, content in talk]
        said = tokenizer.apply_chat_template(messages, return_dict=True, return_assistant_tokens_mask=answers, return_tensors="pt")
        labels = said["input_ids"].clone()
        if answers:
            labels[torch.as_tensor(said["assistant_masks"]).reshape(labels.shape) == 0] = -100
        with torch.no_grad():
            logits = model(said["input_ids"]).logits[:, :-1].float()
        total += torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels[:, 1:].flatten(), ignore_index=-100, reduction="sum").item()
        count += int((labels[:, 1:] != -100).sum())
    return total / count


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    return hf_models.make("llama", tmp_path_factory.mktemp("llama") / "hf", dtype=torch.float32, vocab_size=1024, max_position_embeddings=256)


def conversations(directory, template):
    """Writes the talks and a tokenizer with a template; returns the tokenizer."""
    shutil.copytree(TOKENIZER, directory / "tokenizer")
    (directory / "tokenizer/chat_template.jinja").write_text(template)
    (directory / "talks.jsonl").write_text("".join(
        json.dumps({"messages": [{"role": role, "content": content} for role, content in talk]}) + "\n" for talk in TALKS))
    return transformers.AutoTokenizer.from_pretrained(directory / "tokenizer")


@pytest.mark.parametrize("packing", ["none", "first_fit_decreasing"])
@pytest.mark.parametrize("kind", ["blocks", "template_chatml.jinja"])
def test_losses_are_those_of_transformers(llama, kind, packing, tmp_path):
    answers = kind == "blocks"
    tokenizer = conversations(tmp_path, BLOCKS if answers else template_of_vllm(kind))
    samples = 4 if packing == "none" else 1
    for _ in range(2):  # the second time with as many samples as packing has made
        text = trained(llama, tmp_path / "talks.jsonl", samples, "--tokenizer-type", "SFTTokenizer", "--tokenizer-model", tmp_path / "tokenizer",
                       "--sft-tokenizer-prompt-format", "default", "--sft-packing", packing, *(["--sft-answer-only-loss"] if answers else []))
        found = int(re.search(r"an epoch of conversations has (\d+) samples", text).group(1))
        if found == samples:
            break
        samples = found
    assert abs(loss_of(text) - wanted(llama, tokenizer, answers)) < 2e-5 * loss_of(text)


def test_what_is_packed_ahead_is_what_transformers_makes(tmp_path):
    """Rows as Megatron-Bridge has them (data/packing/algorithms.py): its loss_mask is of labels, and the last token has none."""
    tokenizer, want = conversations(tmp_path, BLOCKS), []
    for talk in TALKS:
        messages = [{"role": role, "content": content} for role, content in talk]
        said = tokenizer.apply_chat_template(messages, return_dict=True, return_assistant_tokens_mask=True)
        want.append((said["input_ids"], said["assistant_masks"][1:] + [0]))
    done = program.run("pack", "--sft", "--seq-length", "128", "--tokenizer", tmp_path / "tokenizer", "--sft-answer-only-loss",
                       tmp_path / "talks.jsonl", tmp_path / "packed.parquet")
    assert done.returncode == 0, done.stderr
    table = pyarrow.parquet.read_table(tmp_path / "packed.parquet")
    assert {field.name: str(field.type.value_type) for field in table.schema} == {"input_ids": "int32", "loss_mask": "int8", "seq_start_id": "int32"}
    rows = [apart(row) for row in table.to_pylist()]
    assert all(sum(len(ids) - 1 for ids, _ in row) <= 128 for row in rows)
    assert 1 < len(rows) < len(TALKS) and sorted(sum(rows, [])) == sorted(want)


def test_packed_rows_have_the_losses_of_transformers_packing(llama, tmp_path):
    """In one forward of a row: position_ids keep documents apart."""
    (tmp_path / "packed.jsonl").write_text(lines(PACKED))
    model, total, count = models.load(llama), 0.0, 0
    for row in PACKED:
        ids, labels, mask, positions = (torch.tensor([x]) for x in collated(row))
        with torch.no_grad():
            logits = model(input_ids=ids, position_ids=positions, use_cache=False).logits.float()
        losses = torch.nn.functional.cross_entropy(logits[0], labels[0], reduction="none")
        total, count = total + (losses * mask[0]).sum().item(), count + int(mask.sum())
    loss = loss_of(trained(llama, tmp_path / "packed.jsonl", len(PACKED)))
    assert abs(loss - total / count) < 2e-5 * loss


def tables_of(table, tmp_path):
    """The same rows in files of each kind."""
    for name, more in {"words": {}, "second": {"compression": "zstd", "data_page_version": "2.0", "row_group_size": 17},
                       "plain": {"use_dictionary": False, "data_page_size": 300, "write_batch_size": 8}, "old": {"use_compliant_nested_type": False}}.items():
        pyarrow.parquet.write_table(table, tmp_path / f"{name}.parquet", **more)
        yield tmp_path / f"{name}.parquet"
    for name, new, compression in (("stream", pyarrow.ipc.new_stream, None), ("file", pyarrow.ipc.new_file, "zstd")):
        with new(tmp_path / f"{name}.arrow", table.schema, options=pyarrow.ipc.IpcWriteOptions(compression=compression)) as writer:
            writer.write_table(table, max_chunksize=21)
        yield tmp_path / f"{name}.arrow"


def test_rows_of_tables_are_those_of_json_lines(tmp_path):
    """The same samples of messages, prompts and ids; directories of datasets and of the Hub, their files in order."""
    shutil.copytree(TOKENIZER, tmp_path / "tokenizer")
    (tmp_path / "tokenizer/chat_template.jinja").write_text(BLOCKS.replace("m.content|trim }}", "m.content|trim }}{% if m.name %}{{ m.name }}{% endif %}"))

    def packed(source, *more):
        done = program.run("pack", "--sft", "--force", "--seq-length", "512", *more, source, tmp_path / "packed.jsonl")
        assert done.returncode == 0, done.stderr
        return (tmp_path / "packed.jsonl").read_bytes()

    def lines(rows):
        (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        return tmp_path / "rows.jsonl"

    texts = [content for talk in TALKS for _, content in talk]
    talks = [{"id": i, "messages": [{"role": role, "content": content + str(i), "name": (None, "Bob", "Ann")[(i + k) % 3]} for k, (role, content) in
                                    enumerate(TALKS[i % 4])]} for i in range(60)]
    prompts = [{"prompt": texts[i % len(texts)] + str(i), "input": (None, "", "x")[i % 3], "completion": texts[i * 7 % len(texts)] or "-"} for i in range(60)]
    ids = [{"input_ids": list(range(i, 2 * i + 3)), "loss_mask": [k % 3 == 1 for k in range(i + 3)]} for i in range(60)]
    text = ("--tokenizer", tmp_path / "tokenizer")
    for rows, more in ((talks, text), (prompts, text), (ids, ())):
        want, table = packed(lines(rows), *more), pyarrow.Table.from_pylist(rows)
        for path in tables_of(table, tmp_path):
            assert packed(path, *more) == want, path
    want, dataset = packed(lines(talks), *text), datasets.Dataset.from_list(talks)
    dataset.save_to_disk(tmp_path / "saved", num_shards=3)
    datasets.DatasetDict({"train": dataset, "test": dataset.select([1])}).save_to_disk(tmp_path / "splits")
    (tmp_path / "hub/data").mkdir(parents=True)
    for i in range(3):
        dataset.shard(3, i, contiguous=True).to_parquet(tmp_path / f"hub/data/train-{i:05}-of-00003.parquet")
    for name in ("saved", "splits/train", "hub", "hub/train"):
        assert packed(tmp_path / name, *text) == want, name
    dataset.select([1]).to_parquet(tmp_path / "hub/data/test-00000-of-00001.parquet")
    assert packed(tmp_path / "hub/train", *text) == want
    for name, expected in {"splits": "found train, test", "hub": "found test, train", "hub/valid": "No such file"}.items():
        done = program.run("pack", "--sft", "--force", "--seq-length", "512", *text, tmp_path / name, tmp_path / "packed.jsonl")
        assert done.returncode == 1 and expected in done.stderr, (name, done.stderr)
    (tmp_path / "hub/data/train-00001-of-00003.parquet").unlink()
    done = program.run("pack", "--sft", "--force", "--seq-length", "512", *text, tmp_path / "hub/train", tmp_path / "packed.jsonl")
    assert done.returncode == 1 and "expected shard 1 of 3 of 'train', found none" in done.stderr, done.stderr
