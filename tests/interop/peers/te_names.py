"""Classes under the names that Transformer Engine and Megatron give them, whose objects are pickled and unpickled as theirs are.

Transformer Engine itself needs a GPU's toolkit to be built.  What its checkpoints hold follows from a few methods, which are copied here from its
releases: pytorch/module/base.py (get_extra_state), pytorch/tensor/*.py (__reduce_ex__), common/recipe/__init__.py (fields of recipes).
"""
import dataclasses
import enum
import io
import pickle
import sys
import types
from typing import NamedTuple, Optional

import torch

RECIPES = "transformer_engine.common.recipe"


def named(module, *things):
    """Puts classes and functions into a module of that name."""
    parts = module.split(".")
    for i in range(len(parts)):
        name = ".".join(parts[:i + 1])
        if name not in sys.modules:
            sys.modules[name] = types.ModuleType(name)
            if i:
                setattr(sys.modules[".".join(parts[:i])], parts[i], sys.modules[name])
    for thing in things:
        thing.__module__ = module
        setattr(sys.modules[module], thing.__name__, thing)


class _FormatHelper(NamedTuple):
    max_fwd: float
    max_bwd: float


class Format(enum.Enum):
    E4M3 = _FormatHelper(max_fwd=448, max_bwd=448)
    E5M2 = _FormatHelper(max_fwd=57344, max_bwd=57344)
    HYBRID = _FormatHelper(max_fwd=E4M3.max_fwd, max_bwd=E5M2.max_bwd)


@dataclasses.dataclass(frozen=True)
class MMParams:
    use_split_accumulator: bool = True


@dataclasses.dataclass(frozen=True)
class QParams:
    power_2_scale: bool = False
    amax_epsilon: float = 0.0


class Recipe:
    _cached_repr = None


@dataclasses.dataclass
class DelayedScaling(Recipe):
    margin: int = 0
    fp8_format: Format = Format.HYBRID
    amax_history_len: int = 1024
    amax_compute_algo: object = "max"
    scaling_factor_compute_algo: Optional[object] = None
    reduce_amax: bool = True
    fp8_dpa: bool = False
    fp8_mha: bool = False
    backward_override: Optional[str] = None


class TEDelayedScaling(DelayedScaling):
    pass


@dataclasses.dataclass
class Float8CurrentScaling(Recipe):
    use_power_2_scales: bool = False
    fp8_format: Format = Format.HYBRID
    fp8_quant_fwd_inp: QParams = QParams()
    fp8_gemm_fprop: MMParams = MMParams(use_split_accumulator=False)


@dataclasses.dataclass
class Float8BlockScaling(Recipe):
    use_f32_scales: bool = False
    fp8_format: Format = Format.E4M3


@dataclasses.dataclass
class CustomRecipe(Recipe):
    qfactory: Optional[object] = None


named(RECIPES, _FormatHelper, Format, MMParams, QParams, Recipe, DelayedScaling, Float8CurrentScaling, Float8BlockScaling, CustomRecipe)


def name_megatrons():
    """Only where megatron-core is not imported."""
    named("megatron.core.extensions.transformer_engine", TEDelayedScaling)


# -- _extra_state ---------------------------------------------------------------------------------


def arrays(products, length, seed=0, device=None):
    """Scales and histories as a module with so many products has them after some steps."""
    g = torch.Generator().manual_seed(seed)
    ret = {}
    for direction, kinds in (("fwd", 3), ("bwd", 2)):
        ret[f"scale_{direction}"] = torch.rand(kinds * products, generator=g) * 100 + 1
        ret[f"amax_history_{direction}"] = torch.rand(length, kinds * products, generator=g)
        ret[f"amax_history_{direction}"][0] = 0
    return ret


def extra(recipe, products):
    best = recipe.fp8_format.value
    return {"fp8_checkpoint": True, "num_gemms": products, "fp8_max_fwd": best.max_fwd, "fp8_max_bwd": best.max_bwd}


def as_tensor(state):
    return torch.frombuffer(bytearray(pickle.dumps(state)), dtype=torch.uint8)


def state_2(recipe, products=1, tensors=None):
    """The dict of Transformer Engine 2."""
    return {"recipe": recipe, **(tensors or {}), "extra_fp8_variables": extra(recipe, products)}


def state_1(products, tensors):
    """A BytesIO of Transformer Engine 1."""
    ret = {}
    for direction in ("fwd", "bwd"):
        ret[f"scale_{direction}"] = tensors[f"scale_{direction}"]
        ret[f"scale_inv_{direction}"] = 1 / tensors[f"scale_{direction}"]
        ret[f"amax_history_{direction}"] = tensors[f"amax_history_{direction}"]
    ret["extra_fp8_variables"] = extra(DelayedScaling(), products)
    out = io.BytesIO()
    torch.save(ret, out)
    return out


def split(state, product):
    """TEGroupedLinear._split_extra_state() of Megatron: views, so that each has the storages of all."""
    tensors = {}
    for direction, kinds in (("fwd", 3), ("bwd", 2)):
        history = state[f"amax_history_{direction}"]
        tensors[f"scale_{direction}"] = state[f"scale_{direction}"].view(kinds, -1)[:, product]
        tensors[f"amax_history_{direction}"] = history.view(history.shape[0], kinds, -1)[:, :, product]
    return {"extra_fp8_variables": {**state["extra_fp8_variables"], "num_gemms": 1}, "recipe": state["recipe"], **tensors}
