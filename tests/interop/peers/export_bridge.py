"""Megatron-Bridge writes HuggingFace weights of torch_dist checkpoints: export_bridge.py MEGATRON HF OUT [MEGATRON HF OUT]...

MEGATRON: a --load directory; one that is not there yet is first written by Bridge itself, of the weights in HF.  HF: a directory whose config.json
is the model's; OUT: what Bridge makes of them.  On the CPU and without the packages that it imports at its top level and does not need for this:
those are empty modules here, and layers are those of the local spec.
"""
import importlib.abc
import importlib.machinery
import json
import os
import sys
import traceback
import types

import torch

import load_views
import mcore_cpu
import te_on_cpu
import write_megatron

ABSENT = {"transformer_engine", "mamba_ssm", "causal_conv1d", "fla", "modelopt", "nvidia_resiliency_ext", "wandb", "datasets", "tensorboard",
          "comet_ml", "mlflow", "flashinfer", "qwen_vl_utils", "open_clip", "diffusers", "six", "nltk"}
HIDDEN = ("datasets", "torch.utils.tensorboard", "torch.utils.tensorboard.writer")  # there, but not of a release that Bridge can use


class Stub(types.ModuleType):
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Stub(f"{self.__name__}.{name}") if name[:1].islower() else type(name, (torch.nn.Module,), {})

    def __call__(self, *arguments, **more):
        return None


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path, target=None):
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if name.split(".")[0] in ABSENT else None

    def create_module(self, spec):
        return Stub(spec.name)

    def exec_module(self, module):
        pass


def import_bridge():
    """Megatron-core first, so that it sees no Transformer Engine."""
    write_megatron.import_megatron()
    te_on_cpu.mamba()
    sys.meta_path.append(Finder())
    te_on_cpu.install()
    from megatron.bridge import AutoBridge
    let_transformers_read_nemotron_h()
    for name in HIDDEN:
        sys.modules[name] = Stub(name)
    let_them_have_sequential_experts()
    return AutoBridge


def let_transformers_read_nemotron_h():
    """Bridge's release of it has no such class, and would take the code beside the weights."""
    import transformers

    class NemotronHConfig(transformers.PretrainedConfig):
        model_type = "nemotron_h"
        auto_map = {"AutoModelForCausalLM": "modeling_nemotron_h.NemotronHForCausalLM"}

        def __init__(self, layers_block_type=None, hybrid_override_pattern="", **more):
            letters = dict(linear_attention="M", full_attention="*", mlp="-", moe="E")
            self.hybrid_override_pattern = hybrid_override_pattern or "".join(letters[kind] for kind in layers_block_type or ())
            super().__init__(**{**more, "num_hidden_layers": len(self.hybrid_override_pattern)})

    if "nemotron_h" not in transformers.models.auto.configuration_auto.CONFIG_MAPPING:
        transformers.AutoConfig.register("nemotron_h", NemotronHConfig)


def let_them_have_sequential_experts():
    """Their names are those of Transformer Engine's experts alone; other bridges (qwen3_moe_bridge.py) have these, too."""
    from megatron.bridge.models.conversion.mapping_registry import MegatronMappingRegistry
    from megatron.bridge.models.conversion.param_mapping import AutoMapping, GatedMLPMapping
    from megatron.bridge.models.olmoe.olmoe_bridge import OlMoEBridge
    from megatron.bridge.models.qwen.qwen3_next_bridge import Qwen3NextBridge
    here, there = "decoder.layers.*.mlp.experts.local_experts.*.", "model.layers.*.mlp.experts.*."
    for bridge in (OlMoEBridge, Qwen3NextBridge):
        bridge.mapping_registry = lambda self, original=bridge.mapping_registry: MegatronMappingRegistry(
            *original(self).mappings, AutoMapping(megatron_param=f"{here}linear_fc2.weight", hf_param=f"{there}down_proj.weight"),
            GatedMLPMapping(megatron_param=f"{here}linear_fc1.weight", gate=f"{there}gate_proj.weight", up=f"{there}up_proj.weight"))


def layer_spec(config, vp_stage=None):
    """At the top level: Bridge writes its name into run_config.yaml."""
    from megatron.core.models.gpt import gpt_layer_specs
    if config.num_moe_experts:
        return gpt_layer_specs.get_gpt_decoder_block_spec(config, use_transformer_engine=False, normalization=config.normalization, vp_stage=vp_stage)
    return gpt_layer_specs.get_gpt_layer_local_spec(qk_layernorm=config.qk_layernorm, normalization=config.normalization)


