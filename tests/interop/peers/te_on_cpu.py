"""Modules of Transformer Engine for a CPU: names, parameters and results as in megatron.core.extensions.transformer_engine, made of megatron-core's
own linear layers.  Models that are written for that package alone are built of them: Megatron-Bridge's of Gemma, and those with linear attention.
"""
import functools

import torch


def modules():
    from megatron.core.tensor_parallel import ColumnParallelLinear, RowParallelLinear
    from megatron.core.transformer.dot_product_attention import DotProductAttention
    from megatron.core.transformer.utils import make_sharded_tensors_for_checkpoint

    def normed(x, weight, config):
        wide = x.float()
        scale = weight.float() + 1 if config.layernorm_zero_centered_gamma else weight.float()
        return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + config.layernorm_epsilon) * scale).to(x.dtype)

    class TENorm(torch.nn.Module):
        def __init__(self, config, hidden_size, eps=None, **kwargs):
            super().__init__()
            self.config = config
            self.weight = torch.nn.Parameter(torch.ones(hidden_size, dtype=config.params_dtype))

        def forward(self, x):
            return normed(x, self.weight, self.config)

    class TELayerNormColumnParallelLinear(ColumnParallelLinear):
        def __init__(self, input_size, output_size, *, config, **kwargs):
            super().__init__(input_size, output_size, config=config, **kwargs)
            self.layer_norm_weight = torch.nn.Parameter(torch.ones(input_size, dtype=config.params_dtype))

        def forward(self, x, *args, **kwargs):
            return super().forward(normed(x, self.layer_norm_weight, self.config), *args, **kwargs)

        def sharded_state_dict(self, prefix="", sharded_offsets=(), metadata=None):
            return make_sharded_tensors_for_checkpoint(self.state_dict(prefix="", keep_vars=True), prefix, {"weight": 0, "bias": 0}, sharded_offsets,
                                                       tp_group=self.tp_group, dp_cp_group=metadata["dp_cp_group"])

    class TEColumnParallelLinear(ColumnParallelLinear):
        pass

    class TERowParallelLinear(RowParallelLinear):
        pass

    class TEDotProductAttention(DotProductAttention):
        def _load_from_state_dict(self, state, prefix, *arguments):
            state.pop(f"{prefix}_extra_state", None)
            super()._load_from_state_dict(state, prefix, *arguments)

    return TENorm, TELayerNormColumnParallelLinear, TEColumnParallelLinear, TERowParallelLinear, TEDotProductAttention


@functools.cache
def install():
    """In the place of those that the package would bring; before Bridge is imported."""
    from megatron.core.extensions import transformer_engine
    from megatron.core.transformer import transformer_block
    for module in modules():
        setattr(transformer_engine, module.__name__, module)
    local = transformer_block.LayerNormImpl

    class FinalNorm:
        """The local spec's norm knows no zero-centred weights."""
        def __new__(cls, config, hidden_size, eps=1e-5):
            made = transformer_engine.TENorm if config.layernorm_zero_centered_gamma else local
            return made(config=config, hidden_size=hidden_size, eps=eps)

    transformer_block.LayerNormImpl = FinalNorm


def l2norm(x, dim=-1, eps=1e-6):
    """As flash-linear-attention's."""
    return (x.float() * torch.rsqrt(x.float().pow(2).sum(dim, keepdim=True) + eps)).to(x.dtype)


def linear_attention_spec(config, vp_stage=None):
    """Megatron-core's own specification of layers with a gated delta net, which in deterministic mode computes with torch alone."""
    install()
    from megatron.core.extensions import transformer_engine_spec_provider as provider
    from megatron.core.models.gpt import experimental_attention_variant_module_specs as specs, gpt_layer_specs
    from megatron.core.ssm import gated_delta_net
    provider.is_te_min_version = lambda version: True
    for stand_in in modules():
        setattr(provider, stand_in.__name__, stand_in)
    for module in (specs, gpt_layer_specs):
        module.TESpecProvider = provider.TESpecProvider
    gated_delta_net.HAVE_FLA, gated_delta_net.l2norm = True, l2norm
    return specs.get_transformer_block_with_experimental_attention_variant_spec(config, vp_stage=vp_stage)


def layer_spec(config):
    """A dense layer, as get_gpt_layer_with_transformer_engine_spec makes it."""
    from megatron.core.extensions.transformer_engine import TEDotProductAttention, TELayerNormColumnParallelLinear, TENorm, TERowParallelLinear
    from megatron.core.fusions.fused_bias_dropout import get_bias_dropout_add
    from megatron.core.transformer import ModuleSpec, TransformerLayer, TransformerLayerSubmodules
    from megatron.core.transformer.attention import SelfAttention, SelfAttentionSubmodules
    from megatron.core.transformer.enums import AttnMaskType
    from megatron.core.transformer.mlp import MLP, MLPSubmodules
    norms = dict(q_layernorm=TENorm, k_layernorm=TENorm) if config.qk_layernorm else {}
    attention = SelfAttentionSubmodules(linear_qkv=TELayerNormColumnParallelLinear, core_attention=TEDotProductAttention,
                                        linear_proj=TERowParallelLinear, **norms)
    mlp = MLPSubmodules(linear_fc1=TELayerNormColumnParallelLinear, linear_fc2=TERowParallelLinear)
    return ModuleSpec(module=TransformerLayer, submodules=TransformerLayerSubmodules(
        self_attention=ModuleSpec(module=SelfAttention, params=dict(attn_mask_type=AttnMaskType.causal), submodules=attention),
        self_attn_bda=get_bias_dropout_add, mlp=ModuleSpec(module=MLP, submodules=mlp), mlp_bda=get_bias_dropout_add))
