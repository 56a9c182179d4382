"""Megatron checkpoints read with plain torch: whole tensors under one set of names, whatever the format and the layout.

A second opinion on what mcorefs writes and reads: nothing here comes from it or from Megatron.  Names are those of megatron-core's local
modules with global layer and expert numbers; a gated fc1 is [gate; up].  Every element of a tensor must be there exactly once, every rank
must have what its neighbours have, and replicas must agree.
"""
import argparse
import collections
import dataclasses
import io
import itertools
import json
import math
import pathlib
import pickle
import re
import types

import numpy
import torch

STATES = ("param", "exp_avg", "exp_avg_sq")


class Unknown:
    """An object of a class that is not installed."""

    def __init__(self, *arguments):
        self.arguments = arguments

    def __setstate__(self, state):
        self.state = state

    def __eq__(self, other):
        return isinstance(other, Unknown) and vars(self) == vars(other)

    __hash__ = None


class _Unpickler(pickle.Unpickler):
    def find_class(self, module, name):
        if module.split(".")[0] == "megatron":
            return type(name, (Unknown,), {"__module__": module})
        return super().find_class(module, name)


_pickle = types.SimpleNamespace(Unpickler=_Unpickler, load=lambda file, **more: _Unpickler(file, **more).load(), __name__="stand-ins")


def load(file):
    """torch.load without any Megatron."""
    return torch.load(file, map_location="cpu", weights_only=False, pickle_module=_pickle)


def raw(tensor):
    """Its bytes, for a comparison that knows no NaN and no -0."""
    return tensor.contiguous().reshape(-1).view(torch.uint8)


def same(one, other):
    return one.dtype == other.dtype and one.shape == other.shape and torch.equal(raw(one), raw(other))


@dataclasses.dataclass
class Contents:
    args: argparse.Namespace
    common: dict                # what is no tensor: of rank 0, or common.pt
    weights: dict               # {name: tensor}
    states: dict                # {"param", "exp_avg", "exp_avg_sq": {name: tensor}}
    steps: set
    unread: list                # optimizer keys in a form that only Megatron at that layout understands


def iteration(source):
    """The directory that the tracker of `source` names, or `source` itself."""
    tracker = pathlib.Path(source) / "latest_checkpointed_iteration.txt"
    if not tracker.exists():
        return pathlib.Path(source)
    word = tracker.read_text().strip()
    return pathlib.Path(source) / ("release" if word == "release" else f"iter_{int(word):07d}")


def read(source, strict=True):
    """strict: tensor ranks agree on norms, as in everything but a save of a run with sequence parallelism."""
    directory = iteration(source)
    if (directory / ".metadata").exists():
        return read_torch_dist(directory)
    return read_zarr(directory) if (directory / "metadata.json").exists() else read_torch(directory, strict)


# Names.

RENAMED = [
    (r"self_attention\.linear_qkv\.layer_norm_(weight|bias)$", r"input_layernorm.\1"),
    (r"self_attention\.linear_q_up_proj\.layer_norm_weight$", "self_attention.q_layernorm.weight"),
    (r"self_attention\.linear_kv_up_proj\.layer_norm_weight$", "self_attention.kv_layernorm.weight"),
    (r"mlp\.linear_fc1\.layer_norm_(weight|bias)$", r"pre_mlp_layernorm.\1"),
    (r"\.mtp_model_layer\.", ".transformer_layer."),
]
EXPERT = re.compile(r"(.*\.mlp\.experts\.)(?:local_experts\.(\d+)\.(linear_fc[12])\.(weight|bias)|(linear_fc[12])\.(weight|bias)(\d+))$")


def canonical(name):
    for pattern, replacement in RENAMED:
        name = re.sub(pattern, replacement, name)
    return name


def expert_of(name):
    """(name without its expert, number among the rank's) of a routed expert's weight."""
    match = EXPERT.match(name)
    if not match:
        return None
    head, number, module, kind, te_module, te_kind, te_number = match.groups()
    return f"{head}{{}}.{module or te_module}.{kind or te_kind}", int(number or te_number)


