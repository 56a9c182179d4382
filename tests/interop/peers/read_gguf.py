"""What the gguf package and transformers find in GGUF files.

read_gguf.py OUT JOB...     JOB: NAME=FILE, or NAME@FILE where transformers is to compute logits as well

Writes OUT/NAME.json (the keys, each with its type, and each tensor's type and shape), OUT/NAME.safetensors (the tensors' values) and
OUT/NAME.npz (the logits of the tokens in FILE's directory's tokens.npy).
"""
import json
import pathlib
import sys

import gguf
import numpy
import safetensors.numpy

TOKENS = numpy.random.default_rng(7).integers(0, 250, (2, 24))


def read(out, name, path):
    reader = gguf.GGUFReader(path)
    assert not any(tensor.data_offset % 32 for tensor in reader.tensors)
    keys = {key: [field.types[0].name, field.contents()] for key, field in reader.fields.items() if not key.startswith("GGUF.")}
    shapes = {tensor.name: [tensor.tensor_type.name, tensor.shape.tolist()[::-1]] for tensor in reader.tensors}
    values = {tensor.name: numpy.ascontiguousarray(gguf.quants.dequantize(tensor.data, tensor.tensor_type), "f4") for tensor in reader.tensors}
    (out / f"{name}.json").write_text(json.dumps(dict(keys=keys, tensors=shapes)))
    safetensors.numpy.save_file(values, out / f"{name}.safetensors")


def compute(out, name, path):
    import torch
    import transformers
    model, report = transformers.AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32, attn_implementation="eager",
                                                                      output_loading_info=True)
    assert not report["missing_keys"] and not report["unexpected_keys"], report
    with torch.no_grad():
        numpy.savez(out / f"{name}.npz", tokens=TOKENS, logits=model(torch.from_numpy(TOKENS)).logits.numpy())


if __name__ == "__main__":
    out = pathlib.Path(sys.argv[1])
    for job in sys.argv[2:]:
        with_logits = "@" in job.partition("=")[0]
        name, _, path = job.partition("@" if with_logits else "=")
        read(out, name, path)
        if with_logits:
            compute(out, name, pathlib.Path(path))
