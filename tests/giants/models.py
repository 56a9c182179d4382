"""Shapes of whole models as Megatron writes them, and the arguments of a run that could have."""

import io
import os
import zipfile

import torch_files as tf

FIXTURES = os.path.join(os.path.dirname(__file__), "../fixtures")


def fixture_args(family, **changes):
    """args of a real run (some 700 of them), with this model's sizes."""
    if family == "deepseek":
        path = f"{FIXTURES}/weights/deepseek-torch_dist-pp2-ep2/iter_0000040/__0_0.distcp"
        with open(path, "rb") as f:
            data = f.read()
        start = data.rindex(b"PK\5\6", 0, data.index(b"argparse")) + 22
        end = data.index(b"PK\5\6", start) + 22
        archive = zipfile.ZipFile(io.BytesIO(data[start:end]))
        args = tf.loads(archive.read("archive/data.pkl"))[0]["args"]
    else:
        path = f"{FIXTURES}/weights/llama-torch-tp2-pp2/iter_0000040/mp_rank_00_000/model_optim_rng.pt"
        archive = zipfile.ZipFile(path)
        args = tf.loads(archive.read("model_optim_rng/data.pkl"))["args"]
    for name, value in changes.items():
        assert hasattr(args, name), name
        setattr(args, name, value)
    return args