def axis(name, te):
    """Which axis tensor ranks divide; None: each has it all."""
    if re.search(r"(word_embeddings|output_layer|eh_proj)\.weight$", name):
        return 0
    if re.search(r"linear_(qkv|fc1|q_proj|q_up_proj|kv_up_proj)\.(weight|bias)$", name):
        return 0
    if re.search(r"linear_(q|kv)_down_proj\.weight$", name):
        return None if te else 0
    return 1 if re.search(r"linear_(proj|fc2)\.weight$", name) else None


def join(name, parts, args):
    """The whole of one tensor from what its tensor ranks hold."""
    te = args.transformer_impl == "transformer_engine"
    along = axis(name, te)
    if along is None:
        return parts[0]
    if args.swiglu and ".linear_fc1." in name:  # a rank has [its gate; its up]
        gates, ups = zip(*(part.chunk(2) for part in parts))
        return torch.cat([*gates, *ups])
    return torch.cat(parts, along)


# Legacy files.

def rank_name(args, tp, pp, ep):
    name = f"mp_rank_{tp:02d}"
    name += f"_{pp:03d}" if args.pipeline_model_parallel_size > 1 else ""
    return name + (f"_{ep:03d}" if args.expert_model_parallel_size > 1 else "")


def chunks_of(state):
    """A rank's pipeline chunks, in order."""
    return [state["model"]] if "model" in state else [state[f"model{i}"] for i in range(sum(bool(re.fullmatch(r"model\d+", k)) for k in state))]


def whole_names(chunk, first_layer, ep, args):
    """[(global name, tensor)] of a rank's chunk, in its order; fused experts are taken apart."""
    found = []
    for key, tensor in chunk.items():
        if key.endswith("_extra_state"):
            continue
        name = re.sub(r"^(decoder\.layers)\.(\d+)\.", lambda m: f"{m[1]}.{int(m[2]) + first_layer}.", canonical(key))
        mine = args.num_experts // args.expert_model_parallel_size if args.num_experts else 0
        fused, single = re.match(r"(.*\.mlp\.experts\.)weight([12])$", name), expert_of(name)
        if fused and tensor is not None:
            hidden = args.hidden_size  # [hidden, experts x out] and [experts x in, hidden], reshaped without a copy
            parts = tensor.reshape(mine, hidden, -1) if fused[2] == "1" else tensor.reshape(mine, -1, hidden)
            found += [(f"{fused[1]}{ep * mine + e}.linear_fc{fused[2]}.weight", part.t()) for e, part in enumerate(parts)]
        elif single:
            assert single[1] < mine, key
            found.append((single[0].format(ep * mine + single[1]), tensor))
        else:
            found.append((name, tensor))
    return found


def is_expert(name, args):
    """Whether it belongs to the optimizer of experts, which there is from two expert ranks on."""
    return args.expert_model_parallel_size > 1 and ".mlp.experts." in name


def parameters(chunk):
    """[(key, shape)] of a rank's chunk: buffers and Transformer Engine's state are none."""
    return [(k, t) for k, t in chunk.items() if not k.endswith(("_extra_state", "router.expert_bias"))]


def optimizer_parts(state):
    """(whether of experts, its state_dict) of each optimizer of a rank; a chain is a list."""
    found = state.get("optimizer")
    if not found:
        return []
    if isinstance(found, list):
        return list(enumerate(found))
    return list(found.items()) if 0 in found else [(0, found)]


def rank_states(path, state, args):
    """[{key: {state: tensor}} per chunk] and the steps of one rank's files."""
    chunks, steps = chunks_of(state), set()
    found = [collections.defaultdict(dict) for _ in chunks]
    shared = path / "distrib_optim.pt"
    if shared.exists():
        parts = load(shared)
        for number, part in enumerate(parts if isinstance(parts, list) else [parts]):
            if part is not None:
                chained = isinstance(parts, list) and len(parts) > 1
                rank_buffers(chunks, part, bool(number) if chained else None, args, found)
    for number, part in optimizer_parts(state):
        inner = part.get("optimizer", part)
        steps |= {float(group["step"]) for group in inner["param_groups"] if "step" in group}
        if "state" in inner:
            rank_tensors(chunks, part, inner, args, found, steps)
    return found, steps


