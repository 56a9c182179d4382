"""Megatron-core on the CPU with gloo: process groups, the shims it needs, tiny GPT models of six families."""
import argparse
import contextlib
import inspect
import os
import sys
import types
import zlib

os.environ.setdefault("CUDA_HOME", "")                # keeps torch's extension builder away from any installed nvcc
os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")     # compiling a fused activation takes 20 s, running it nothing
import no_extensions  # noqa: E402,F401
import numpy
import torch
import torch.distributed as dist
from torch.overrides import TorchFunctionMode


def _grouped_gemm():
    """A stand-in for the CUDA package `grouped_gemm`, so that GroupedMLP can be built and run."""
    def gmm(a, b, counts, trans_b=False):
        parts = a.split([int(n) for n in counts])
        return torch.cat([p @ (w.T if trans_b else w) for p, w in zip(parts, b)])

    module = types.ModuleType("grouped_gemm")
    module.ops = types.SimpleNamespace(gmm=gmm)
    return module


sys.modules.setdefault("grouped_gemm", _grouped_gemm())  # before megatron's own try: import


class _CudaMeansCpu(TorchFunctionMode):
    """Every device='cuda' becomes 'cpu', and CPU tensors claim a CUDA type where Megatron's optimizers ask for one."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if str(kwargs.get("device", "")).startswith("cuda"):
            kwargs["device"] = "cpu"
        if func is torch.Tensor.cuda:
            return args[0]
        if func is torch.Tensor.to:
            args = tuple("cpu" if isinstance(a, (str, torch.device)) and str(a).startswith("cuda") else a for a in args)
        result = func(*args, **kwargs)
        if func is torch.Tensor.type and isinstance(result, str):
            return result.replace("torch.", "torch.cuda.", 1)
        return result


def start(spec, rank, store):
    """Joins the gloo group of one checkpoint (`store`: a file that the ranks share) and makes Megatron's groups."""
    torch.set_num_threads(1)
    if not hasattr(numpy, "product"):
        numpy.product = numpy.prod  # core 0.14 and 0.15 save flattened ranges with the name that numpy 2 dropped
    torch.cuda.current_device = lambda: "cpu"
    torch.cuda.synchronize = lambda *a, **k: None
    torch.cuda.Stream = type("Stream", (torch.cuda.Stream,), dict(__new__=lambda cls, *a, **k: None))
    torch.cuda.get_rng_state = torch.get_rng_state
    _CudaMeansCpu().__enter__()
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=spec.ranks)
    from megatron.core import parallel_state as ps
    from megatron.core.tensor_parallel import random
    random.CudaRNGStatesTracker.fork = lambda self, name=None: contextlib.nullcontext()
    from megatron.core.transformer.moe import moe_utils
    moe_utils.te_general_gemm = getattr(moe_utils, "te_general_gemm", None)  # 0.16 tests a name it never sets without TE
    _let_local_attention_serve_mla()
    _let_biases_of_experts_be_added()
    wanted = dict(tensor_model_parallel_size=spec.tp, pipeline_model_parallel_size=spec.pp, expert_model_parallel_size=spec.ep,
                  virtual_pipeline_model_parallel_size=spec.vpp if spec.vpp > 1 else None,
                  expert_tensor_parallel_size=spec.etp, create_gloo_process_groups=True)
    call_known(ps.initialize_model_parallel, **wanted)
    return ps


def call_known(function, *args, **kwargs):
    """Calls with those keyword arguments that this version of the function has."""
    known = inspect.signature(function).parameters
    return function(*args, **{key: value for key, value in kwargs.items() if key in known})


def _let_local_attention_serve_mla():
    """Before core 0.17 the local DotProductAttention refuses the k_channels and v_channels that MLA passes."""
    from megatron.core.transformer import multi_latent_attention
    from megatron.core.transformer.dot_product_attention import DotProductAttention
    for name in ("TELinear", "TEColumnParallelLinear"):  # no class without Transformer Engine, yet used in isinstance()
        if not isinstance(getattr(multi_latent_attention, name, None), type):
            setattr(multi_latent_attention, name, type("Absent", (), {}))
    original = DotProductAttention.__init__
    if "v_channels" in inspect.signature(original).parameters:
        return

    def init(self, *args, k_channels=None, v_channels=None, **kwargs):
        original(self, *args, **kwargs)
        if v_channels:
            self.hidden_size_per_partition = v_channels * self.num_attention_heads_per_partition

    DotProductAttention.__init__ = init


