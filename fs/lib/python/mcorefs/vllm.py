"""vLLM's load format "mcorefs": ``vllm serve DIR --load-format mcorefs``, registered by the entry point ``vllm.general_plugins``.

DIR is a directory that ``mcorefs stub`` wrote, or any that has config.json and safetensors: a mounted view, a HuggingFace model. Where a
checkpoint has a view ``vllm/tpN`` for as many workers as there are, and this holds what vLLM's layers hold, element types too, each worker reads
its own part straight into its parameters. Else each gives all tensors, as they come, to the model's own load_weights().
"""
from __future__ import annotations

import functools
import importlib
import logging
import time
from typing import Any, Dict, Iterator, Optional, Tuple

from ._load import opened, stream
from ._ranks import RANKS, Differs, fill_rank, rank_view
from ._stub import target_of

logger = logging.getLogger("vllm.mcorefs")
VIEWS = {"hf": "vllm", "hf-fp8": "vllm-fp8", "hf-fp8-tensor": "vllm-fp8-tensor"}


def register() -> None:
    """Any number of times, in each of vLLM's processes. A vLLM that is too old for it goes on without."""
    try:
        from vllm.model_executor import model_loader

        if "mcorefs" not in getattr(model_loader, "_LOAD_FORMAT_TO_MODEL_LOADER", {}):
            model_loader.register_model_loader("mcorefs")(_make_loader())
    except (ImportError, AttributeError) as reason:
        logger.warning("The load format mcorefs is not there: %s", reason)


def _parts(workers: int, parallel: Any) -> str:
    """"tp4", or "tp4-ep4" where whole experts are divided among the workers of one model."""
    if not parallel.enable_expert_parallel:
        return f"tp{workers}"
    if parallel.data_parallel_size > 1 or parallel.enable_eplb or parallel.expert_placement_strategy != "linear":
        raise Differs("experts are not where tensor parallel workers of one model have them")
    return f"tp{workers}-ep{workers}"


def _alone(state: Dict[str, Any]) -> Dict[str, Any]:
    """Without what lies in other tensors' memory, as vLLM's own sharded_state counts them."""
    from vllm.model_executor.model_loader.sharded_state_loader import ShardedStateLoader

    return ShardedStateLoader._filter_subtensors(state)


def _fill_shard(model: Any, model_config: Any, parallel: Any, target: Any) -> None:
    """Reads this worker's own part straight into its parameters. Differs: nothing was read."""
    from vllm.distributed import get_tensor_model_parallel_rank, get_tensor_model_parallel_world_size

    workers, started = get_tensor_model_parallel_world_size(), time.perf_counter()
    name = rank_view(target.view, _parts(workers, parallel), VIEWS)
    if name is None:
        raise Differs(f"{target.view} is not for {workers} workers")
    if model_config.quantization not in (None, "fp8" if "vllm-fp8" in name else None):
        raise Differs(f"the model is quantised ({model_config.quantization})")
    fill_rank(target, name, get_tensor_model_parallel_rank(), _alone(model.state_dict()))
    logger.info("Each worker's own part took %.2f seconds", time.perf_counter() - started)


def _as_loaded(model: Any) -> bool:
    """Whether parameters are still what was loaded: on a GPU vLLM changes neither those of layers that are not quantised nor what plain
    attention has. Experts, latent attention, sinks, scales of the KV cache and quantised layers may have been rearranged or copied."""
    plain = ("UnquantizedLinearMethod", "UnquantizedEmbeddingMethod")
    for layer in model.modules():
        method = getattr(layer, "quant_method", None)
        if type(layer).__name__ == "Attention":
            sinks = getattr(getattr(layer, "impl", None), "sinks", None)
            if method is not None or sinks is not None or getattr(layer, "calculate_kv_scales", False):
                return False
        elif method is not None and type(method).__name__ not in plain or hasattr(layer, "process_weights_after_loading"):
            return False
    return all(p.device.type == "cuda" for p in model.parameters())


