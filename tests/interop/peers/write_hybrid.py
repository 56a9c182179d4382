"""Saves of megatron-core 0.19's own HybridModel, the fixtures below tests/fixtures/hybrid: write_hybrid.py OUT [NAME...]

PYTHONPATH has that core (`uv pip install --no-deps --target DIR --python-version 3.12 megatron-core==0.19.2`). One process writes one save; the
stack is Megatron's hybrid_stack_spec, of te_on_cpu's modules. `bridge` has a run_config.yaml as Megatron-Bridge's HybridModelProvider gives one.
"""
import os
import sys
import tempfile
import types
import typing

typing.override = getattr(typing, "override", lambda function: function)  # Python 3.12's
sys.path.insert(1, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir))
import checkpoints  # noqa: E402
import mcore_cpu  # noqa: E402
import te_on_cpu  # noqa: E402
import write_megatron  # noqa: E402


def make(name, format, pattern, **more):
    small = dict(hidden_size=32, ffn_hidden_size=64, num_attention_heads=4, num_query_groups=2, kv_channels=8, vocab_size=100, padded_vocab_size=128,
                 num_layers=len(pattern.split("/")[0].replace("|", "")), hybrid_layer_pattern=pattern, transformer_impl="transformer_engine",
                 freeze_all_layers=False)
    return checkpoints.make(name, "llama", format, core="0.19.2", **{**small, **more})


MLA = dict(multi_latent_attention=True, q_lora_rank=16, kv_lora_rank=12, qk_head_dim=8, qk_pos_emb_head_dim=4, v_head_dim=8, rope_type="rope",
           num_query_groups=4)
MAMBA = dict(mamba_num_heads=4, mamba_head_dim=16, mamba_num_groups=2, mamba_state_dim=8, squared_relu=True, swiglu=False, position_embedding_type="none")
SPECS = {spec.name: spec for spec in (
    make("llama-torch_dist-mtp", "torch_dist", "*-*-/*-", mtp_num_layers=1),
    make("bridge", "torch_dist", "*-*-"),
    make("mla-torch-fused", "torch", "+-+-", mla_down_proj_fusion=True, **MLA),
    make("mamba-torch", "torch", "M-*-", **MAMBA),
)}
RUN_CONFIG = """model:
  _target_: megatron.bridge.models.hybrid.hybrid_provider.HybridModelProvider
  activation_func:
    _call_: false
    _target_: torch.nn.functional.silu
  add_bias_linear: false
  add_qkv_bias: false
  bf16: true
  ffn_hidden_size: 64
  gated_linear_unit: true
  hidden_size: 32
  hybrid_attention_ratio: 0.0
  hybrid_layer_pattern: '*-*-'
  hybrid_mlp_ratio: 0.0
  hybrid_override_pattern: null
  hybrid_stack_spec: null
  is_hybrid_model: true
  kv_channels: 8
  layernorm_epsilon: 1.0e-05
  make_vocab_size_divisible_by: 128
  mamba_head_dim: 64
  mamba_num_groups: 8
  mamba_num_heads: null
  mamba_state_dim: 128
  mtp_num_layers: 0
  normalization: RMSNorm
  num_attention_heads: 4
  num_layers: 4
  num_moe_experts: null
  num_query_groups: 2
  params_dtype:
    _call_: false
    _target_: torch.bfloat16
  pipeline_model_parallel_size: 1
  position_embedding_type: rope
  rotary_base: 10000
  rotary_percent: 1.0
  seq_length: 128
  share_embeddings_and_output_weights: false
  should_pad_vocab: true
  tensor_model_parallel_size: 1
  transformer_impl: transformer_engine
  vocab_size: 100
optimizer:
  use_distributed_optimizer: false
"""


def mixers():
    """Of megatron.core.ssm, over what stands for mamba_ssm while it is imported."""
    names = ("mamba_ssm", "mamba_ssm.ops", "mamba_ssm.ops.triton", "mamba_ssm.ops.triton.layernorm_gated", "mamba_ssm.ops.triton.ssd_combined")
    found = {name: types.ModuleType(name) for name in names}
    found[names[3]].RMSNorm = te_on_cpu.GatedNorm
    vars(found[names[4]]).update(mamba_chunk_scan_combined=te_on_cpu.selective_scan, mamba_split_conv1d_scan_combined=lambda: None)
    sys.modules.update(found)
    from megatron.core.ssm import mamba_layer, mamba_mixer, mlp_layer
    for name in names:
        del sys.modules[name]
    return mamba_layer, mamba_mixer, mlp_layer


