"""The checkpoints that megatron-core writes for these tests: one line each, read by the writer and by the tests.

`vocab_size` is 1000 in the arguments and the embedding has 1024 rows, so that cropping is tested everywhere but where `set` says
otherwise (`vocab_size=None`, as most runs of Megatron-LM leave it).  Sizes are the smallest that a layout can divide.
"""
import dataclasses
import random


@dataclasses.dataclass(frozen=True)
class Spec:
    name: str
    family: str
    format: str = "torch_dist"      # or zarr, torch, torch_dcp, fsdp_dtensor, nemo, verl, verl2, slime, accelerate
    tp: int = 1
    pp: int = 1
    ep: int = 1
    vpp: int = 1
    etp: int | None = None          # expert tensor parallel size, where it is not tp
    dp: int = 1                     # replicas of the dense model beyond those that ep needs
    dtype: str = "bfloat16"
    optimizer: str = "none"         # or float16, dist
    sharding: str = "dp_reshardable"
    singleton: bool = False         # torch_dist with one key per layer, and gate and up apart
    te_names: bool = False          # torch: the names of Transformer Engine's fused layers
    core: str = "0.16.1"
    seed: int = 1
    samples: int = 8                # nemo: that the run has read
    set: dict = dataclasses.field(default_factory=dict)     # overrides of Megatron's arguments

    @property
    def ranks(self):
        """Processes: the dense grid, repeated until the expert grid fits."""
        dense, experts = self.tp * self.dp, (self.etp or self.tp) * self.ep
        while dense % experts:
            dense += self.tp
        return dense * self.pp

    @property
    def late_names(self):
        """Core 0.16 renamed norm_epsilon and apply_layernorm_1p."""
        return tuple(map(int, self.core.split("."))) >= (0, 16)


def make(name, family, format="torch_dist", *, core="0.16.1", **more):
    fields = {f.name for f in dataclasses.fields(Spec)}
    known = {k: more.pop(k) for k in list(more) if k in fields}
    return Spec(name=name, family=family, format=format, core=core, set=more, **known)


def blocks(pattern):
    return dict(num_layers=len(pattern), hybrid_override_pattern=pattern)


THIRDS = dict(hidden_size=96, num_attention_heads=6, num_query_groups=3, ffn_hidden_size=192, padded_vocab_size=1152)

