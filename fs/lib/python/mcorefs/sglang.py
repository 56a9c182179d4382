"""SGLang's load format "mcorefs": ``sglang serve --model-path DIR --load-format mcorefs``, registered by the entry point ``sglang.srt.plugins``.

DIR is a directory that ``mcorefs stub`` wrote, or any that has config.json and safetensors: a mounted view, a HuggingFace model. Where a
checkpoint has a view ``sglang/tpN`` for as many workers as there are, and this holds what SGLang's layers hold, each worker reads its own part
straight into its parameters. Else each gives all tensors, as they come, to the model's own load_weights().
"""
from __future__ import annotations

import logging
import time
from typing import Any, Dict, Iterator, Tuple

from ._load import chosen, opened, stream
from ._ranks import RANKS, Differs, fill_rank, rank_view
from ._stub import target_of

logger = logging.getLogger("sglang.mcorefs")
VIEWS = {"hf": "sglang"}


def register() -> None:
    """Any number of times, in each of SGLang's processes. An SGLang that is too old for it goes on without."""
    try:
        from sglang.srt import server_args
        from sglang.srt.configs.load_config import LoadConfig
        from sglang.srt.plugins.hook_registry import HookRegistry, HookType

        if "mcorefs" not in server_args.LOAD_FORMAT_CHOICES:
            add_choices, _ = server_args.add_load_format_choices, LoadConfig._verify_load_format  # AttributeError: it has no place for us
            HookRegistry.register("sglang.srt.configs.load_config.LoadConfig._verify_load_format", _name_the_class, HookType.AROUND)
            add_choices(["mcorefs"])  # the last step: what SGLang lets pass, it can load
    except (ImportError, AttributeError) as reason:
        logger.warning("The load format mcorefs is not there: %s", reason)


def _name_the_class(verify: Any, config: Any) -> None:
    """A load format may be a class, which get_model_loader() then calls; LoadConfig knows no other new ones."""
    if config.load_format == "mcorefs":
        config.load_format = _make_loader()
    else:
        verify(config)


def _parts() -> Tuple[str, int]:
    """("tp4" or "tp4-ep4", this worker's rank), where all workers share one copy of the model by its tensors. Differs: they do not."""
    try:
        from sglang.srt.runtime_context import get_parallel, get_server_args
    except ImportError as reason:
        raise Differs(f"of this SGLang's workers nothing is known: {reason}") from None
    parallel, args = get_parallel(), get_server_args()
    if (parallel.attn_tp_size, parallel.pp_size) != (parallel.tp_size, 1) or parallel.moe_ep_size not in (1, parallel.tp_size):
        raise Differs("workers share the model otherwise than by tp, or by tp and as many ep")
    if args.enable_eplb or args.ep_num_redundant_experts or args.init_expert_location != "trivial":
        raise Differs("experts are not in their order")
    experts = parallel.tp_size > 1 and parallel.moe_ep_size == parallel.tp_size
    return f"tp{parallel.tp_size}" + (f"-ep{parallel.tp_size}" if experts else ""), parallel.tp_rank


def _turned(model: Any) -> bool:
    """Some kernels of experts want up before gate, or transposed matrices, in parameters of the same name."""
    return any(getattr(module, "use_triton_kernels", False) or getattr(getattr(module, "quant_method", None), "load_up_proj_weight_first", False)
               for module in model.modules())


def _check_whole(path: Any) -> None:
    """What is wrong with a directory is found here, before the first tensor is given: SGLang then keeps the weights that it has."""
    target = target_of(path)
    found = RANKS.search(target.view)
    if found and found[2] != "tp1":
        raise ValueError(f"{path}: each worker is given all tensors, and {target.view} has parts of them; a stub of hf fits all workers")
    with opened(path, None, None) as view:
        chosen(view, None, None)


def _make_loader() -> type:
    from sglang.srt.model_loader.loader import DefaultModelLoader, ShardedStateLoader, post_load_weights

    class McorefsModelLoader(DefaultModelLoader):
        """What the format's name stands for. Its model's tensors come from the source that the model's directory names."""

        device: Any = "cpu"
        filled = False  # the model, and by no iterator

        def download_model(self, model_config: Any) -> None:
            """Nothing is copied beforehand."""

        def _get_all_weights(self, model_config: Any, model: Any) -> Iterator[Tuple[str, Any]]:
            """What a first load asks for: nothing is left to be given where the worker's own part is there."""
            started = time.perf_counter()
            target = target_of(model_config.model_path)
            self.device = next((p.device for p in model.parameters()), self.device)
            try:
                self._fill(model, model_config, target)
                self.filled = True
                logger.info("Each worker's own part took %.2f seconds", time.perf_counter() - started)
                return iter(())
            except Differs as reason:
                if RANKS.search(target.view):
                    raise ValueError(f"{model_config.model_path}: {reason}; a stub of hf fits all workers") from None
                logger.debug("All tensors are read by each worker: %s", reason)
                return super()._get_all_weights(model_config, model)

        def _fill(self, model: Any, model_config: Any, target: Any) -> None:
            parts, rank = _parts()
            name = rank_view(target.view, parts, VIEWS)
            if name is None:
                raise Differs(f"{target.view} is not for workers of {parts}")
            if model_config.quantization is not None:
                raise Differs(f"the model is quantised ({model_config.quantization})")
            if self.load_config.draft_model_idx is not None or _turned(model):
                raise Differs("parameters are not what the view has under their names")
            parameters: Dict[str, Any] = ShardedStateLoader._filter_subtensors(model.state_dict())
            fill_rank(target, name, rank, parameters)

        def load_weights_and_postprocess(self, model: Any, weights: Any, target_device: Any) -> None:
            if self.filled:
                self.filled = False
                post_load_weights(model)
                self.postprocess_weights(model, target_device)
            else:
                DefaultModelLoader.load_weights_and_postprocess(model, weights, target_device)

        def _get_weights_iterator(self, source: Any, **prefetching: Any) -> Iterator[Tuple[str, Any]]:
            """All tensors, in full: also of an update from disk."""
            _check_whole(source.model_or_path)
            if not self.counter_before_loading_weights:  # of SGLang's own line on how long it took
                self.counter_before_loading_weights: float = time.perf_counter()
            tensors = stream(source.model_or_path, device=self.device)
            if self.load_config.draft_model_idx is not None:
                return self._filter_mtp_weights(tensors, source.prefix, self.load_config.draft_model_idx)
            return ((source.prefix + name, tensor) for name, tensor in tensors)

    return McorefsModelLoader
