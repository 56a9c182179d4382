"""Makes corpus/optim and reject/optim: python3 tests/fuzz/make_optim_seeds.py. Says what each input is.

An input is a checkpoint directory of a tiny model (fuzz_optim.c): one layer, hidden size 4, one head. Archives are without
checksums, so that a fuzzer gets past them.
"""

import collections
import io
import json
import os
import pickle
import struct
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, f"{HERE}/../giants")
import torch_files as tf  # noqa: E402

H, F, V, HEADS = 4, 6, 8, 1
ARGS = dict(num_layers=1, hidden_size=H, ffn_hidden_size=F, num_attention_heads=HEADS, num_query_groups=1, kv_channels=4,
            group_query_attention=False, seq_length=8, max_position_embeddings=8, padded_vocab_size=V, vocab_size=None,
            make_vocab_size_divisible_by=V, normalization="RMSNorm", norm_epsilon=1e-5, swiglu=True, add_bias_linear=False,
            add_qkv_bias=False, qk_layernorm=False, untie_embeddings_and_output_weights=True, position_embedding_type="rope",
            rotary_base=10000, num_experts=None, tensor_model_parallel_size=1, pipeline_model_parallel_size=1, world_size=1,
            data_parallel_size=1, transformer_impl="local", params_dtype=tf.DTYPE["bfloat16"], bf16=True)
# In registration order.
SHAPES = collections.OrderedDict([
    ("embedding.word_embeddings.weight", (V, H)),
    ("decoder.layers.0.input_layernorm.weight", (H,)),
    ("decoder.layers.0.self_attention.linear_proj.weight", (H, 4)),
    ("decoder.layers.0.self_attention.linear_qkv.weight", (12, H)),
    ("decoder.layers.0.pre_mlp_layernorm.weight", (H,)),
    ("decoder.layers.0.mlp.linear_fc1.weight", (2 * F, H)),
    ("decoder.layers.0.mlp.linear_fc2.weight", (H, F)),
    ("decoder.final_layernorm.weight", (H,)),
    ("output_layer.weight", (V, H))])


def save(kind, name, data):
    os.makedirs(f"{HERE}/{kind}/optim", exist_ok=True)
    with open(f"{HERE}/{kind}/optim/{name}", "wb") as f:
        f.write(data)


class Memory(tf.SparseFile):
    def __init__(self):
        self.file, self.pos = io.BytesIO(), 0


def saved(obj):
    out = Memory()
    tf.torch_save(out, "archive", obj, False)
    return out.file.getvalue()


def zeros(shape, dtype="float32"):
    t = tf.Tensor(dtype, shape)
    t.data = bytes(t.data.size)
    return t


def files(**contents):
    return b"".join(letter.encode() + struct.pack("<I", len(data)) + data for letter, data in contents.items())


def model():
    return collections.OrderedDict((k, zeros(s, "bfloat16")) for k, s in SHAPES.items())


def state(optimizer, **args):
    return dict(args=tf.namespace(**{**ARGS, **args}), checkpoint_version=3.0, iteration=1, model=model(), optimizer=optimizer)


# -- legacy, one tensor for each parameter -----------------------------------------------------------------------------------


def groups():
    return [[k for k, s in SHAPES.items() if len(s) > 1], [k for k, s in SHAPES.items() if len(s) == 1]]


def float16(change=None):
    ids = {k: i for i, k in enumerate(sum(groups(), []))}
    moments = {i: dict(exp_avg=zeros(SHAPES[k]), exp_avg_sq=zeros(SHAPES[k]), step=zeros(())) for k, i in ids.items()}
    entries = [dict(params=[ids[k] for k in g], wd_mult=wd, lr_mult=1.0, is_expert_parallel=False, is_decoupled_lr=False,
                    default_config=True) for g, wd in zip(groups(), (1.0, 0.0))]
    optimizer = dict(optimizer=dict(state=moments, param_groups=entries),
                     fp32_from_fp16_params=[[zeros(SHAPES[k]) for k in g] for g in groups()])
    if change:
        change(optimizer)
    return optimizer


def legacy(optimizer, **args):
    return files(m=saved(state(optimizer, **args)))


# -- flat buffers ------------------------------------------------------------------------------------------------------------


def numel(shape):
    n = 1
    for size in shape:
        n *= size
    return n