LAYOUTS = [
    # Odd sizes, all types, both formats.
    make("llama-dist-tp3", "llama", tp=3, **THIRDS),
    make("llama-torch-tp3-pp2-fp16", "llama", "torch", tp=3, pp=2, dtype="float16", **THIRDS),
    make("llama-torch-pp3-fp32", "llama", "torch", pp=3, dtype="float32", num_layers=6),
    make("llama-dist-fp32", "llama", dtype="float32", vocab_size=None, norm_epsilon=1e-2, rotary_base=500000),
    make("llama-torch-tp4-groups2", "llama", "torch", tp=4),
    make("llama-dist-tp4-groups2", "llama", tp=4),
    make("llama-dist-tp4-groups1", "llama", tp=4, num_query_groups=1, vocab_size=None),
    make("llama-torch-mha-tp2", "llama", "torch", tp=2, num_query_groups=4),
    make("llama-dist-tied-pp2", "llama", pp=2, untie_embeddings_and_output_weights=False),
    make("llama-torch-te-names-tp2", "llama", "torch", tp=2, te_names=True),
    make("llama-dist-singleton-tp2-pp2", "llama", tp=2, pp=2, singleton=True),
    # Stages of unequal depth, virtual stages.
    make("llama-torch-uneven-pp3", "llama", "torch", pp=3, num_layers=6, decoder_first_pipeline_num_layers=1, decoder_last_pipeline_num_layers=3),
    make("llama-dist-uneven-pp3", "llama", pp=3, num_layers=6, decoder_first_pipeline_num_layers=1, decoder_last_pipeline_num_layers=3),
    make("llama-torch-uneven-vpp2", "llama", "torch", pp=2, vpp=2, num_layers=6, decoder_first_pipeline_num_layers=2),
    make("llama-torch-tp2-pp2-vpp2", "llama", "torch", tp=2, pp=2, vpp=2),
    make("llama-torch-split-embedding", "llama", "torch", pp=2, num_layers=6, account_for_embedding_in_pipeline_split=True,
         account_for_loss_in_pipeline_split=True),
    make("llama-torch-split-loss", "llama", "torch", pp=3, num_layers=5, account_for_loss_in_pipeline_split=True),
    make("llama-torch-pipeline-layout", "llama", "torch", pp=2, vpp=2, pipeline_model_parallel_layout="Et|tt|t|L"),
    # Biases, RoPE variants.
    make("llama-torch-bias-tp2-pp2", "llama", "torch", tp=2, pp=2, add_bias_linear=True, add_qkv_bias=True),
    make("llama-dist-bias-tp2", "llama", tp=2, add_bias_linear=True, add_qkv_bias=True),
    make("llama-dist-rope-llama3", "llama", use_rope_scaling=True, rope_scaling_factor=8.0, rotary_base=500000),
    make("llama-dist-rope-linear", "llama", rotary_seq_len_interpolation_factor=4),
    # The other dense families.
    make("qwen2-torch-pp3-tied", "qwen2", "torch", pp=3, num_layers=3),
    make("qwen2-torch-tp2-pp2-vpp2", "qwen2", "torch", tp=2, pp=2, vpp=2),
    make("qwen2-dist-tp4-groups2", "qwen2", tp=4),
    make("qwen2-torch-tp4-groups2", "qwen2", "torch", tp=4),
    make("qwen2-dist-optimizer", "qwen2", tp=2, dp=2, optimizer="dist"),
    make("qwen2-dist-optimizer-reshardable", "qwen2", tp=2, dp=2, optimizer="dist", sharding="fully_reshardable"),
    make("llama-torch-optimizer", "llama", "torch", tp=2, dp=2, optimizer="dist"),
    make("llama-dist-optimizer-float16", "llama", pp=2, optimizer="float16"),
    make("qwen3-torch-tp2", "qwen3", "torch", tp=2, num_query_groups=2),
    make("qwen3-dist-untied-fp16", "qwen3", pp=2, dtype="float16", untie_embeddings_and_output_weights=True),
    make("gpt2-dist-uneven-fp32", "gpt2", pp=2, num_layers=3, dtype="float32", decoder_first_pipeline_num_layers=1),
    make("gpt2-torch-tp4-fp16", "gpt2", "torch", tp=4, dtype="float16"),
    make("gpt2-torch-pp2-vpp2", "gpt2", "torch", pp=2, vpp=2),
    # HybridModels of the same families: attention and an MLP in turns, a stage that ends inside a block, experts after a dense block.
    make("llama-hybrid-dist-tp2-pp2", "llama", tp=2, pp=2, **blocks("*-*-*-*-")),
    make("llama-hybrid-torch-tp2", "llama", "torch", tp=2, **blocks("*-*-")),
    make("llama-hybrid-torch-inside-pp2", "llama", "torch", pp=2, **blocks("*-*-*-")),
    make("llama-hybrid-dist-optimizer", "llama", tp=2, dp=2, optimizer="dist", **blocks("*-*-")),
    make("mixtral-hybrid-dist-ep2", "mixtral", ep=2, **blocks("*E*E")),
    # Experts.
    make("mixtral-torch-tp2-ep2", "mixtral", "torch", tp=2, ep=2),
    make("mixtral-torch-ep4", "mixtral", "torch", ep=4),
    make("mixtral-torch-tp2-etp1", "mixtral", "torch", tp=2, etp=1),
    make("mixtral-torch-tp2-ep2-etp1", "mixtral", "torch", tp=2, ep=2, etp=1),
    make("mixtral-torch-tp3-ep2-etp1", "mixtral", "torch", tp=3, ep=2, etp=1, num_experts=6, **THIRDS),
    make("mixtral-torch-tp3-ep2-etp1-optimizer", "mixtral", "torch", tp=3, ep=2, etp=1, optimizer="dist", num_experts=6,
         **THIRDS),  # Megatron leaves empty mp_rank directories here
    make("mixtral-torch-tp2-ep4-etp1", "mixtral", "torch", tp=2, ep=4, etp=1),
    make("mixtral-torch-tp2-ep4-etp1-optimizer", "mixtral", "torch", tp=2, ep=4, etp=1, optimizer="dist"),
    make("mixtral-torch-tp2-ep2-etp1-optimizer", "mixtral", "torch", tp=2, ep=2, etp=1, dp=2, optimizer="dist"),
    make("mixtral-torch-tp2-ep2-pp2-etp1", "mixtral", "torch", tp=2, pp=2, ep=2, etp=1),
    make("mixtral-dist-tp2-ep2-etp1", "mixtral", tp=2, ep=2, etp=1),
    make("mixtral-dist-ep3-pp2", "mixtral", ep=3, pp=2, num_experts=6),
    make("mixtral-torch-te-names-ep2", "mixtral", "torch", ep=2, te_names=True),
    make("mixtral-torch-grouped-tp2-ep2", "mixtral", "torch", tp=2, ep=2, moe_grouped_gemm=True),
    make("mixtral-dist-grouped-tp2", "mixtral", tp=2, moe_grouped_gemm=True),
    make("mixtral-dist-singleton", "mixtral", ep=2, singleton=True),
    make("deepseek-torch-tp2-pp2", "deepseek", "torch", tp=2, pp=2),
    make("deepseek-dist-tp2-ep2", "deepseek", tp=2, ep=2),
    make("deepseek-torch-ep2-etp1", "deepseek", "torch", tp=2, ep=2, etp=1),
    make("deepseek-dist-no-q-lora", "deepseek", q_lora_rank=None),
    make("deepseek-dist-scaled", "deepseek", moe_router_topk_scaling_factor=2.5, moe_router_num_groups=2, moe_router_group_topk=1,
         moe_layer_freq=[0, 0, 1, 1]),
]