def group_keys(chunks, group, args):
    """[(chunk, key)] of a param group: Megatron decays no bias and nothing of one axis, and gives experts groups of their own."""
    wanted = group.get("is_expert_parallel", False), group["wd_mult"] == 0
    return [(c, key) for c, chunk in enumerate(chunks) for key, tensor in parameters(chunk)
            if (is_expert(key, args), key.endswith(".bias") or tensor.dim() == 1) == wanted]


def rank_tensors(chunks, part, inner, args, found, steps):
    """Float16Optimizer (and FP32Optimizer): numbered tensors, group after group."""
    masters = part.get("fp32_from_fp16_params")
    for number, group in enumerate(inner["param_groups"]):
        keys = group_keys(chunks, group, args)
        assert len(keys) == len(group["params"]), f"group {number}: {len(group['params'])} of {len(keys)} parameters"
        for place, ((c, key), identity) in enumerate(zip(keys, group["params"])):
            state = inner["state"][identity]
            if "step" in state:
                steps.add(float(state["step"]))
            values = dict(param=masters[number][place] if masters is not None else chunks[c][key].float())
            values.update({name: state[name] for name in STATES[1:]})
            for name, value in values.items():
                assert value.shape == chunks[c][key].shape, f"{key}: {name} is {tuple(value.shape)}"
                found[c][key][name] = value


def rank_buffers(chunks, part, experts, args, found):
    """DistributedOptimizer: flat buffers, parameters in reverse order, each at a multiple of 64."""
    assert part["buckets_coalesced"] is True
    number = 0  # of the buffer: a chunk without such parameters has none
    for c, chunk in enumerate(chunks):
        wanted = [(k, t) for k, t in reversed(parameters(chunk)) if experts is None or is_expert(k, args) == experts]
        if not wanted:
            continue
        buffer, = part[number].values()
        number, place = number + 1, 0
        for key, tensor in wanted:
            place = math.ceil(place / 64) * 64
            for name in STATES:
                found[c][key][name] = buffer[name][place:place + tensor.numel()].view(tensor.shape)
            place += tensor.numel()
        assert place <= buffer["numel_unpadded"] == buffer["param"].numel() <= place + 64, (place, buffer["numel_unpadded"])
    assert part.keys() - {"buckets_coalesced"} == set(range(number))


def read_torch(directory, strict=True):
    places = sorted(directory.glob("mp_rank_*"))
    states = {place.name: load(place / "model_optim_rng.pt") for place in places if (place / "model_optim_rng.pt").exists()}
    args = next(iter(states.values()))["args"]
    T, P, E = args.tensor_model_parallel_size, args.pipeline_model_parallel_size, args.expert_model_parallel_size
    X = getattr(args, "expert_tensor_parallel_size", None) or T
    ranks = [(tp, ep) for tp in range(T) for ep in range(E) if rank_name(args, tp, 0, ep) in states]
    assert {tp for tp, _ in ranks} == set(range(T)) and {ep for _, ep in ranks} == set(range(E))
    assert len(ranks) * P == len(states), f"{len(states)} files of {len(ranks) * P}"
    optimizers = {name: rank_states(directory / name, state, args) for name, state in states.items()}
    contents = Contents(args, next(iter(states.values())), {}, {}, set(), [])
    first_layer = 0
    for vp in range(args.virtual_pipeline_model_parallel_size or 1):
        for pp in range(P):
            pieces, layers = {}, set()  # {kind: {name: {(tp, ep): tensor}}}
            for tp, ep in ranks:
                name = rank_name(args, tp, pp, ep)
                chunk, (states_of, steps) = chunks_of(states[name])[vp], optimizers[name]
                contents.steps |= steps
                layers.add(len({m[1] for key in chunk if (m := re.match(r"decoder\.layers\.(\d+)\.", key))}))
                by_kind = {"model": chunk, **{kind: {k: s.get(kind) for k, s in states_of[vp].items()} for kind in STATES}}
                for kind, tensors in by_kind.items():
                    for key, tensor in whole_names(tensors, first_layer, ep, args):
                        if tensor is not None:
                            pieces.setdefault(kind, {}).setdefault(key, {})[tp, ep] = tensor
            first_layer += layers.pop()
            assert not layers, "ranks of a stage differ in layers"
            for kind, tensors in pieces.items():
                into = contents.weights if kind == "model" else contents.states.setdefault(kind, {})
                for key, parts in tensors.items():
                    value = merged(kind, key, parts, args, ranks, X, strict)
                    if key in into:  # the tied head and the embedding of MTP are copies
                        assert key == "embedding.word_embeddings.weight", key
                    into[key] = value
    assert first_layer == args.num_layers, f"{first_layer} layers of {args.num_layers}"
    settle_copies(contents, args)
    return contents