def stack(config):
    """hybrid_layer_specs.py: hybrid_stack_spec, and hybrid_block.py: _fuse_mla_down_proj."""
    te_on_cpu.install()
    layer, mixer, mlp_layer = mixers()
    from megatron.core.fusions.fused_bias_dropout import get_bias_dropout_add
    from megatron.core.models.hybrid import hybrid_block
    from megatron.core.tensor_parallel import ColumnParallelLinear
    from megatron.core.transformer import ModuleSpec, TransformerLayer, TransformerLayerSubmodules
    from megatron.core.transformer import multi_latent_attention as mla, multi_token_prediction as mtp
    from megatron.core.transformer.enums import AttnMaskType
    from megatron.core.transformer.identity_op import IdentityOp
    norm, normed, column, row, core = te_on_cpu.modules()
    hybrid_block.TENorm = norm
    dense, causal = te_on_cpu.layer_spec(config).submodules, dict(attn_mask_type=AttnMaskType.causal)
    linears = dict.fromkeys(("linear_q_proj", "linear_q_down_proj", "linear_q_up_proj", "linear_kv_down_proj", "linear_kv_up_proj"), ColumnParallelLinear)
    fused = getattr(config, "mla_down_proj_fusion", False)
    if fused:
        linears.update(linear_qkv_down_proj=ColumnParallelLinear, linear_q_down_proj=None, linear_kv_down_proj=None)
    latent = mla.MLASelfAttentionSubmodules(core_attention=core, linear_proj=row, q_layernorm=IdentityOp, kv_layernorm=IdentityOp, **linears)
    config.mla_down_proj_fusion = False  # the stack is fused already; it would look for Transformer Engine's linears
    depth = mtp.MultiTokenPredictionLayerSubmodules(enorm=norm, hnorm=norm, eh_proj=column, mtp_model_layer=None, layer_norm=norm)
    return ModuleSpec(module=hybrid_block.HybridStack, submodules=hybrid_block.HybridStackSubmodules(
        mamba_layer=ModuleSpec(module=layer.MambaLayer, submodules=layer.MambaLayerSubmodules(mamba_bda=get_bias_dropout_add, mixer=ModuleSpec(
            module=mixer.MambaMixer, submodules=mixer.MambaMixerSubmodules(in_proj=normed, out_proj=row)))),
        attention_layer=ModuleSpec(module=TransformerLayer, submodules=TransformerLayerSubmodules(
            self_attention=dense.self_attention, self_attn_bda=get_bias_dropout_add)),
        mla_layer=ModuleSpec(module=TransformerLayer, submodules=TransformerLayerSubmodules(
            input_layernorm=norm, self_attn_bda=get_bias_dropout_add, self_attention=ModuleSpec(
                module=mla.FusedMLASelfAttention if fused else mla.MLASelfAttention, params=causal, submodules=latent))),
        mlp_layer=ModuleSpec(module=mlp_layer.MLPLayer, submodules=TransformerLayerSubmodules(mlp=dense.mlp, mlp_bda=get_bias_dropout_add)),
        mtp_block_spec=ModuleSpec(module=mtp.MultiTokenPredictionBlock, submodules=mtp.MultiTokenPredictionBlockSubmodules(
            layer_specs=[ModuleSpec(module=mtp.MultiTokenPredictionLayer, submodules=depth)]))))


def build(args):
    from megatron.core.models.hybrid.hybrid_model import HybridModel
    config = mcore_cpu.config(args)
    return [HybridModel(
        config=config, hybrid_stack_spec=stack(config), vocab_size=args.padded_vocab_size, max_sequence_length=args.max_position_embeddings,
        hybrid_layer_pattern=args.hybrid_layer_pattern, parallel_output=True, position_embedding_type=args.position_embedding_type,
        share_embeddings_and_output_weights=not args.untie_embeddings_and_output_weights).to(args.params_dtype)]


def main():
    out, names = sys.argv[1], sys.argv[2:] or list(SPECS)
    if len(names) > 1:  # a process has one group
        sys.exit(max(os.spawnv(os.P_WAIT, sys.executable, [sys.executable, __file__, out, name]) for name in names))
    mcore_cpu.build, mcore_cpu.hybrid_pattern = build, lambda args: args.hybrid_layer_pattern
    from megatron.core.dist_checkpointing import serialization
    default = serialization.get_default_save_sharded_strategy
    serialization.get_default_save_sharded_strategy = lambda *arguments: default()
    os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE="1")
    if names[0] == "bridge":  # run_config.yaml has them
        state = write_megatron.common_state
        write_megatron.common_state = lambda args: {key: value for key, value in state(args).items() if key != "args"}
    place = os.path.join(out, names[0])
    os.makedirs(place)
    write_megatron.write_rank(SPECS[names[0]], 0, place, os.path.join(tempfile.mkdtemp(), "store"))
    if names[0] == "bridge":
        with open(os.path.join(place, "iter_0000001", "run_config.yaml"), "w") as file:
            file.write(RUN_CONFIG)


if __name__ == "__main__":
    main()