# Programs that build on megatron-core (peers/write_others.py).  Six rows of experts over five ranks leave one rank without any.
OTHERS = [
    make("llama-torch_dcp-dp2", "llama", "torch_dcp", dp=2),
    make("mixtral-torch_dcp-dp5", "mixtral", "torch_dcp", dp=5, num_experts=6, num_layers=2),
    make("qwen2-fsdp_dtensor-dp3", "qwen2", "fsdp_dtensor", dp=3),
    make("mixtral-fsdp_dtensor-dp2", "mixtral", "fsdp_dtensor", dp=2, num_layers=2),
    make("llama-nemo-tp2-pp2", "llama", "nemo", tp=2, pp=2, vocab_size=None),
    make("mixtral-nemo-tp2", "mixtral", "nemo", tp=2, vocab_size=None, num_layers=2),
    make("llama-verl-tp2-pp2-vpp2", "llama", "verl", tp=2, pp=2, vpp=2),
    make("llama-verl-optimizer", "llama", "verl", tp=2, dp=2, optimizer="dist", sharding="fully_reshardable"),
    make("mixtral-verl2-ep2", "mixtral", "verl2", ep=2, num_layers=2),
    make("qwen3-slime-tp2", "qwen3", "slime", tp=2),
    make("llama-accelerate-tp2-pp2", "llama", "accelerate", tp=2, pp=2),
]

