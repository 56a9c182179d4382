"""Vision-language checkpoints of megatron-core's own LLaVAModel: write_llava.py OUT NAME...

As write_megatron.py writes language models, of checkpoints that are named here; each is saved below a real LLaVAModel, beside a vision model and a
projection.  logits.npz has the language model's own.
"""
import copy
import os
import sys

sys.path.insert(1, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir))
import checkpoints
import mcore_cpu
import torch
import write_megatron

SPECS = {spec.name: spec for spec in (
    checkpoints.make("llava-torch-tp2-pp2", "llama", "torch", tp=2, pp=2),
    checkpoints.make("llava-dist-tp2", "qwen2", tp=2),
)}


def let_norms_be_torchs():
    """Without Transformer Engine CLIPViTModel takes torch's LayerNorm by default, and hands it arguments of Megatron's."""
    from megatron.core.models.vision.clip_vit_model import CLIPViTModel
    from megatron.core.transformer.torch_norm import WrappedTorchNorm
    init = CLIPViTModel.__init__
    init.__defaults__ = tuple(WrappedTorchNorm if value is torch.nn.LayerNorm else value for value in init.__defaults__)


def with_vision(args, model):
    from megatron.core import parallel_state as ps
    from megatron.core.models.multimodal.llava_model import LLaVAModel
    from megatron.core.models.vision.vit_layer_specs import get_vit_layer_with_local_spec
    from megatron.core.tensor_parallel import ColumnParallelLinear, RowParallelLinear
    from megatron.core.transformer.mlp import MLPSubmodules
    language = mcore_cpu.config(args)
    vision, projection = copy.copy(language), copy.copy(language)
    for key, value in dict(num_layers=2, num_attention_heads=4, num_query_groups=4, gated_linear_unit=False, add_bias_linear=True,
                           normalization="LayerNorm", pipeline_model_parallel_size=1, vision_model_type="clip").items():
        setattr(vision, key, value)
    whole = LLaVAModel(
        language, mcore_cpu._layer_spec(args, language, {}), args.padded_vocab_size, args.max_position_embeddings, vision,
        get_vit_layer_with_local_spec(), True, projection, MLPSubmodules(linear_fc1=ColumnParallelLinear, linear_fc2=RowParallelLinear),
        share_embeddings_and_output_weights=not args.untie_embeddings_and_output_weights, language_position_embedding_type="rope",
        add_encoder=ps.is_pipeline_first_stage(), img_h=28, img_w=28, pre_process=ps.is_pipeline_first_stage(),
        post_process=ps.is_pipeline_last_stage()).to(args.params_dtype)
    whole.language_model = model
    return whole


def save_whole(name):
    save = getattr(write_megatron, name)
    setattr(write_megatron, name, lambda spec, args, models, optimizer, directory: save(
        spec, args, [with_vision(args, model) for model in models], optimizer, directory))


if __name__ == "__main__":
    write_megatron.import_megatron()
    let_norms_be_torchs()
    save_whole("save_torch")
    save_whole("save_torch_dist")
    sys.exit(0 if all([write_megatron.write(SPECS[name], sys.argv[1]) for name in sys.argv[2:]]) else 1)