def merged(kind, key, parts, args, ranks, X, strict):
    """One tensor of all ranks of a stage."""
    expert = re.search(r"\.mlp\.experts\.(\d+)\.", key)
    if expert:
        owner = int(expert[1]) // (args.num_experts // args.expert_model_parallel_size)
        wanted = {(tp, ep) for tp, ep in ranks if ep == owner}
        rank_of, size = (lambda tp: tp % X), X
    else:
        wanted, rank_of, size = set(ranks), (lambda tp: tp), args.tensor_model_parallel_size
    if kind == "model":  # a distributed optimizer's state stands once: in the file of its first data-parallel rank
        assert parts.keys() == wanted, f"{key}: of ranks {sorted(parts)}, not {sorted(wanted)}"
    by_rank = {}
    for (tp, ep), tensor in sorted(parts.items()):
        first = by_rank.setdefault(rank_of(tp), tensor)
        assert same(first, tensor), f"{kind} {key}: ranks tp {tp} ep {ep} and another differ"
    assert by_rank.keys() == set(range(size)), f"{kind} {key}: of tensor ranks {sorted(by_rank)}"
    ordered = [by_rank[rank] for rank in range(size)]
    if axis(key, args.transformer_impl == "transformer_engine") is None and strict:
        assert all(same(ordered[0], part) for part in ordered), f"{kind} {key}: tensor ranks differ"
    return join(key, ordered, args)


def settle_copies(contents, args):
    """A tied head is the embedding; one of them is enough."""
    if args.untie_embeddings_and_output_weights:
        return
    for tensors in (contents.weights, *contents.states.values()):
        head = tensors.pop("output_layer.weight", None)
        if head is not None:
            assert same(head, tensors["embedding.word_embeddings.weight"]), "the tied head differs from the embedding"


# torch_dist.

def items(directory):
    """(sizes and types by key, {(key, offsets): object}) of a .metadata and its data files; objects are loaded when asked for."""
    metadata = _Unpickler((directory / ".metadata").open("rb")).load()
    metadata = metadata if hasattr(metadata, "storage_data") else types.SimpleNamespace(**metadata.state)
    where = {}
    for index, info in metadata.storage_data.items():
        key = index.fqn, tuple(index.offset) if index.offset is not None else None
        assert key not in where, f"{key} stands twice"
        where[key] = info
    return metadata, where


def item(directory, info):
    with open(directory / info.relative_path, "rb") as file:
        file.seek(info.offset)
        data = file.read(info.length)
    assert len(data) == info.length, f"{info.relative_path} is too short"
    return load(io.BytesIO(data))


def whole_tensor(directory, key, described, where):
    whole = torch.empty(described.size, dtype=described.properties.dtype)
    seen = torch.zeros(described.size, dtype=torch.uint8)
    for chunk in described.chunks:
        tensor = item(directory, where[key, tuple(chunk.offsets)])
        assert tensor.dtype == whole.dtype and tensor.shape == torch.Size(chunk.sizes), f"{key}: {tensor.dtype} {tuple(tensor.shape)}"
        box = tuple(slice(o, o + s) for o, s in zip(chunk.offsets, chunk.sizes))
        whole[box] = tensor
        seen[box] += 1
    assert (seen == 1).all(), f"{key}: not every element exactly once"
    return whole


def stored_tensors(directory):
    """{key: whole tensor} as torch_dist has them."""
    metadata, where = items(directory)
    return {key: whole_tensor(directory, key, d, where) for key, d in metadata.state_dict_metadata.items() if hasattr(d, "chunks")}


