"""Parallel layouts: which a model can have, by rules of our own, and a few that stand for all."""
import dataclasses
import itertools
import math


@dataclasses.dataclass(frozen=True)
class Layout:
    tp: int = 1
    pp: int = 1
    ep: int = 1
    etp: int | None = None      # where it is not tp
    vpp: int = 1
    first: int | None = None    # layers of the first and of the last stage, where they have a number of their own
    last: int | None = None

    def __str__(self):
        parts = [("ep", self.ep, 1), ("etp", self.etp, None), ("vpp", self.vpp, 1), ("first", self.first, None), ("last", self.last, None)]
        return f"tp{self.tp}-pp{self.pp}" + "".join(f"-{name}{value}" for name, value, default in parts if value != default)

    @property
    def view(self):
        return f"megatron/torch/{self}"

    @property
    def ranks(self):
        """The fewest processes that can hold it."""
        return math.lcm(self.tp, (self.etp or self.tp) * self.ep) * self.pp

    def fits(self, args):
        divides = [(self.tp, args.num_attention_heads)]
        if args.num_experts is None or args.multi_latent_attention:  # else no layer is dense
            divides.append((self.tp, args.ffn_hidden_size))
        if args.multi_latent_attention:
            if args.transformer_impl == "local":  # which divides what leads to the latent space, too
                divides += [(self.tp, args.q_lora_rank or 0), (self.tp, args.kv_lora_rank + args.qk_pos_emb_head_dim)]
        elif args.num_query_groups:
            few, many = sorted((self.tp, groups(args)))
            divides.append((few, many))
            divides.append((self.tp, (args.num_attention_heads + 2 * groups(args)) * args.kv_channels))
        if args.num_experts:
            divides += [(self.ep, args.num_experts), (self.etp or self.tp, args.moe_ffn_hidden_size or args.ffn_hidden_size),
                        (self.tp, getattr(args, "moe_shared_expert_intermediate_size", None) or 0)]
        elif self.ep > 1 or self.etp:
            return False
        rest, stages = args.num_layers - (self.first or 0) - (self.last or 0), self.pp - bool(self.first) - bool(self.last)
        even = rest > 0 and stages > 0 and rest % stages == 0 if self.first or self.last else True
        if self.first or self.last:
            even = even and all(n % self.vpp == 0 for n in (self.first or 0, self.last or 0, rest // max(stages, 1)))
        else:
            divides.append((self.pp * self.vpp, args.num_layers))
        return even and (self.vpp == 1 or self.pp > 1) and all(number % part == 0 for part, number in divides)


def groups(args):
    return args.num_query_groups if getattr(args, "group_query_attention", True) else args.num_attention_heads


def grid(args):
    """Every combination of the sizes that these tests know, possible or not."""
    moe = bool(args.num_experts)
    for tp, pp, vpp in itertools.product((1, 2, 3, 4, 6, 8), (1, 2, 3, 4), (1, 2)):
        for ep, etp in itertools.product((1, 2, 4), (None, 1)) if moe else [(1, None)]:
            for first, last in ((None, None), (1, None), (None, 1), (2, 1)):
                if (etp is None or tp > 1) and (first is None and last is None or pp > 1):
                    yield Layout(tp, pp, ep, etp, vpp, first, last)


def pairs(layout):
    return set(itertools.combinations(dataclasses.asdict(layout).items(), 2))


def cover(args, first=()):
    """Possible layouts such that every two sizes that can stand together do; those of `first` come first."""
    possible = [layout for layout in grid(args) if layout.fits(args)]
    chosen = [layout for layout in first if layout.fits(args)]
    wanted = set().union(*map(pairs, possible)) - set().union(*map(pairs, chosen))
    while wanted:
        best = max(possible, key=lambda layout: (len(pairs(layout) & wanted), layout.tp * layout.pp * layout.ep * layout.vpp))
        chosen.append(best)
        wanted -= pairs(best)
    return chosen


def own(args):
    """The layout that a checkpoint was written at; None: it has no name."""
    if any(getattr(args, name, None) for name in ("account_for_embedding_in_pipeline_split", "account_for_loss_in_pipeline_split",
                                                  "pipeline_model_parallel_layout")):
        return None
    tp, etp = args.tensor_model_parallel_size, getattr(args, "expert_tensor_parallel_size", None)
    return Layout(tp, args.pipeline_model_parallel_size, args.expert_model_parallel_size, etp if args.num_experts and etp != tp else None,
                  args.virtual_pipeline_model_parallel_size or 1, args.decoder_first_pipeline_num_layers, args.decoder_last_pipeline_num_layers)
