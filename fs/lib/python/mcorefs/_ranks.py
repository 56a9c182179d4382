"""What the load formats of engines share: a worker's own part of a checkpoint, from a view that has one for each (vllm/tpN, sglang/tpN)."""
from __future__ import annotations

import re
from typing import Any, Dict, List, Optional, Tuple

from ._arrays import TORCH
from ._library import McorefsError
from ._load import stream
from ._source import Source, TensorInfo, View
from ._stub import Target

FLOATS = ("F64", "F32", "F16", "BF16")
CAST = [f"torch.{TORCH[word]}" for word in FLOATS]
RANKS = re.compile(r"(vllm|vllm-fp8|vllm-fp8-tensor|sglang)/(tp\d+(?:-ep\d+)?)$")


class Differs(Exception):
    """What a worker holds is not what the view has for it."""


def rank_view(view: str, parts: str, of: Dict[str, str]) -> Optional[str]:
    """The view "vllm/PARTS" next to "hf", as ``of`` says: {"hf": "vllm", "hf-fp8": "vllm-fp8"}. None: the one that was asked for is of other
    tensors."""
    found = RANKS.search(view)
    if found:
        return view if found[1] in of.values() and found[2] == parts else None
    above, _, last = view.rpartition("/")
    return f"{above}/{of[last]}/{parts}".lstrip("/") if last in of else None


def places(view: Any, rank: int, parameters: Dict[str, Any]) -> List[Tuple[TensorInfo, Any]]:
    """(tensor, parameter) for all that the rank's files have. Differs: the two do not match, and nothing may be read."""
    left, found = dict(parameters), []
    for t in [t for file in view.files() if file.name.startswith(f"model-rank-{rank}-part-") for t in view.tensors(file.name)]:
        parameter = left.pop(t.name, None)
        if parameter is None:
            raise Differs(f"{view.name} has a tensor '{t.name}', and this worker none")
        same_type = str(parameter.dtype) == f"torch.{TORCH.get(t.dtype)}" or str(parameter.dtype) in CAST and t.dtype in FLOATS
        if tuple(parameter.shape) != t.shape or not same_type or parameter.device.type not in ("cpu", "cuda"):
            raise Differs(f"tensor '{t.name}' of {view.name} is {t.dtype} {list(t.shape)}, and this worker's {parameter.dtype} {list(parameter.shape)}")
        found.append((t, parameter.data))
    if left:
        raise Differs(f"{view.name} has no tensor '{next(iter(left))}'")
    return found


def fill(view: View, of: List[Tuple[TensorInfo, Any]]) -> None:
    """Straight into parameters of the checkpoint's type; others are cast as engines cast, by copy_()."""
    view.fill([(t, to) for t, to in of if str(to.dtype) == f"torch.{TORCH[t.dtype]}"])
    others = {t.name: (t, to) for t, to in of if str(to.dtype) != f"torch.{TORCH[t.dtype]}"}
    if others:
        device = of[0][1].device
        for name, tensor in stream(view, device=device, names=[t for t, _ in others.values()]):
            others[name][1].copy_(tensor)


def fill_rank(target: Target, name: str, rank: int, parameters: Dict[str, Any]) -> None:
    """Reads what the view ``name`` of the target's source has for a worker. Differs: nothing was read."""
    with Source(target.source, target.options) as root:
        if name != target.view:
            with root.open(target.view) as whole:
                target.check(whole)
        try:
            view = root.open(name)
        except McorefsError as reason:
            raise Differs(str(reason)) from None
        with view:
            if name == target.view:
                target.check(view)
            fill(view, places(view, rank, parameters))
