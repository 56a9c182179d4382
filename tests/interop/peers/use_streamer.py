"""use_streamer.py DIRECTORY PLACE...: run:ai's model streamer reads the tensors of DIRECTORY from each PLACE, a directory or s3://."""
import pathlib
import sys
import tempfile

import torch
from runai_model_streamer import SafetensorsStreamer, list_safetensors, pull_files
from safetensors.torch import load_file

directory, *places = sys.argv[1:]
directory = pathlib.Path(directory)
wanted = {}
for file in directory.glob("*.safetensors"):
    wanted.update(load_file(file))

for place in places:
    paths = list_safetensors(place)
    assert sorted(p.rsplit("/", 1)[1] for p in paths) == sorted(p.name for p in directory.glob("*.safetensors")), paths
    seen = set()
    with SafetensorsStreamer() as streamer:
        streamer.stream_files(paths)
        for name, tensor in streamer.get_tensors():
            assert tensor.dtype == wanted[name].dtype and torch.equal(tensor, wanted[name]), name
            seen.add(name)
    assert seen == wanted.keys(), place
    if place.startswith("s3://"):  # what is not weights, as vLLM takes it
        with tempfile.TemporaryDirectory() as to:
            pull_files(place, to, ignore_pattern=["*.safetensors"])
            others = {p.name for p in directory.iterdir() if p.suffix != ".safetensors"}
            assert {p.name for p in pathlib.Path(to).iterdir()} == others
            for name in others:
                assert (pathlib.Path(to) / name).read_bytes() == (directory / name).read_bytes(), name