def olmoe_layer_spec(config, vp_stage=None):
    """Bridge's own attention in layers of the local spec."""
    from megatron.bridge.models.olmoe.olmoe_provider import OLMoESelfAttention
    block = layer_spec(config, vp_stage)
    for layer in block.layer_specs:
        layer.submodules.self_attention.module = OLMoESelfAttention
    return block


def spec_of(provider):
    """Layers that a CPU can run: Bridge's own, where it has modules of its own."""
    usual = getattr(provider, "transformer_layer_spec", None)
    own = {"GemmaModelProvider": te_on_cpu.layer_spec, "Gemma2ModelProvider": usual, "Gemma3ModelProvider": usual, "Gemma3VLModelProvider": usual,
           "Qwen25VLModelProvider": te_on_cpu.layer_spec, "Qwen3NextModelProvider": te_on_cpu.linear_attention_spec}
    if getattr(usual, "__name__", "") == "olmoe_layer_spec":
        return olmoe_layer_spec
    return own.get(type(provider).__name__, layer_spec)


def has_own_norms(provider):
    """Others have the local spec's, which know no zero-centred weights."""
    return type(provider).__name__.startswith(("Gemma", "Qwen3Next"))


def provider_of(bridge, dtype, load_weights=False, **more):
    from megatron.core.transformer.enums import AttnBackend
    provider = bridge.to_megatron_provider(load_weights=load_weights)
    if has_own_norms(provider):
        more.pop("layernorm_zero_centered_gamma", None)
    values = dict(tensor_model_parallel_size=1, pipeline_model_parallel_size=1, pipeline_dtype=dtype, params_dtype=dtype, bf16=dtype is torch.bfloat16,
                  transformer_layer_spec=spec_of(provider), mamba_stack_spec=te_on_cpu.hybrid_stack_spec, use_mamba_mem_eff_path=False, use_cpu_initialization=True, gradient_accumulation_fusion=False, apply_rope_fusion=False,
                  persist_layer_norm=False, masked_softmax_fusion=False, bias_dropout_fusion=False, bias_activation_fusion=False,
                  cross_entropy_loss_fusion=False, moe_grouped_gemm=False, moe_permute_fusion=False, moe_router_fusion=False,
                  moe_token_dispatcher_type="allgather", moe_shared_expert_overlap=False, attention_backend=AttnBackend.auto, **more)
    for key, value in values.items():
        if hasattr(provider, key):
            setattr(provider, key, value)
    provider.finalize()
    return provider


def models_of(bridge, dtype):
    return provider_of(bridge, dtype).provide_distributed_model(wrap_with_ddp=False, use_cpu_initialization=True)


def save(bridge, dtype, out):
    models = models_of(bridge, dtype)
    bridge.load_hf_weights(models)
    bridge.save_megatron_model(models, out, hf_tokenizer_path=None)


def has_vision(bridge):
    return hasattr(bridge.hf_pretrained.config, "vision_config")


def export(AutoBridge, source, hf, out):
    dtype = getattr(torch, json.load(open(f"{hf}/config.json"))["dtype"])
    bridge = AutoBridge.from_hf_pretrained(hf, torch_dtype=dtype)
    if not os.path.exists(source):
        save(bridge, dtype, source)
    if has_vision(bridge):  # nothing of ours for Bridge to read
        return
    models = models_of(bridge, dtype)
    opt = load_views.options(dict(load=source))
    directory = load_views.iteration(opt.load)
    load_views.let_newer_files_be_loaded(directory)
    load_views.load_weights(opt, directory, None, models)
    bridge.save_hf_weights(models, out, show_progress=False)


if __name__ == "__main__":
    opt = types.SimpleNamespace(tp=1, pp=1, ep=1, vpp=1, etp=None, ranks=1)
    os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE="1")
    AutoBridge = import_bridge()
    mcore_cpu.start(opt, 0, os.path.join(os.path.dirname(sys.argv[3]), "store"))
    for source, hf, out in zip(sys.argv[1::3], sys.argv[2::3], sys.argv[3::3]):
        try:
            export(AutoBridge, source, hf, out)
            print(json.dumps(dict(out=out, error=None)), flush=True)
        except Exception:
            print(json.dumps(dict(out=out, error=traceback.format_exc()[-2000:])), flush=True)