# The same programs, with the state of their optimizers.
OTHER_OPTIMIZERS = [
    make("llama-nemo-optimizer", "llama", "nemo", core="0.14.0", tp=2, pp=2, dp=2, optimizer="dist", sharding="fully_sharded_model_space", vocab_size=None),
    make("llama-nemo-optimizer-gathered", "llama", "nemo", core="0.14.0", tp=2, pp=2, dp=2, optimizer="dist", sharding="dp_zero_gather_scatter",
         vocab_size=None),
    make("mixtral-nemo-optimizer", "mixtral", "nemo", core="0.14.0", ep=2, optimizer="dist", sharding="fully_sharded_model_space", num_layers=2,
         vocab_size=None),
    make("qwen2-nemo-optimizer-float16", "qwen2", "nemo", core="0.14.0", tp=2, optimizer="float16", vocab_size=None),
    make("llama-torch_dcp-optimizer", "llama", "torch_dcp", dp=2, optimizer="float16"),
    make("mixtral-torch_dcp-optimizer", "mixtral", "torch_dcp", dp=3, optimizer="float16", num_layers=2),
    make("qwen2-torch_dcp-optimizer-fp32", "qwen2", "torch_dcp", dp=2, optimizer="float16", dtype="float32"),
    make("qwen2-fsdp_dtensor-optimizer", "qwen2", "fsdp_dtensor", dp=3, optimizer="float16"),
    make("mixtral-fsdp_dtensor-optimizer", "mixtral", "fsdp_dtensor", dp=2, optimizer="float16", num_layers=2),
    make("llama-fsdp_dtensor-optimizer-fp16", "llama", "fsdp_dtensor", dp=2, optimizer="float16", dtype="float16"),
    make("llama-torch_dcp-optimizer-fp16", "llama", "torch_dcp", dp=2, optimizer="float16", dtype="float16"),
]

# Head size 32, which vLLM's CPU attention asks for; its qwen2 takes hidden/heads as the head size.
HEADS32 = dict(hidden_size=128, num_attention_heads=4, kv_channels=32)
PEERS = [
    make("peers-llama", "llama", tp=2, pp=2, vocab_size=None, **HEADS32),
    make("peers-qwen2", "qwen2", "torch", tp=2, **HEADS32),
    make("peers-qwen3", "qwen3", tp=2, **HEADS32),
    make("peers-mixtral", "mixtral", "torch", ep=2, **HEADS32),
    make("peers-gpt2", "gpt2", tp=2, **HEADS32),
    make("peers-mistral", "mistral", tp=2, **HEADS32),
]

# Core 0.12 scales MLA's softmax for YaRN even under rope_type "rope", unless the scaling factor is one.
CORES = [make(f"core-{core}-{name}", family, format, core=core, **more)
         for core in ("0.10.0", "0.12.3", "0.14.0", "0.15.3")
         for name, family, format, more in (
             ("llama-dist", "llama", "torch_dist", dict(tp=2, pp=2)),
             ("qwen2-torch", "qwen2", "torch", dict(tp=2, pp=2)),
             ("mixtral-dist", "mixtral", "torch_dist", dict(pp=2, ep=2)),
             ("deepseek-dist", "deepseek", "torch_dist", dict(pp=2, ffn_hidden_size=48, rotary_scaling_factor=1.0)),
             ("mixtral-grouped", "mixtral", "torch", dict(ep=2, moe_grouped_gemm=True)))
         if (core, name) != ("0.10.0", "deepseek-dist")]  # its shared experts need Transformer Engine
CORES += [make("core-0.10.0-mixtral-zarr", "mixtral", "zarr", core="0.10.0", pp=2, ep=2),
          make("core-0.12.3-llama-zarr", "llama", "zarr", core="0.12.3", tp=2, pp=2)]
# Optimizer states flattened over the model: `[2, 1, 32768]` for a `[1024, 64]` at TP2.
CORES += [make(f"core-{core}-optimizer", "qwen2", core=core, tp=2, dp=2, optimizer="dist", sharding="fully_sharded_model_space")
          for core in ("0.14.0", "0.15.3")]