def _refill(runner: Any, path: Optional[str]) -> None:
    """What reload_weights of a model runner does, in place. Differs: nothing was done."""
    config, model = runner.vllm_config, runner.get_model()
    if not _as_loaded(model):
        raise Differs("this model's parameters are not as they were loaded")
    _fill_shard(model, config.model_config, config.parallel_config, target_of(path or config.model_config.model))
    if path is not None:
        config.model_config.model, config.model_config.revision = path, None
        if hasattr(config.model_config, "model_weights"):
            config.model_config.model_weights = ""
    for reset in ("reset_lora_state", "reset_encoder_cache", "reset_mm_cache"):  # what vLLM's own reload ends with, where it has them
        getattr(runner, reset, lambda: None)()


def _in_place(theirs: Any) -> Any:
    @functools.wraps(theirs)
    def reload_weights(self: Any, weights_iterator: Any = None, weights_path: Optional[str] = None, is_checkpoint_format: bool = True) -> None:
        if weights_iterator is None and is_checkpoint_format and self.vllm_config.load_config.load_format == "mcorefs":
            try:
                return _refill(self, weights_path)
            except Differs as reason:
                logger.info("Weights are reloaded by vLLM: %s", reason)
        return theirs(self, weights_iterator, weights_path, is_checkpoint_format)

    reload_weights.of_mcorefs = True  # type: ignore[attr-defined]
    return reload_weights


def _reload_in_place() -> None:
    """vLLM's reload_weights builds each layer anew and copies it to where the old one is. A worker's own part needs none of that: with this load
    format it is read to where it belongs, and all else goes vLLM's way. There are two runners, of which releases since 0.26 use the second."""
    for module in ("vllm.v1.worker.gpu_model_runner", "vllm.v1.worker.gpu.model_runner"):
        try:
            runner = importlib.import_module(module).GPUModelRunner
        except (ImportError, AttributeError):
            continue
        theirs = runner.__dict__.get("reload_weights")
        if theirs is not None and not getattr(theirs, "of_mcorefs", False):
            runner.reload_weights = _in_place(theirs)


def _make_loader() -> type:
    from vllm.config import get_current_vllm_config
    from vllm.model_executor.model_loader.default_loader import DefaultModelLoader

    class McorefsModelLoader(DefaultModelLoader):
        """What the format's name stands for. Its model's tensors come from the source that the model's directory names."""

        device: Any = "cpu"

        def download_model(self, model_config: Any) -> None:
            """Nothing is copied beforehand."""

        def load_weights(self, model: Any, model_config: Any) -> None:
            target = target_of(model_config.model)
            self.device = next((p.device for p in model.parameters()), self.device)
            if str(self.device).startswith("cuda"):
                _reload_in_place()
            try:
                _fill_shard(model, model_config, get_current_vllm_config().parallel_config, target)
            except Differs as reason:
                if RANKS.search(target.view):
                    raise ValueError(f"{model_config.model}: {reason}; a stub of hf fits all workers") from None
                logger.debug("All tensors are read by each worker: %s", reason)
                super().load_weights(model, model_config)

        def _get_weights_iterator(self, source: Any) -> Iterator[Tuple[str, Any]]:
            """All tensors, in full; without experts of other workers, where vLLM knows which these are."""
            target = target_of(source.model_or_path)
            if source.subfolder is not None:
                raise ValueError(f"--load-format mcorefs reads the view itself, and this model is in its folder '{source.subfolder}'")
            if not self.counter_before_loading_weights:  # of vLLM's own line on how long it took
                self.counter_before_loading_weights: float = time.perf_counter()
            names = self._wanted(source.model_or_path)
            for name, tensor in stream(source.model_or_path, device=self.device, names=names):
                yield source.prefix + name, tensor

        def _wanted(self, path: str) -> Optional[list]:
            if self.local_expert_ids is None:
                return None
            from vllm.model_executor.model_loader.ep_weight_filter import should_skip_weight

            with opened(path, None, None) as view:
                return [t.name for t in view.tensors() if not should_skip_weight(t.name, self.local_expert_ids)]

    return McorefsModelLoader