def flat_size(align=64):
    at = 0
    for shape in reversed(SHAPES.values()):
        at = -(-at // align) * align + numel(shape)
    return at


DTYPES = (tf.DTYPE["bfloat16"], tf.DTYPE["float32"])
NO_TENSORS = dict(optimizer=dict(param_groups=[dict(wd_mult=1.0, step=1), dict(wd_mult=0.0, step=1)]))


def buffer(n, **more):
    return {**{k: zeros((n,)) for k in ("param", "exp_avg", "exp_avg_sq")}, "numel_unpadded": n, **more}


def joined(n, dtypes=DTYPES, **more):
    return {"buckets_coalesced": True, 0: {dtypes: buffer(n, **more)}}


def flat(content, **args):
    return files(m=saved(state(NO_TENSORS, **args)), f=saved(content))


# -- torch_dist --------------------------------------------------------------------------------------------------------------


class Directory(tf.Dcp):
    """Items lie in a file in memory."""

    def __init__(self):
        super().__init__("/nowhere")
        self.files["__0_0.distcp"] = Memory()

    def weights(self):
        for key, shape in SHAPES.items():
            if ".layers.0." in key:
                self.tensor(0, key.replace(".layers.0.", ".layers."), "bfloat16", (1,) + shape, (0,) * (1 + len(shape)),
                            (1,) + shape, bytes(2 * numel(shape)))
            else:
                self.tensor(0, key, "bfloat16", shape, (0,) * len(shape), shape, bytes(2 * numel(shape)))
        return self

    def bytes(self, args=(), common=(), **attributes):
        meta = self.metadata()
        meta.state.update(attributes)
        common = dict(args=tf.namespace(**{**ARGS, **dict(args)}), iteration=1, **dict(common))
        return files(d=pickle.dumps(meta, 4), c=saved(common), x=self.files["__0_0.distcp"].file.getvalue())


def stacked(key, shape):
    layer = ".layers.0." in key
    return key.replace(".layers.0.", ".layers."), ((1,) + shape if layer else shape)


def sharded(main="fp32_param"):
    d = Directory().weights()
    for state_name in (main, "exp_avg", "exp_avg_sq"):
        for key, shape in SHAPES.items():
            name, shape = stacked(key, shape)
            d.tensor(0, f"optimizer.state.{state_name}.{name}", "float32", shape, (0,) * len(shape), shape, bytes(4 * numel(shape)))
    return d


def flattened(parts=2, change=lambda original: original):
    """Each tensor cut in parts along its last axis but one; chunks of 3 and the rest."""
    d, originals = Directory().weights(), {}
    for state_name in ("fp32_param", "exp_avg", "exp_avg_sq"):
        for key, shape in SHAPES.items():
            name, shape = stacked(key, shape)
            cut = [1] * len(shape)
            cut[-1] = parts
            name, n = f"optimizer.state.{state_name}.{name}", numel(shape) // parts
            originals[name] = {"nd_reformulated_orig_global_shape": change(shape)}
            for part in range(parts):
                for at, size in ((0, 1), (1, n - 1)):
                    if size:
                        d.tensor(0, name, "float32", tuple(cut) + (n,), (0,) * (len(cut) - 1) + (part, at),
                                 (1,) * len(cut) + (size,), bytes(4 * size))
    return d, originals


def buckets(n, gap=False, dtypes="(torch.bfloat16, torch.float32)", bucket=0, main=0.0):
    """main: of every fp32 parameter; weights are zeros."""
    d = Directory().weights()
    for state_name in ("param", "exp_avg", "exp_avg_sq"):
        key = f"optimizer.distributed.dp_group_idx_0.gbuf_idx_0.dtype_{dtypes}.bucket_idx_{bucket}.{state_name}"
        for at, size in ((0, 7), (7, n - 7 - gap)):
            value = main if state_name == "param" else 0.0
            d.tensor(0, key, "float32", (n,), (at,), (size,), struct.pack("<f", value) * size)
    d.object(0, "optimizer.distributed.dp_group_idx_0.optimizer/shard_0_1", NO_TENSORS["optimizer"])
    return d


# -- verl's, whose tensors nothing describes but a config ---------------------------------------------------------------------

CONFIG = dict(architectures=["LlamaForCausalLM"], model_type="llama", hidden_size=H, intermediate_size=F, num_hidden_layers=1,
              num_attention_heads=HEADS, num_key_value_heads=1, head_dim=4, vocab_size=V, rms_norm_eps=1e-5, tie_word_embeddings=False)


def verl(directory, config=CONFIG, text=None):
    meta = directory.metadata()
    there = {} if config is None else dict(h=text or json.dumps(config).encode())
    return files(v=pickle.dumps(meta, 4), y=directory.files["__0_0.distcp"].file.getvalue(), **there)


# -- plain DCP, whose state torch flattens ------------------------------------------------------------------------------------


class Plain(Directory):
    def item_of(self, key, value):
        """An archive of the object itself."""
        info = self.item(0, lambda out: tf.torch_save(out, "archive", value, False))
        self.byte_keys.append(key)
        self.index(key, None, info)

    def whole(self, key, shape, dtype="float32"):
        self.tensor(0, key, dtype, shape, (0,) * len(shape), shape, bytes((4 if dtype == "float32" else 2) * numel(shape)))

    def begun(self, dtype="bfloat16", **args):
        for key, shape in SHAPES.items():
            self.whole("model.module." + key, shape, dtype)
        for key, value in dict(args=tf.namespace(**{**ARGS, **args}), iteration=1).items():
            self.item_of(key, value)
        for key in ("max_lr", "num_steps"):
            self.item_of("opt_param_scheduler." + key, 8)
        return self

    def bytes(self):
        return files(e=pickle.dumps(self.metadata(), 4), x=self.files["__0_0.distcp"].file.getvalue())


def fsdp2(params=lambda group, ids: ids, without="nothing", inner="optimizer.optimizer.", **args):
    d, number = Plain().begun(**args), 0
    for g, (keys, decay) in enumerate(zip(groups(), (1.0, 0.0))):
        ids = list(range(number, number + len(keys)))
        for name, value in dict(params=params(g, ids), wd_mult=decay, lr=1e-3, default_config=True).items():
            d.item_of(f"{inner}param_groups.{g}.{name}", value)
        for i, key in enumerate(keys):
            for kind in ("exp_avg", "exp_avg_sq"):
                if f"{number + i}.{kind}" != without:
                    d.whole(f"{inner}state.{number + i}.{kind}", SHAPES[key])
            d.whole(f"{inner}state.{number + i}.step", ())
            if inner == "optimizer.optimizer.":
                d.whole(f"optimizer.fp32_from_fp16_params.{g}.{i}", SHAPES[key])
        number += len(keys)
    return d


def megatron_fsdp(dtype="float32", prefix="module.", meta=lambda key: dict(wd_mult=float(len(SHAPES[key]) > 1), lr=1e-3, step=1), without=""):
    d = Plain().begun(dtype)
    for key, shape in SHAPES.items():
        for kind in ("exp_avg", "exp_avg_sq"):
            if f"{key}.{kind}" != without:
                d.whole(f"optimizer.state.{prefix}{key}.{kind}", shape)
        for name, value in meta(key).items():
            d.item_of(f"optimizer.param_to_group_meta.{prefix}{key}.{name}", value)
    return d


# -- NeMo's, whose common state is PyTorch Lightning's -------------------------------------------------------------------------

NEMO_GROUPS = [dict(pre_wd_mult=decay, pre_lr_mult=1.0, pre_mult_wd=0.1, pre_mult_lr=1e-3, lr=1e-3, weight_decay=0.1 * decay, step=1) for decay in (1.0, 0.0)]
NEMO_CONFIG = f"""config:
  num_layers: 1
  hidden_size: {H}
  ffn_hidden_size: {F}
  num_attention_heads: {HEADS}
  num_query_groups: {HEADS}
  kv_channels: 4
  normalization: RMSNorm
  gated_linear_unit: true
  activation_func:
    _target_: torch.nn.functional.silu
    _call_: false
  add_bias_linear: false
  position_embedding_type: rope
  share_embeddings_and_output_weights: false
  seq_length: 8
  vocab_size: null
optim: null
"""


def nemo(config=NEMO_CONFIG, optimizer=None, prefix="module.", **more):
    """The optimizer's tensors are sharded()'s."""
    d = Directory()
    for tensor_prefix, kind, dtype in [("module.", None, "bfloat16")] + [(prefix, s, "float32") for s in ("fp32_param", "exp_avg", "exp_avg_sq")]:
        for key, shape in SHAPES.items():
            name, shape = stacked(key, shape)
            name = f"optimizer.state.{kind}.{tensor_prefix}{name}" if kind else tensor_prefix + name
            d.tensor(0, name, dtype, shape, (0,) * len(shape), shape, bytes((4 if kind else 2) * numel(shape)))
    state = dict(global_step=1, epoch=0, MockDataModule=dict(consumed_samples=8), optimizer=optimizer or [dict(optimizer=dict(param_groups=NEMO_GROUPS))])
    there = dict(o=config.encode()) if config else {}
    return files(w=pickle.dumps(d.metadata(), 4), p=saved({**state, **more}), z=d.files["__0_0.distcp"].file.getvalue(), **there)


def gathered(content):
    d = Directory().weights()
    d.object(0, "optimizer.distributed.dp_group_idx_0.param_state/shard_0_1", content)
    return d


def make():
    n, unaligned = flat_size(), flat_size(1)
    flattened_dir, originals = flattened()
    per_bucket = {"per_bucket_numel_unpadded": [{DTYPES: [unaligned]}], "per_bucket_numel": [{DTYPES: [n]}],
                  0: {DTYPES: {k: [zeros((unaligned + 3,))] for k in ("param", "exp_avg", "exp_avg_sq")}}}
    for name, data in {
        "none": files(m=saved(dict(args=tf.namespace(**ARGS), checkpoint_version=3.0, model=model()))),
        "float16": legacy(float16()),
        "float16-old-key": legacy(float16(lambda o: o.update(optimizer_state_dict=o.pop("optimizer")))),
        "fp32": legacy(float16()["optimizer"]),
        "one-of-a-chain": legacy([float16()]),
        "joined": flat(joined(n)),
        "joined-unaligned": flat(joined(unaligned)),
        "per-bucket": flat(per_bucket),
        "sharded": sharded().bytes(),
        "reshardable": sharded("param").bytes(),
        "flattened": flattened_dir.bytes(mcore_data=originals),
        "buckets": buckets(n).bytes(),
        "buckets-unaligned": buckets(unaligned).bytes(),
        "gathered": gathered(joined(n)).bytes(),
        "fsdp2": fsdp2().bytes(),
        "fsdp2-in-fp32": fsdp2(inner="optimizer.", dtype="float32", params_dtype=tf.DTYPE["float32"], bf16=False).bytes(),
        "megatron-fsdp": megatron_fsdp().bytes(),
        "megatron-fsdp-without-main-parameters": megatron_fsdp("bfloat16").bytes(),
        "megatron-fsdp-without-groups": megatron_fsdp(meta=lambda key: {}).bytes(),
        "nemo": nemo(),
        "nemo-groups-missing": nemo(optimizer=[{}]),
        "verl": verl(Directory().weights()),
        "verl-with-optimizer": verl(sharded()),
    }.items():
        save("corpus", f"ok-{name}", data)

    def inner(change):
        return legacy(float16(lambda o: change(o["optimizer"])))

    mapped = flattened(change=lambda s: s[:-1] + (s[-1] * 2,))
    axes = flattened(change=lambda s: s + (1,))
    first = "optimizer.state.exp_avg.output_layer.weight"
    wide = sharded()
    wide.tensors[first] = ("float32", (V, H * 2), wide.tensors[first][2])
    lost = sharded()
    del lost.tensors[first]
    lost.storage = {k: v for k, v in lost.storage.items() if k.state["fqn"] != first}
    for name, data in {
        "no-state-of-a-parameter": inner(lambda t: t["state"].pop(3)),
        "no-moments": inner(lambda t: t["state"][3].pop("exp_avg_sq")),
        "moment-of-another-shape": inner(lambda t: t["state"][3].update(exp_avg=zeros((3, 3)))),
        "moment-no-tensor": inner(lambda t: t["state"][3].update(exp_avg=5)),
        "number-no-integer": inner(lambda t: t["param_groups"][0]["params"].__setitem__(0, "0")),
        "group-too-short": inner(lambda t: t["param_groups"][0]["params"].pop()),
        "group-too-long": inner(lambda t: t["param_groups"][1]["params"].append(0)),
        "groups-alike": inner(lambda t: t["param_groups"][1].update(wd_mult=1.0)),
        "no-group-without-decay": inner(lambda t: t["param_groups"].pop()),
        "65-groups": inner(lambda t: t["param_groups"].extend([dict(params=[])] * 63)),
        "main-of-one-group": legacy(float16(lambda o: o["fp32_from_fp16_params"].pop())),
        "main-too-few": legacy(float16(lambda o: o["fp32_from_fp16_params"][0].pop())),
        "chain-of-three": legacy([float16()] * 3),
        "chain-without-experts": legacy([float16()] * 2),
        "optimizer-a-number": legacy(5),
        "optimizer-an-empty-dict": legacy({}),
        "distrib-missing": files(m=saved(state(NO_TENSORS))),
        "distrib-a-list-of-two": flat([joined(n), None]),
        "distrib-of-2023": flat({0: {DTYPES[1]: {}}}),
        "distrib-one-element-more": flat(joined(n + 1)),
        "distrib-shorter-than-it-says": flat(joined(n, param=zeros((n - 1,)))),
        "distrib-two-axes": flat(joined(n, exp_avg=zeros((n, 1)))),
        "distrib-no-exp-avg": flat(joined(n, exp_avg=None)),
        "distrib-fp8": flat(joined(n, (tf.DTYPE["uint8"], DTYPES[1]))),
        "distrib-other-type": flat(joined(n, (DTYPES[1], DTYPES[1]))),
        "distrib-two-types": flat({"buckets_coalesced": True, 0: {DTYPES: buffer(n), DTYPES[0]: buffer(n)}}),
        "distrib-no-buffer": flat({"buckets_coalesced": True}),
        "distrib-of-another-layout": flat(joined(n), overlap_param_gather_with_optimizer_step=True),
        "per-bucket-two": flat({**per_bucket, "per_bucket_numel_unpadded": [{DTYPES: [unaligned - 1, 1]}]}),
        "per-bucket-one-short": flat({**per_bucket, 0: {DTYPES: {k: [zeros((9,))] for k in ("param", "exp_avg", "exp_avg_sq")}}}),
        "sharded-one-missing": lost.bytes(),
        "sharded-another-shape": wide.bytes(),
        "sharded-as-fsdp": named("optimizer.state.module.weight").bytes(),
        "flattened-other-original": mapped[0].bytes(mcore_data=mapped[1]),
        "flattened-original-of-more-axes": axes[0].bytes(mcore_data=axes[1]),
        "buckets-one-element-more": buckets(n + 1).bytes(),
        "buckets-with-a-gap": buckets(n, True).bytes(),
        "buckets-of-fp8": buckets(n, dtypes="(torch.uint8, torch.float32)").bytes(),
        "buckets-second-alone": buckets(n, bucket=1).bytes(),
        "buckets-of-other-weights": buckets(n, main=1.0).bytes(),
        "buckets-as-fsdp": buckets(n).bytes(args=dict(use_megatron_fsdp=True)),
        "gathered-one-element-more": gathered(joined(n + 1)).bytes(),
        "gathered-nothing": gathered(None).bytes(),
        "fsdp2-no-exp-avg": fsdp2(without="3.exp_avg").bytes(),
        "fsdp2-group-too-short": fsdp2(lambda group, ids: ids[1 - group:]).bytes(),
        "fsdp2-group-no-list": fsdp2(lambda group, ids: 3).bytes(),
        "fsdp2-tensor-in-a-group": fsdp2(lambda group, ids: zeros((2,))).bytes(),
        "fsdp2-of-stages": fsdp2(pipeline_model_parallel_size=2).bytes(),
        "megatron-fsdp-no-exp-avg": megatron_fsdp(without="output_layer.weight.exp_avg").bytes(),
        "megatron-fsdp-of-others": megatron_fsdp(prefix="other.").bytes(),
        "megatron-fsdp-tensor-in-a-group": megatron_fsdp(meta=lambda key: dict(wd_mult=zeros((2,)))).bytes(),
        "nemo-no-config": nemo(None),
        "nemo-config-without-a-model": nemo("optim: null\n"),
        "nemo-two-optimizers": nemo(optimizer=[dict(optimizer=dict(param_groups=NEMO_GROUPS))] * 2),
        "nemo-optimizer-no-list": nemo(optimizer=dict(optimizer=dict(param_groups=NEMO_GROUPS))),
        "nemo-optimizer-of-others": nemo(prefix="other."),
        "nemo-65-groups": nemo(optimizer=[dict(optimizer=dict(param_groups=NEMO_GROUPS[:1] * 65))]),
        "verl-no-config": verl(Directory().weights(), None),
        "verl-config-cut-short": verl(Directory().weights(), text=json.dumps(CONFIG).encode()[:-1]),
        "verl-config-a-list": verl(Directory().weights(), text=b"[]"),
        "verl-config-of-a-wider-model": verl(Directory().weights(), dict(CONFIG, intermediate_size=F + 1)),
        "verl-config-of-more-layers": verl(Directory().weights(), dict(CONFIG, num_hidden_layers=2)),
        "verl-config-of-a-tied-model": verl(Directory().weights(), dict(CONFIG, tie_word_embeddings=True)),
        "verl-config-of-no-family": verl(Directory().weights(), dict(CONFIG, architectures=["NobodysModel"], model_type="nobodys")),
        "verl-no-weights": verl(named("optimizer.state.exp_avg.output_layer.weight", Directory())),
    }.items():
        save("reject", name, data)


def named(key, d=None):
    d = d or Directory().weights()
    d.tensor(0, key, "float32", (2,), (0,), (2,), bytes(8))
    return d


if __name__ == "__main__":
    make()
