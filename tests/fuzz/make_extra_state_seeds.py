"""Makes corpus/extra_state and reject/extra_state, with torch: python3 tests/fuzz/make_extra_state_seeds.py."""
import io
import os
import pickle
import shutil
import sys

import torch

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, f"{HERE}/../interop/peers")
import te_names as te  # noqa: E402


def save(kind, name, data):
    os.makedirs(f"{HERE}/{kind}/extra_state", exist_ok=True)
    with open(f"{HERE}/{kind}/extra_state/{name}", "wb") as f:
        f.write(data)


def ok(name, state):
    save("corpus", f"ok-{name}", state if isinstance(state, bytes) else pickle.dumps(state, 4))


def reject(name, state):
    save("reject", name, state if isinstance(state, bytes) else pickle.dumps(state, 4))


def delayed(products=1, length=3, recipe=None, **changes):
    recipe = recipe or te.DelayedScaling(amax_history_len=length, amax_compute_algo="most_recent", margin=1)
    state = te.state_2(recipe, products, te.arrays(products, length))
    state.update(changes)
    return {k: v for k, v in state.items() if v is not ...}


class Call:
    """Pickled as a call of a function that no reader may make."""

    def __init__(self, function, *args):
        self.call = function, args

    def __reduce__(self):
        return self.call


def main():
    for kind in ("corpus", "reject"):
        shutil.rmtree(f"{HERE}/{kind}/extra_state", ignore_errors=True)
    te.name_megatrons()
    whole = pickle.dumps(delayed())
    ok("empty", b"")
    ok("none", None)
    ok("empty-dict", {})
    ok("te2", whole)
    ok("te2-megatron", delayed(recipe=te.TEDelayedScaling(fp8_format=te.Format.E4M3, amax_history_len=3)))
    ok("te2-grouped", delayed(4, 2))
    ok("te2-split", te.split(delayed(4, 2), 1))
    ok("te2-length-1", delayed(1, 1))
    ok("te1", te.state_1(1, te.arrays(1, 4)).getvalue())
    ok("te1-none", (lambda out: (torch.save(None, out), out.getvalue())[1])(io.BytesIO()))
    ok("tensorwise", te.state_2(te.Float8CurrentScaling()))
    ok("blockwise", te.state_2(te.Float8BlockScaling()))

    values = dict(none=None, te1=te.state_1(1, te.arrays(1, 4)), te2=te.as_tensor(delayed()), empty=torch.empty(0, dtype=torch.uint8),
                  number=7, floats=torch.zeros(3))
    torch.save(values, f"{HERE}/corpus/torch_file/ok-extra-states")

    reject("cut", whole[:-40])
    reject("cut-in-storage", whole[:whole.index(b"FloatStorage") + 20])
    reject("number", 7)
    reject("custom-recipe", {"recipe": te.CustomRecipe(), "extra_fp8_variables": {}})
    reject("custom-recipe-with-state", {**te.arrays(1, 2), "recipe": te.CustomRecipe(), "extra_fp8_variables": {}})
    reject("no-recipe-no-scale", {"extra_fp8_variables": {}})
    reject("recipe-a-text", {**te.arrays(1, 2), "recipe": "delayed", "extra_fp8_variables": {}})
    reject("format-e5m2", delayed(recipe=te.DelayedScaling(fp8_format=te.Format.E5M2, amax_history_len=3)))
    reject("algo-a-function", delayed(recipe=te.DelayedScaling(amax_compute_algo=torch.amax, amax_history_len=3)))
    reject("call", Call(os.system, "true"))
    reject("call-in-tensor", delayed(scale_fwd=Call(os.system, "true")))
    reject("call-in-storage", delayed(scale_fwd=Call(torch._utils._rebuild_tensor_v2, Call(os.system, "true"), 0, (3,), (1,), False, {})))
    nested = Call(torch.storage._load_from_bytes, pickle.dumps(Call(os.system, "true"), 2))
    reject("pickle-in-storage", delayed(scale_fwd=Call(torch._utils._rebuild_tensor_v2, nested, 0, (3,), (1,), False, {})))
    out = io.BytesIO()
    torch.save(torch.zeros(3), out, _use_new_zipfile_serialization=False)
    tensor = Call(torch.storage._load_from_bytes, out.getvalue())  # a tensor where a storage is expected
    reject("tensor-in-storage", delayed(scale_fwd=Call(torch._utils._rebuild_tensor_v2, tensor, 0, (3,), (1,), False, {})))
    real = torch.zeros(3).untyped_storage()
    for name, size, stride, offset in (("huge", (1 << 40,), (1,), 0), ("expanded", (1 << 20,), (0,), 0), ("offset", (3,), (1,), 1 << 62),
                                       ("beyond", (3,), (2,), 0), ("four-axes", (1, 1, 1, 3), (1, 1, 1, 1), 0)):
        storage = torch.storage.TypedStorage(wrap_storage=real, dtype=torch.float32, _internal=True)
        reject(f"scale-{name}", delayed(scale_fwd=Call(torch._utils._rebuild_tensor_v2, storage, offset, size, stride, False, {})))
    reject("scale-missing", delayed(scale_bwd=...))
    reject("scale-of-bytes", delayed(scale_fwd=torch.zeros(3, dtype=torch.uint8)))
    reject("scale-of-doubles", delayed(scale_fwd=torch.zeros(3, dtype=torch.float64)))
    reject("scale-empty", delayed(scale_fwd=torch.zeros(0)))
    reject("scale-of-4", delayed(scale_fwd=torch.zeros(4)))
    reject("scale-a-matrix", delayed(scale_fwd=torch.zeros(3, 3)))
    reject("scale-a-list", delayed(scale_fwd=[1.0, 1.0, 1.0]))
    reject("backward-of-2-products", delayed(scale_bwd=torch.zeros(4), amax_history_bwd=torch.zeros(3, 4)))
    reject("history-missing", delayed(amax_history_fwd=...))
    reject("history-empty", delayed(amax_history_fwd=torch.zeros(0, 3)))
    reject("history-of-4", delayed(amax_history_fwd=torch.zeros(3, 4)))
    reject("history-of-another-length", delayed(amax_history_bwd=torch.zeros(4, 2)))
    reject("te1-cut", te.state_1(1, te.arrays(1, 4)).getvalue()[:-10])


main()