# What a family may or may not express.  A wrong model would open without a word, so the answer is the right logits or a refusal.
RIGHT_OR_REFUSED = [
    make("odd-rotary-percent", "llama", rotary_percent=0.5),
    make("odd-rotary-interleaved", "llama", rotary_interleaved=True),
    make("odd-not-gated", "llama", swiglu=False),
    make("odd-squared-relu", "llama", swiglu=False, squared_relu=True),
    make("odd-layernorm", "llama", normalization="LayerNorm"),
    make("odd-zero-centred-norms", "llama", dtype="float32", apply_layernorm_1p=True),
    make("odd-zero-centred-norms-gpt2", "gpt2", "torch", tp=2, dtype="float32", apply_layernorm_1p=True),
    make("odd-positions", "llama", position_embedding_type="learned_absolute"),
    make("odd-no-positions", "llama", position_embedding_type="none"),
    make("odd-qkv-bias-alone", "llama", add_qkv_bias=True),
    make("odd-bias-without-qkv", "llama", add_bias_linear=True, add_qkv_bias=False),
    make("odd-qwen2-norms", "qwen2", qk_layernorm=True),
    make("odd-qwen3-bias", "qwen3", add_qkv_bias=True),
    make("odd-gpt2-rope", "gpt2", position_embedding_type="rope"),
    make("odd-gpt2-untied", "gpt2", untie_embeddings_and_output_weights=True),
    make("odd-gpt2-groups", "gpt2", num_query_groups=2),
    make("odd-gpt2-head-size", "gpt2", kv_channels=32),
    make("odd-mixtral-pre-softmax", "mixtral", moe_router_pre_softmax=True),
    make("odd-mixtral-top1", "mixtral", moe_router_topk=1, moe_router_pre_softmax=True),
    make("odd-mixtral-sigmoid", "mixtral", moe_router_score_function="sigmoid"),
    make("odd-mixtral-scaled", "mixtral", moe_router_topk_scaling_factor=2.5),
    make("odd-mixtral-shared-expert", "mixtral", moe_shared_expert_intermediate_size=48),
    make("odd-mixtral-dense-first", "mixtral", moe_layer_freq=[0, 1, 1, 1]),
    make("odd-mixtral-every-second", "mixtral", moe_layer_freq=2),
    make("odd-mixtral-qk-norm", "mixtral", qk_layernorm=True),
    make("odd-mixtral-tied", "mixtral", untie_embeddings_and_output_weights=False),
    make("odd-deepseek-no-bias", "deepseek", moe_router_enable_expert_bias=False),
    make("odd-deepseek-softmax", "deepseek", moe_router_score_function="softmax", moe_router_enable_expert_bias=False),
    make("odd-deepseek-no-qk-norm", "deepseek", qk_layernorm=False),
    make("odd-deepseek-no-shared", "deepseek", moe_shared_expert_intermediate_size=None),
    make("odd-deepseek-dense-last", "deepseek", moe_layer_freq=[1, 1, 1, 0]),
    make("odd-deepseek-tied", "deepseek", untie_embeddings_and_output_weights=False),
    make("odd-deepseek-yarn", "deepseek", rope_type="yarn", rotary_scaling_factor=4.0, original_max_position_embeddings=64, mscale=1.0,
         mscale_all_dim=1.0),
]

