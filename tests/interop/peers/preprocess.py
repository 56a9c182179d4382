"""preprocess.py [FLAGS of tools/preprocess_data.py]: what that tool does, as core 0.16.1's release has it.

No package ships the tool: its Encoder.encode() and process_json_file() stand here, over megatron-core's own tokenizers,
builder and pool of processes. Prints its seconds from the first document on, by the clock and of all processors.
"""
import argparse
import json
import multiprocessing
import os
import sys
import time

from megatron.core.datasets import indexed_dataset
from megatron.core.tokenizers import MegatronTokenizer

LIBRARIES = {"HuggingFaceTokenizer": "huggingface", "SentencePieceTokenizer": "sentencepiece", "GPTSentencePieceTokenizer": "sentencepiece",
             "Llama2Tokenizer": "sentencepiece", "TikTokenizer": "tiktoken", "NullTokenizer": "null"}


def build_tokenizer(args):
    """As megatron/core/tokenizers/utils/build_tokenizer.py from core 0.17 on: with special tokens, unless a flag is against it."""
    library = LIBRARIES[args.tokenizer_type]
    if library == "null":
        return MegatronTokenizer.from_pretrained(metadata_path={"library": library}, vocab_size=args.vocab_size)
    kwargs = {}
    if library == "huggingface":
        kwargs = {"use_fast": True, "include_special_tokens": not args.tokenizer_hf_no_include_special_tokens}
    if library == "tiktoken":
        kwargs = {"pattern": args.tiktoken_pattern or "v2", "num_special_tokens": args.tiktoken_num_special_tokens}
        if args.vocab_size:
            kwargs["vocab_size"] = args.vocab_size
    return MegatronTokenizer.from_pretrained(tokenizer_path=args.tokenizer_model, metadata_path={"library": library}, **kwargs)


class Encoder:
    def __init__(self, args):
        self.args = args

    def initializer(self):
        Encoder.tokenizer = build_tokenizer(self.args)

    def encode(self, json_line):
        data = json.loads(json_line)
        ids, lens = {}, {}
        for key in self.args.json_keys:
            text = data[key]
            sentences = text if isinstance(text, list) else [text]
            doc_ids, sentence_lens = [], []
            for sentence in sentences:
                sentence_ids = Encoder.tokenizer.tokenize(sentence)
                if len(sentence_ids) > 0:
                    doc_ids.extend(sentence_ids)
                    sentence_lens.append(len(sentence_ids))
            if len(doc_ids) > 0 and self.args.append_eod:
                doc_ids.append(Encoder.tokenizer.eod)
                sentence_lens[-1] += 1
            ids[key], lens[key] = doc_ids, sentence_lens
        return ids, lens, len(json_line)


def process_json_file(args):
    encoder, tokenizer = Encoder(args), build_tokenizer(args)
    with open(args.input, encoding="utf-8") as fin:
        pool = multiprocessing.Pool(args.workers, initializer=encoder.initializer)
        encoded = pool.imap(encoder.encode, fin, 32)
        names = {key: f"{args.output_prefix}_{key}_document" for key in args.json_keys}
        builders = {key: indexed_dataset.IndexedDatasetBuilder(name + ".bin", dtype=indexed_dataset.DType.optimal_dtype(tokenizer.vocab_size))
                    for key, name in names.items()}
        begun = used = None
        for ids, lens, _ in encoded:
            if begun is None:
                begun, used = time.time(), time.process_time()
            for key in ids:
                builders[key].add_document(ids[key], lens[key])
    for key, name in names.items():
        builders[key].finalize(name + ".idx")
    pool.close()
    pool.join()
    children = os.times()
    return time.time() - begun, time.process_time() - used + children.children_user + children.children_system


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--input", required=True)
    parser.add_argument("--output-prefix", required=True)
    parser.add_argument("--json-keys", nargs="+", default=["text"])
    parser.add_argument("--append-eod", action="store_true")
    parser.add_argument("--workers", type=int, required=True)
    parser.add_argument("--tokenizer-type", required=True)
    parser.add_argument("--tokenizer-model")
    parser.add_argument("--vocab-size", type=int)
    parser.add_argument("--tokenizer-hf-no-include-special-tokens", action="store_true")
    parser.add_argument("--tiktoken-pattern")
    parser.add_argument("--tiktoken-num-special-tokens", type=int, default=1000)
    print(*process_json_file(parser.parse_args()), file=sys.stderr)


if __name__ == "__main__":
    main()