def unflattened(tensor, shape):
    """Core 0.8 to 0.15 could flatten the optimizer's shards: [parts of axis 0, of axis 1, ..., elements of one]."""
    parts = tensor.shape[:-1]
    assert len(parts) == len(shape)
    blocks = tensor.reshape(*parts, *(s // p for s, p in zip(shape, parts)))
    order = [axis + half for axis in range(len(shape)) for half in (0, len(shape))]
    return blocks.permute(order).reshape(shape)


def unstacked(key, tensor, args):
    """[(global name, tensor)]: layers, then experts, are leading axes where the key has no number of them."""
    name = canonical(key)
    found = [(name, tensor)]
    if re.match(r"decoder\.layers\.(?!\d)", name):
        assert tensor.shape[0] == args.num_layers, key
        found = [(name.replace("decoder.layers.", f"decoder.layers.{i}."), part) for i, part in enumerate(tensor)]
    single = re.search(r"\.mlp\.experts\.experts\.(?:\d+\.)?", name)
    if single and not single[0][-2].isdigit():
        assert all(part.shape[0] == args.num_experts for _, part in found), key
        return [(n.replace(".experts.experts.", f".experts.{e}."), piece) for n, part in found for e, piece in enumerate(part)]
    return [(n.replace(".experts.experts.", ".experts."), part) for n, part in found]


def gathered(found):
    """Gate and up that stand apart become one."""
    for name in [n for n in found if n.endswith("_w")]:
        found[name[:-2]] = torch.cat([found.pop(name), found.pop(name[:-2] + "_v")])
    return found


def read_torch_dist(directory):
    metadata, where = items(directory)
    if (directory / "common.pt").exists():
        common = load(directory / "common.pt")
    else:
        common, = item(directory, where["common_state/shard_0_1", None])
    args, flat = common["args"], getattr(metadata, "mcore_data", None) or {}
    contents = Contents(args, common, {}, {}, set(), [])
    for key, described in metadata.state_dict_metadata.items():
        if not hasattr(described, "chunks"):
            continue
        state = re.match(r"(?:chained_\d+\.)?optimizer\.state\.(fp32_param|param|exp_avg|exp_avg_sq)\.(.*)", key)
        if not state and "optimizer." in key:
            contents.unread.append(key)
            continue
        tensor = whole_tensor(directory, key, described, where)
        if shape := flat.get(key, {}).get("nd_reformulated_orig_global_shape"):
            tensor = unflattened(tensor, shape)
        name, into = (state[2], contents.states.setdefault(state[1].removeprefix("fp32_"), {})) if state else (key, contents.weights)
        for whole, part in unstacked(name, tensor, args):
            assert whole not in into, f"{whole} stands twice"
            into[whole] = part
    for tensors in (contents.weights, *contents.states.values()):
        gathered(tensors)
    for _, part in optimizer_parts(common):
        inner = part.get("optimizer", part)
        contents.steps |= {float(group["step"]) for group in inner.get("param_groups", ()) if "step" in group}
        if "common_step" in inner.get("state", {}):
            contents.steps.add(float(inner["state"]["common_step"]))
    settle_copies(contents, args)
    return contents


# zarr.

def zarr_tensor(folder):
    """zarr v2 as megatron-core writes it: a file of plain numbers for each chunk, named by its place in the grid."""
    about = json.loads((folder / ".zarray").read_text())
    assert about["compressor"] is None and about["filters"] is None and about["order"] == "C", f"{folder}: {about}"
    dtype = torch.bfloat16 if about["dtype"] == "bfloat16" else torch.from_numpy(numpy.empty(0, about["dtype"])).dtype
    whole = torch.empty(about["shape"], dtype=dtype)
    for place in itertools.product(*(range(-(-size // chunk)) for size, chunk in zip(about["shape"], about["chunks"]))):
        values = torch.frombuffer(bytearray((folder / ".".join(map(str, place))).read_bytes()), dtype=dtype)
        box = tuple(slice(p * chunk, (p + 1) * chunk) for p, chunk in zip(place, about["chunks"]))
        part = whole[box]
        part[...] = values.reshape(about["chunks"])[tuple(slice(size) for size in part.shape)]
    return whole


def read_zarr(directory):
    """The weights; an optimizer is for others to compare."""
    common = load(directory / "common.pt")
    contents = Contents(common["args"], common, {}, {}, set(), [])
    for folder in sorted(about.parent for about in directory.glob("*/.zarray")):
        if folder.name.startswith("optimizer.") or folder.name.endswith(".sync"):
            continue
        for name, part in unstacked(folder.name, zarr_tensor(folder), contents.args):
            assert name not in contents.weights, f"{name} stands twice"
            contents.weights[name] = part
    gathered(contents.weights)
    return contents


# Comparisons.

def vocabulary_rows(name):
    return name.endswith(("embedding.word_embeddings.weight", "output_layer.weight"))


def assert_same_tensors(got, want, what, vocab=None, cropped=False):
    """Equal bit for bit.  Of the vocabulary `vocab` rows are a model's (None: all); others may be there or not, and new ones are zero.

    cropped: what comes behind those of the model was lost on the way.
    """
    assert got.keys() == want.keys(), f"{what}: {sorted(got.keys() ^ want.keys())[:6]} only on one side"
    for name, tensor in want.items():
        mine = got[name]
        if vocabulary_rows(name):
            rows = vocab if cropped and vocab else min(len(mine), len(tensor))
            assert len(mine) >= rows >= (vocab or len(tensor)), f"{what}: {name} has {len(mine)} rows"
            assert not raw(mine[rows:]).any(), f"{what}: {name} is padded with something"
            mine, tensor = mine[:rows], tensor[:rows]
        assert mine.dtype == tensor.dtype and mine.shape == tensor.shape, f"{what}: {name}: {mine.dtype} {tuple(mine.shape)}"
        assert torch.equal(raw(mine), raw(tensor)), f"{what}: {name}: {int((raw(mine) != raw(tensor)).sum())} bytes differ"


def assert_same_contents(got, want, what, states=True, cropped=False):
    vocab = getattr(want.args, "vocab_size", None)
    assert_same_tensors(got.weights, want.weights, what, vocab, cropped)
    if states:
        assert got.states.keys() == want.states.keys(), f"{what}: states {list(got.states)}, not {list(want.states)}"
        for kind, tensors in want.states.items():
            assert_same_tensors(got.states[kind], tensors, f"{what}: {kind}", vocab)
        assert got.steps == want.steps, f"{what}: steps {got.steps}"


def differences(one, other, where="", ignored=()):
    """Sentences on where two loaded objects differ: types, keys (their order in a state dict), values, tensors bit for bit."""
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return [] if same(one, other) else [f"{where}: {one.dtype} {tuple(one.shape)}, {other.dtype} {tuple(other.shape)}"]
    if type(one) is not type(other) and not (isinstance(one, Unknown) and isinstance(other, Unknown)):
        return [f"{where}: {type(one).__name__}, {type(other).__name__}"]
    if isinstance(one, argparse.Namespace):
        one, other, where = vars(one), vars(other), f"{where}.args"
    if isinstance(one, dict):
        one, other = (type(x)((k, v) for k, v in x.items() if k not in ignored) for x in (one, other))
        if one.keys() != other.keys():
            return [f"{where}: keys {[k for k in one if k not in other][:5]}, {[k for k in other if k not in one][:5]}"]
        if isinstance(one, collections.OrderedDict) and list(one) != list(other):
            return [f"{where}: keys in another order"]
        return [d for key in one for d in differences(one[key], other[key], f"{where}/{key}", ignored)]
    if isinstance(one, (list, tuple)):
        if len(one) != len(other):
            return [f"{where}: {len(one)}, {len(other)} elements"]
        return [d for i, (a, b) in enumerate(zip(one, other)) for d in differences(a, b, f"{where}/{i}", ignored)]
    if type(one).__module__ == "numpy":
        return [] if one.dtype == other.dtype and (one == other).all() else [f"{where}: arrays"]
    return [] if one == other or (one != one and other != other) else [f"{where}: {one!r}, {other!r}"]