# Sizes that TP8, PP4, VPP2 and EP4 divide, with optimizers: the widest views.
EIGHTS = dict(num_layers=8, num_attention_heads=8, kv_channels=8, ffn_hidden_size=64, num_query_groups=2)
VIEWS = [
    make("views-llama-torch-adam", "llama", "torch", tp=2, pp=2, optimizer="float16", **EIGHTS),
    make("views-llama-dist-adam", "llama", tp=2, pp=2, optimizer="float16", **EIGHTS),
    make("views-qwen2-torch-dist", "qwen2", "torch", tp=2, pp=2, optimizer="dist", **EIGHTS),
    make("views-qwen3-dist-vpp", "qwen3", pp=2, vpp=2, optimizer="dist", sharding="fully_reshardable", **dict(EIGHTS, num_query_groups=8)),
    make("views-gpt2-torch-vpp", "gpt2", "torch", pp=2, vpp=2, optimizer="float16", **dict(EIGHTS, num_query_groups=8)),
    make("views-mixtral-torch-adam", "mixtral", "torch", pp=2, ep=2, optimizer="float16", moe_ffn_hidden_size=64, **EIGHTS),
    make("views-mixtral-torch-dist", "mixtral", "torch", tp=2, ep=2, etp=1, optimizer="dist", moe_ffn_hidden_size=64, **EIGHTS),
    make("views-deepseek-dist-adam", "deepseek", pp=2, ep=2, optimizer="float16", moe_layer_freq=[0] + 7 * [1], **dict(EIGHTS, num_query_groups=8)),
    make("views-deepseek-torch-dist", "deepseek", "torch", tp=2, pp=2, optimizer="dist", moe_layer_freq=[0] + 7 * [1],
         **dict(EIGHTS, num_query_groups=8)),
]


WIDE = dict(hidden_size=96, num_attention_heads=12, kv_channels=8, ffn_hidden_size=96, padded_vocab_size=1152)
EXPERTS = dict(WIDE, num_experts=6, moe_ffn_hidden_size=48)
SWEPT = dict(llama=WIDE, qwen2=WIDE, qwen3=WIDE, gpt2=WIDE, mixtral=EXPERTS, deepseek=dict(EXPERTS, q_lora_rank=48, kv_lora_rank=28))
GRIDS = [(1, 1), (1, 2), (1, 3), (2, 1), (2, 2), (3, 1), (1, 4), (2, 3), (4, 1)]


def sweep(count):
    """Layouts that nobody chose: `count` points of the grid, the same ones each time."""
    draw = random.Random(20)
    for number in range(count):
        family, format, (tp, pp) = draw.choice(list(SWEPT)), draw.choice(["torch", "torch_dist"]), draw.choice(GRIDS)
        moe, vpp = family in ("mixtral", "deepseek"), draw.choice([1, 1, 2]) if pp > 1 else 1
        if family == "deepseek":
            vpp = 1  # a list of layer kinds and virtual stages are drawn apart, by name, above
        ep = draw.choice([1, 2, 3]) if moe and tp * pp < 4 else 1
        etp = draw.choice([None, 1]) if moe and tp > 1 else None
        groups = draw.choice([n for n in (1, 2, 3, 4, 6, 12) if (n % tp == 0 or tp % n == 0) and (12 + 2 * n) % tp == 0])
        if family in ("gpt2", "deepseek"):
            groups = 12  # these have no query groups
        layers = pp * vpp * draw.choice([1, 2])
        more = dict(SWEPT[family], num_query_groups=groups, num_layers=layers, vocab_size=draw.choice([1000, None]))
        if pp > 1 and vpp == 1 and draw.random() < 0.4:
            more.update(num_layers=layers + 1, decoder_first_pipeline_num_layers=layers // pp + 1)
        if family == "deepseek":
            more["moe_layer_freq"] = [draw.choice([0, 1])] + [1] * (more["num_layers"] - 1)
        yield make(f"sweep-{number:02d}-{family}-{format}-tp{tp}-pp{pp}-ep{ep}-vpp{vpp}", family, format, tp=tp, pp=pp, ep=ep, vpp=vpp,
                   etp=etp, dtype=draw.choice(["bfloat16", "float16", "float32"]), seed=number, **more)


SWEEP = list(sweep(48))

ALL = LAYOUTS + OTHERS + OTHER_OPTIMIZERS + VIEWS + PEERS + CORES + RIGHT_OR_REFUSED + SWEEP
BY_NAME = {spec.name: spec for spec in ALL}
assert len(BY_NAME) == len(ALL)