def _let_biases_of_experts_be_added():
    """MLP adds an expert's bias in place, which autograd refuses of what the local RowParallelLinear gives, not of Transformer Engine's."""
    from megatron.core.tensor_parallel import layers
    original = layers.reduce_from_tensor_model_parallel_region
    layers.reduce_from_tensor_model_parallel_region = lambda *args, **kwargs: original(*args, **kwargs).clone()


# Names and values as in the `args` namespace of Megatron-LM's pretrain_gpt.py.
COMMON = dict(num_layers=4, hidden_size=64, num_attention_heads=4, num_query_groups=2, kv_channels=16, ffn_hidden_size=176,
              seq_length=128, max_position_embeddings=256, normalization="RMSNorm", swiglu=True, position_embedding_type="rope",
              rotary_base=10000, rotary_percent=1.0, add_bias_linear=False, add_qkv_bias=False, qk_layernorm=False,
              untie_embeddings_and_output_weights=True, vocab_size=1000, padded_vocab_size=1024, norm_epsilon=1e-5,
              num_experts=None, moe_layer_freq=1, multi_latent_attention=False, use_rope_scaling=False, rope_scaling_factor=8.0,
              rotary_seq_len_interpolation_factor=None, decoder_first_pipeline_num_layers=None,
              decoder_last_pipeline_num_layers=None, moe_grouped_gemm=False, apply_layernorm_1p=False, rotary_interleaved=False)
MOE = dict(num_experts=4, moe_router_topk=2, moe_ffn_hidden_size=176, moe_token_dispatcher_type="allgather")
FAMILIES = {
    "llama": {},
    "qwen2": dict(add_qkv_bias=True, rotary_base=1000000, untie_embeddings_and_output_weights=False),
    "qwen3": dict(num_query_groups=4, kv_channels=32, qk_layernorm=True, rotary_base=1000000,
                  untie_embeddings_and_output_weights=False),
    "gpt2": dict(num_query_groups=4, normalization="LayerNorm", swiglu=False, position_embedding_type="learned_absolute",
                 add_bias_linear=True, add_qkv_bias=True, untie_embeddings_and_output_weights=False),
    "mistral": dict(window_size=(12, 0)),
    "mixtral": dict(MOE),
    "deepseek": dict(MOE, multi_latent_attention=True, q_lora_rank=32, kv_lora_rank=16, qk_head_dim=16, qk_pos_emb_head_dim=8,
                     v_head_dim=16, moe_ffn_hidden_size=48, moe_router_score_function="sigmoid", qk_layernorm=True,
                     moe_router_enable_expert_bias=True, moe_shared_expert_intermediate_size=48, moe_layer_freq=[0, 1, 1, 1],
                     rope_type="rope", num_query_groups=4),
}


