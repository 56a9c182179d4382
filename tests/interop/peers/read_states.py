"""What pickle and torch make of the _extra_state of legacy saves: read_states.py FILE..., one JSON object of modules each.

Transformer Engine's classes are those of te_names.py. Files are model_optim_rng.pt; what is in them beside the model is not looked at.
"""
import io
import json
import pickle
import sys
import zipfile

import torch

import te_names


class Values(pickle.Unpickler):
    """Tensors of bytes are bytes, and all else but dicts is None."""

    def __init__(self, archive, prefix):
        super().__init__(io.BytesIO(archive.read(f"{prefix}/data.pkl")))
        self.archive, self.prefix = archive, prefix

    def find_class(self, module, name):
        if (module, name) == ("collections", "OrderedDict"):
            return super().find_class(module, name)
        if name == "_rebuild_tensor_v2":
            return lambda storage, offset, size, *rest: storage and storage[offset:offset + size[0]]
        return type(name, (), {"__init__": lambda self, *arguments: None, "__setstate__": lambda self, state: None})

    def persistent_load(self, pid):
        return self.archive.read(f"{self.prefix}/data/{pid[2]}") if pid[1].__name__ == "ByteStorage" else None


def plain(value):
    if torch.is_tensor(value):
        return value.tolist()
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    return f"{type(value).__name__} {value.fp8_format.name} {value.amax_compute_algo} {value.amax_history_len} {value.margin}" \
        if isinstance(value, te_names.DelayedScaling) else value


te_names.name_megatrons()
found = []
for path in sys.argv[1:]:
    archive = zipfile.ZipFile(path)
    model = Values(archive, archive.namelist()[0].split("/")[0]).load()["model"]
    found.append({k: v and plain(pickle.loads(v)) for k, v in model.items() if k.endswith("_extra_state")})
print(json.dumps(found))