class Llama:
    """Sizes of a llama; shapes of one tensor-parallel rank's part."""

    def __init__(self, layers, hidden, heads, groups, ffn, vocab, padded, tp=1, pp=1, first=None, last=None):
        self.layers, self.hidden, self.heads, self.groups, self.ffn = layers, hidden, heads, groups, ffn
        self.vocab, self.padded, self.tp, self.pp, self.first, self.last = vocab, padded, tp, pp, first, last
        self.dim = hidden // heads

    def args(self):
        return fixture_args(
            "llama", num_layers=self.layers, encoder_num_layers=self.layers, hidden_size=self.hidden,
            ffn_hidden_size=self.ffn, num_attention_heads=self.heads, num_query_groups=self.groups,
            kv_channels=self.dim, seq_length=8192, max_position_embeddings=131072, padded_vocab_size=self.padded,
            vocab_size=self.vocab, make_vocab_size_divisible_by=128, rotary_base=500000, use_rope_scaling=True,
            rope_scaling_factor=8.0,
            tensor_model_parallel_size=self.tp, pipeline_model_parallel_size=self.pp,
            decoder_first_pipeline_num_layers=self.first, decoder_last_pipeline_num_layers=self.last)

    def stage_layers(self):
        if self.first is None:
            return [self.layers // self.pp] * self.pp
        middle = (self.layers - self.first - self.last) // (self.pp - 2)
        return [self.first] + [middle] * (self.pp - 2) + [self.last]

    def layer(self):
        """(name, global shape, tensor-parallel axis or None, gated)"""
        h, f = self.hidden, self.ffn
        return [
            ("input_layernorm.weight", (h,), None, False),
            ("self_attention.linear_proj.weight", (h, h), 1, False),
            ("self_attention.linear_qkv.weight", ((self.heads + 2 * self.groups) * self.dim, h), 0, False),
            ("pre_mlp_layernorm.weight", (h,), None, False),
            ("mlp.linear_fc1.weight", (2 * f, h), 0, True),
            ("mlp.linear_fc2.weight", (h, f), 1, False),
        ]

    def split(self, shape, axis):
        return tuple(n // self.tp if i == axis else n for i, n in enumerate(shape))

    def parameters(self):
        per_layer = sum(numel(shape) for _, shape, _, _ in self.layer())
        return self.layers * per_layer + (self.vocab * 2 + 1) * self.hidden

    def tensors(self):
        """HF tensors: q, k, v, o, gate, up, down and two norms a layer; embedding, norm, head."""
        return 9 * self.layers + 3


def numel(shape):
    n = 1
    for s in shape:
        n *= s
    return n


LLAMA_405B = Llama(126, 16384, 128, 8, 53248, vocab=128256, padded=129024, tp=8, pp=16, first=7, last=7)


class DeepseekV3:
    layers, hidden, heads, ffn, moe_ffn, experts, dense = 61, 7168, 128, 18432, 2048, 256, 3
    q_lora, kv_lora, nope, rope, v, vocab = 1536, 512, 128, 64, 128, 129280
    pp, ep = 16, 64

    def args(self):
        return fixture_args(
            "deepseek", num_layers=self.layers, encoder_num_layers=self.layers, hidden_size=self.hidden,
            ffn_hidden_size=self.ffn, num_attention_heads=self.heads, num_query_groups=self.heads,
            kv_channels=self.nope, seq_length=4096, max_position_embeddings=163840, padded_vocab_size=self.vocab,
            vocab_size=self.vocab, num_experts=self.experts, moe_layer_freq=[0] * self.dense + [1] * (self.layers - self.dense),
            moe_router_topk=8, moe_ffn_hidden_size=self.moe_ffn, moe_shared_expert_intermediate_size=self.moe_ffn,
            moe_router_num_groups=8, moe_router_group_topk=4, moe_router_topk_scaling_factor=2.5,
            moe_grouped_gemm=True, q_lora_rank=self.q_lora, kv_lora_rank=self.kv_lora, qk_head_dim=self.nope,
            qk_pos_emb_head_dim=self.rope, v_head_dim=self.v, rope_type="yarn", rotary_scaling_factor=40.0,
            mscale=1.0, mscale_all_dim=1.0, layernorm_epsilon=1e-6, tensor_model_parallel_size=1,
            pipeline_model_parallel_size=self.pp, expert_model_parallel_size=self.ep, world_size=self.pp * self.ep,
            data_parallel_size=self.ep, decoder_last_pipeline_num_layers=1)

    def attention(self):
        h, a = self.hidden, self.heads
        return [
            ("input_layernorm.weight", (h,)),
            ("self_attention.linear_proj.weight", (h, a * self.v)),
            ("self_attention.linear_q_down_proj.weight", (self.q_lora, h)),
            ("self_attention.linear_q_up_proj.weight", (a * (self.nope + self.rope), self.q_lora)),
            ("self_attention.linear_kv_down_proj.weight", (self.kv_lora + self.rope, h)),
            ("self_attention.linear_kv_up_proj.weight", (a * (self.nope + self.v), self.kv_lora)),
            ("self_attention.q_layernorm.weight", (self.q_lora,)),
            ("self_attention.kv_layernorm.weight", (self.kv_lora,)),
            ("pre_mlp_layernorm.weight", (h,)),
        ]

    def mlp(self, layer):
        """Dense tensors of a layer's MLP: (name, dtype, shape)."""
        h = self.hidden
        if layer < self.dense:
            return [("mlp.linear_fc1.weight", "bfloat16", (2 * self.ffn, h)),
                    ("mlp.linear_fc2.weight", "bfloat16", (h, self.ffn))]
        return [("mlp.router.weight", "bfloat16", (self.experts, h)),
                ("mlp.router.expert_bias", "float32", (self.experts,)),
                ("mlp.shared_experts.linear_fc1.weight", "bfloat16", (2 * self.moe_ffn, h)),
                ("mlp.shared_experts.linear_fc2.weight", "bfloat16", (h, self.moe_ffn))]

    def stages(self):
        """Layers of each pipeline stage: 4 and a last one of 1."""
        return [range(4 * p, min(4 * p + 4, self.layers)) for p in range(self.pp)]

    def parameters(self):
        total = (2 * self.vocab + 1) * self.hidden
        for layer in range(self.layers):
            total += sum(numel(shape) for _, shape in self.attention())
            total += sum(numel(shape) for _, _, shape in self.mlp(layer))
            if layer >= self.dense:
                total += self.experts * 3 * self.moe_ffn * self.hidden
        return total

    def tensors(self):
        """HF tensors: attention 9 a layer, dense MLP 3, MoE 2 + 3 shared + 3 an expert, and 3."""
        return 9 * self.layers + 3 * self.dense + (self.layers - self.dense) * (5 + 3 * self.experts) + 3