def megatron_args(spec):
    """The model part of the `args` namespace that Megatron stores in a checkpoint."""
    values = {**COMMON, **FAMILIES[spec.family], **spec.set}
    dtype = getattr(torch, spec.dtype)
    values.update(params_dtype=dtype, bf16=dtype is torch.bfloat16, fp16=dtype is torch.float16,
                  group_query_attention=values["num_query_groups"] != values["num_attention_heads"],
                  tensor_model_parallel_size=spec.tp, pipeline_model_parallel_size=spec.pp, expert_model_parallel_size=spec.ep,
                  virtual_pipeline_model_parallel_size=spec.vpp if spec.vpp > 1 else None, context_parallel_size=1,
                  expert_tensor_parallel_size=spec.etp or spec.tp, world_size=spec.ranks, make_vocab_size_divisible_by=values["padded_vocab_size"] // spec.tp,
                  data_parallel_size=spec.ranks // (spec.tp * spec.pp), use_distributed_optimizer=spec.optimizer == "dist",
                  tokenizer_type="HuggingFaceTokenizer", transformer_impl="local", seed=spec.seed, ckpt_format=spec.format,
                  num_layers_per_virtual_pipeline_stage=(values["num_layers"] // (spec.pp * spec.vpp) if spec.vpp > 1 else None))
    if spec.late_names:  # core 0.16 renamed two arguments
        values["layernorm_epsilon"] = values.pop("norm_epsilon")
        values["layernorm_zero_centered_gamma"] = values.pop("apply_layernorm_1p")
    return argparse.Namespace(**values)


def zero_centred(args):
    """Whether norm weights are stored as their difference from one."""
    return getattr(args, "apply_layernorm_1p", False) or getattr(args, "layernorm_zero_centered_gamma", False)


def has_linear_attention(args):
    """Such models are made of Transformer Engine's modules alone, which know zero-centred weights."""
    return bool(getattr(args, "experimental_attention_variant", None))


def hybrid_pattern(args):
    """The letters of layers that are one sublayer each, of Transformer Engine's modules alone as well; None: these are attention and an MLP."""
    return getattr(args, "hybrid_override_pattern", None)


def gelu(args):
    """As Megatron computes it: by tanh where it is fused, else by erf."""
    approximate = "tanh" if getattr(args, "bias_gelu_fusion", True) else "none"
    return lambda x: torch.nn.functional.gelu(x, approximate=approximate)


def config(args):
    """TransformerConfig from the arguments, as Megatron-LM's core_transformer_config_from_args makes it."""
    from megatron.core.transformer import transformer_config
    cls = getattr(transformer_config, "MLATransformerConfig" if args.multi_latent_attention else "TransformerConfig")
    values = {k: v for k, v in vars(args).items() if k in cls.__dataclass_fields__ and v is not None}
    values.update(num_moe_experts=args.num_experts, gated_linear_unit=args.swiglu or getattr(args, "quick_geglu", False), bias_activation_fusion=False,
                  activation_func=torch.nn.functional.silu if args.swiglu else gelu(args),
                  pipeline_dtype=args.params_dtype, use_cpu_initialization=True, hidden_dropout=0.0, attention_dropout=0.0,
                  bias_dropout_fusion=False, masked_softmax_fusion=False, apply_rope_fusion=False, gradient_accumulation_fusion=False,
                  persist_layer_norm=False, sequence_parallel=False, variable_seq_lengths=False,
                  layernorm_epsilon=getattr(args, "norm_epsilon", None) or args.layernorm_epsilon,
                  layernorm_zero_centered_gamma=has_linear_attention(args) or bool(hybrid_pattern(args)) and zero_centred(args),  # for the others float32_copy() of the writer stands in
                  deterministic_mode=has_linear_attention(args),
                  num_layers_in_first_pipeline_stage=args.decoder_first_pipeline_num_layers,
                  num_layers_in_last_pipeline_stage=args.decoder_last_pipeline_num_layers)
    if hybrid_pattern(args):
        values["use_mamba_mem_eff_path"] = False  # one kernel for all of a mixer
    if args.multi_latent_attention:
        values["q_lora_rank"] = args.q_lora_rank  # None is a value here: q is not compressed
    if getattr(args, "quick_geglu", False):
        from megatron.core.fusions.fused_bias_geglu import quick_gelu
        values["activation_func"] = quick_gelu
    if getattr(args, "squared_relu", False):
        values["activation_func"] = lambda x: torch.nn.functional.relu(x) ** 2
    if not args.num_experts:
        for key in [k for k in values if k.startswith("moe_")]:
            values.pop(key)
    if not args.multi_latent_attention:
        values.pop("rope_type", None)
    made = cls(**{k: v for k, v in values.items() if k in cls.__dataclass_fields__})
    if args.position_embedding_type == "yarn":  # GPTModel reads attributes that no field declares
        vars(made).update({k: v for k, v in vars(args).items() if k.startswith("yarn_")})
    return made


def build(args):
    """One GPTModel per virtual pipeline chunk of this rank; fill() gives it its weights."""
    from megatron.core import parallel_state as ps
    cfg = config(args)
    chunks = args.virtual_pipeline_model_parallel_size or 1
    models = []
    for chunk in range(chunks):
        where = dict(ignore_virtual=False) if chunks > 1 else {}
        if chunks > 1:
            ps.set_virtual_pipeline_model_parallel_rank(chunk)
            if "vp_stage" in inspect.signature(ps.is_pipeline_first_stage).parameters:
                where["vp_stage"] = chunk
        stage = dict(vp_stage=chunk) if chunks > 1 else {}
        models.append(_model(args, cfg, stage, ps.is_pipeline_first_stage(**where), ps.is_pipeline_last_stage(**where)))
    return models


def _hybrid_model(args, cfg, first, last):
    import te_on_cpu
    spec = te_on_cpu.hybrid_stack_spec(cfg)
    from megatron.core.models.mamba.mamba_model import MambaModel
    return MambaModel(
        config=cfg, mamba_stack_spec=spec, vocab_size=args.padded_vocab_size, max_sequence_length=args.max_position_embeddings, pre_process=first,
        post_process=last, hybrid_override_pattern=hybrid_pattern(args), parallel_output=True, position_embedding_type=args.position_embedding_type,
        share_embeddings_and_output_weights=not args.untie_embeddings_and_output_weights).to(args.params_dtype)


def _model(args, cfg, stage, first, last):
    if hybrid_pattern(args):
        return _hybrid_model(args, cfg, first, last)
    from megatron.core.models.gpt.gpt_model import GPTModel
    spec = _layer_spec(args, cfg, stage)
    ahead = dict(mtp_block_spec=_mtp_spec(cfg, spec, stage)) if getattr(args, "mtp_num_layers", None) else {}
    return call_known(
        GPTModel, config=cfg, transformer_layer_spec=spec, **ahead, vocab_size=args.padded_vocab_size,
        max_sequence_length=args.max_position_embeddings, pre_process=first, post_process=last, parallel_output=True,
        share_embeddings_and_output_weights=not args.untie_embeddings_and_output_weights,
        position_embedding_type=args.position_embedding_type, rotary_base=args.rotary_base, rotary_percent=args.rotary_percent,
        rope_scaling=args.use_rope_scaling, rope_scaling_factor=args.rope_scaling_factor,
        seq_len_interpolation_factor=args.rotary_seq_len_interpolation_factor, **stage).to(args.params_dtype)


class _WideNorm(torch.nn.Module):
    """RMSNorm over all heads of all ranks, as Megatron-Bridge's FullDimQNorm and FullDimKNorm (minimax_m2_provider.py): each rank has its heads' weights."""

    def __init__(self, config, heads, hidden_size, eps):
        from megatron.core import parallel_state as ps
        super().__init__()
        self.eps, self.width, ranks = eps, heads * hidden_size, ps.get_tensor_model_parallel_world_size()
        self.weight = torch.nn.Parameter(torch.ones(self.width // ranks, dtype=config.params_dtype))
        self.weight.tensor_model_parallel = True

    def forward(self, x):
        from megatron.core import parallel_state as ps
        flat = x.flatten(-2).float()
        squares = flat.pow(2).sum(-1, keepdim=True)
        dist.all_reduce(squares, group=ps.get_tensor_model_parallel_group())
        return (flat * torch.rsqrt(squares / self.width + self.eps)).to(x.dtype).mul(self.weight).view(x.shape)

    def sharded_state_dict(self, prefix="", sharded_offsets=(), metadata=None):
        from megatron.core.transformer.utils import make_sharded_tensors_for_checkpoint
        return make_sharded_tensors_for_checkpoint(self.state_dict(prefix="", keep_vars=True), prefix, {"weight": 0}, sharded_offsets)


def _wide_norm(heads_of):
    class Norm:
        def __new__(cls, hidden_size, config, eps):
            return _WideNorm(config, getattr(config, heads_of), hidden_size, eps)
    return Norm


def _norm_behind_alone(spec):
    """Norms as in Megatron-Bridge's exaone4_provider.py: of what attention and MLP give, and none of what they take."""
    from megatron.core.tensor_parallel import RowParallelLinear
    from megatron.core.transformer.identity_op import IdentityOp
    from megatron.core.transformer.torch_norm import WrappedTorchNorm

    class NormedRowParallelLinear(RowParallelLinear):
        def __init__(self, input_size, output_size, *, config, **kwargs):
            super().__init__(input_size, output_size, config=config, **kwargs)
            self.post_layernorm = WrappedTorchNorm(config, output_size, eps=config.layernorm_epsilon)

        def forward(self, x):
            output, bias = super().forward(x)
            return self.post_layernorm(output), bias

    spec.submodules.input_layernorm = spec.submodules.pre_mlp_layernorm = IdentityOp
    spec.submodules.sharded_state_dict_keys_map = {}
    spec.submodules.self_attention.submodules.linear_proj = NormedRowParallelLinear
    spec.submodules.mlp.submodules.linear_fc2 = NormedRowParallelLinear


def _layer_spec(args, cfg, stage):
    spec = _usual_layer_spec(args, cfg, stage)
    if (getattr(args, "model_provider", None) or "").startswith("Exaone4"):
        _norm_behind_alone(spec)
    if getattr(args, "qk_norm_wide", False):
        for layer in spec.layer_specs:
            layer.submodules.self_attention.submodules.q_layernorm = _wide_norm("num_attention_heads")
            layer.submodules.self_attention.submodules.k_layernorm = _wide_norm("num_query_groups")
    return spec


def _usual_layer_spec(args, cfg, stage):
    if has_linear_attention(args):
        import te_on_cpu
        return te_on_cpu.linear_attention_spec(cfg, **stage)
    from megatron.core.models.gpt import gpt_layer_specs as specs
    for name in ("TEColumnParallelGroupedLinear", "TERowParallelGroupedLinear", "TEColumnParallelLinear", "TERowParallelLinear"):
        vars(specs).setdefault(name, None)  # core 0.10 reads them even where it uses none
    if args.num_experts:
        return call_known(specs.get_gpt_decoder_block_spec, cfg, use_transformer_engine=False, normalization=args.normalization, **stage)
    return call_known(specs.get_gpt_layer_local_spec, qk_layernorm=args.qk_layernorm,
                      multi_latent_attention=args.multi_latent_attention, normalization=args.normalization)


def _mtp_spec(cfg, spec, stage):
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_mtp_block_spec
    return call_known(get_gpt_mtp_block_spec, cfg, spec, use_transformer_engine=False, **stage)


@torch.no_grad()
def fill(args, models):
    """Random weights in which no two tensors agree: a layer, an expert or a norm in the wrong place changes the logits.

    Megatron's own initialisation gives equal weights to equal positions of two stages and of two expert ranks, norms of
    one and biases of zero.  Replicas must still agree, so the seed names what a tensor is, not which rank holds it.
    """
    from megatron.core import parallel_state as ps
    stage = ps.get_pipeline_model_parallel_rank()
    for chunk, model in enumerate(models):
        tensors = list(model.named_parameters()) + [b for b in model.named_buffers() if b[0].endswith("expert_bias")]
        for name, tensor in tensors:
            where = f"{chunk}.{stage}.{name}"
            if name == "embedding.word_embeddings.weight" or (name == "output_layer.weight" and not args.untie_embeddings_and_output_weights):
                where = "embedding"
            torch.manual_seed(zlib.crc32(f"{args.seed}/{where}/{_shard(ps, name, tensor)}".encode()))
            noise = torch.randn(tensor.shape)
            if tensor.dim() == 1:
                value = 0.1 * noise + (1 if name.endswith("norm.weight") and not zero_centred(args) else 0)
            else:
                value = 0.08 * noise
            tensor.copy_(value)


def _shard(ps, name, tensor):
    """Which part of the global tensor this rank holds."""
    expert = ".experts." in name
    rank = 0
    if getattr(tensor, "tensor_model_parallel", False):
        rank = ps.get_expert_tensor_parallel_rank() if expert and hasattr(ps, "get_expert_tensor_parallel_rank") \
            else ps.get_tensor_model_parallel_rank()
    return rank, ps.get_expert_model_parallel_rank() if expert else 0


def _logits_ahead(model, tokens, position):
    """Logits; those of multi-token prediction, [layer, batch, place, vocabulary], are left in the model.  It makes them for a loss alone."""
    from megatron.core.tensor_parallel import gather_from_tensor_model_parallel_region
    heads = []  # copies, as the loss is computed in their place
    hook = model.output_layer.register_forward_hook(lambda module, arguments, output: heads.append(output[0].transpose(0, 1).clone()))
    model(tokens, position, None, labels=tokens)
    hook.remove()
    model.logits_ahead = gather_from_tensor_model_parallel_region(torch.stack(heads[:-1]))
    return heads[-1]


@torch.no_grad()
def forward(models, tokens):
    """Logits on the last pipeline stage, None elsewhere; chunks run one after the other."""
    from megatron.core import parallel_state as ps
    from megatron.core.tensor_parallel import gather_from_tensor_model_parallel_region
    pp, stage, group = ps.get_pipeline_model_parallel_world_size(), ps.get_pipeline_model_parallel_rank(), ps.get_pipeline_model_parallel_group()
    ranks = dist.get_process_group_ranks(group)
    hidden = torch.empty(tokens.shape[1], tokens.shape[0], models[0].config.hidden_size, dtype=models[0].config.params_dtype)
    position = torch.arange(tokens.shape[1]).expand_as(tokens)
    for step in range(pp * len(models)):
        chunk, owner = divmod(step, pp)
        if owner != stage:
            continue
        model = models[chunk]
        if not model.pre_process:
            if pp > 1:
                dist.recv(hidden, ranks[(stage - 1) % pp], group=group)
            model.set_input_tensor(hidden.clone())
        model.eval()  # MoE with TP asks for sequence parallelism in training mode
        output = _logits_ahead(model, tokens, position) if getattr(model, "mtp_process", False) else model(tokens, position, None)
        if model.post_process:
            return gather_from_tensor_model_parallel_region(output)
        if pp > 1:
            dist.send(output.contiguous(), ranks[(stage + 1) % pp], group=group)
        hidden = output
    return None
