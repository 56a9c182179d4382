"""Modules of Transformer Engine for a CPU: names, parameters and results as in megatron.core.extensions.transformer_engine, made of megatron-core's
own linear layers.  Models that are written for that package alone are built of them: Megatron-Bridge's of Gemma, those with linear attention, and
hybrid ones, whose Mamba mixers get what mamba_ssm's kernels compute, too.
"""
import functools
import sys
import types

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
            own = dict(self._parameters)
            self._parameters.clear()  # the norm's parameter is before the linear's, as optimizers' flat buffers show
            self.layer_norm_weight = torch.nn.Parameter(torch.ones(input_size, dtype=config.params_dtype))
            self._parameters.update(own)

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


class GatedNorm(torch.nn.Module):
    """mamba_ssm's: the gate first, then a norm over each group."""

    def __init__(self, hidden_size, eps=1e-5, group_size=None, norm_before_gate=True, device=None, dtype=None):
        super().__init__()
        assert not norm_before_gate
        self.eps, self.group = eps, group_size
        self.weight = torch.nn.Parameter(torch.ones(hidden_size, dtype=dtype))

    def forward(self, x, z):
        gated = (x.float() * torch.nn.functional.silu(z.float())).unflatten(-1, (-1, self.group))
        return ((gated * torch.rsqrt(gated.pow(2).mean(-1, keepdim=True) + self.eps)).flatten(-2) * self.weight.float()).to(x.dtype)


def selective_scan(x, dt, A, B, C, chunk_size, D, dt_bias, dt_softplus, **unused):
    """mamba_ssm's state space duality, token by token: h = exp(dt A) h + dt x B, y = C h + D x."""
    groups, said = x.shape[2] // B.shape[2], []
    B, C = (each.repeat_interleave(groups, 2).float() for each in (B, C))
    steps = torch.nn.functional.softplus(dt.float() + dt_bias)
    state = torch.zeros(x.shape[0], *x.shape[2:], B.shape[-1])
    for t in range(x.shape[1]):
        now = x[:, t].float()
        state = state * torch.exp(steps[:, t] * A)[..., None, None] + (steps[:, t, :, None] * now)[..., None] * B[:, t, :, None]
        said.append((state * C[:, t, :, None]).sum(-1) + D.float()[:, None] * now)
    return torch.stack(said, 1).to(x.dtype)


@functools.cache
def mamba():
    """megatron.core.ssm, with what mamba_ssm's kernels compute; before anything else imports it."""
    found = {name: types.ModuleType(name) for name in ("mamba_ssm", "mamba_ssm.ops", "mamba_ssm.ops.triton", "mamba_ssm.ops.triton.layernorm_gated",
                                                       "mamba_ssm.ops.triton.ssd_combined")}
    found["mamba_ssm.ops.triton.layernorm_gated"].RMSNorm = GatedNorm
    vars(found["mamba_ssm.ops.triton.ssd_combined"]).update(mamba_chunk_scan_combined=selective_scan, mamba_split_conv1d_scan_combined=None)
    install()
    sys.modules.update(found)
    from megatron.core.ssm import mamba_block, mamba_layer, mamba_mixer, mlp_layer
    for name in found:  # others ask whether the package is there
        del sys.modules[name]
    mamba_block.TENorm = modules()[0]
    return mamba_block, mamba_layer, mamba_mixer, mlp_layer


def hybrid_stack_spec(config):
    """As megatron.core.models.mamba.mamba_layer_specs has it, without grouped experts."""
    block, layers, mixer, mlp_layer = mamba()
    from megatron.core.fusions.fused_bias_dropout import get_bias_dropout_add
    from megatron.core.models.gpt.moe_module_specs import get_moe_module_spec
    from megatron.core.transformer import ModuleSpec, TransformerLayer, TransformerLayerSubmodules
    TENorm, TELayerNormColumnParallelLinear, _, TERowParallelLinear, _ = modules()
    both = layer_spec(config).submodules
    parts = mixer.MambaMixerSubmodules(in_proj=TELayerNormColumnParallelLinear, out_proj=TERowParallelLinear)
    moe = get_moe_module_spec(use_te=False, num_experts=config.num_moe_experts or 8, moe_grouped_gemm=False)
    return ModuleSpec(module=block.MambaStack, submodules=block.MambaStackSubmodules(
        mamba_layer=ModuleSpec(module=layers.MambaLayer, submodules=layers.MambaLayerSubmodules(
            mixer=ModuleSpec(module=mixer.MambaMixer, submodules=parts), mamba_bda=get_bias_dropout_add)),
        attention_layer=ModuleSpec(module=TransformerLayer, submodules=TransformerLayerSubmodules(
            self_attention=both.self_attention, self_attn_bda=get_bias_dropout_add)),
        mlp_layer=ModuleSpec(module=mlp_layer.MLPLayer, submodules=TransformerLayerSubmodules(mlp=both.mlp, mlp_bda=get_bias_dropout_add)),
        moe_layer=ModuleSpec(module=TransformerLayer, submodules=TransformerLayerSubmodules(
            pre_mlp_layernorm=TENorm, mlp=moe, mlp_bda=get_bias_dropout_add))))


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
