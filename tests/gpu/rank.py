"""One rank of Megatron-LM's pretrain_gpt.py: rank.py MEGATRON_LM ARGUMENTS...

The tree is not modified.  What it cannot do without Transformer Engine, Apex and a compiler is repaired from outside, and nothing in it reads
a checkpoint in another way than Megatron does:
  * the dataset index builder is C++, compiled at start-up by whichever job comes first; here the same functions in Python;
  * the distributed optimizer cannot be loaded over torch's AdamW: loading wants states that the first step makes, forgets that `step` is
    a tensor there, and gives all parameters one and the same `step`, which then counts once per parameter;
  * multi-latent attention passes head sizes that the local attention does not take;
  * it needs CUDA: with MEGATRON_CPU=1 the CPU does what it asks CUDA for (no_cuda.py);
  * MoE trains with TP only under sequence parallelism, which the local norms refuse, though all they miss is a mark on their weights.
"""
import functools
import os
import runpy
import sys
import types

import numpy


def build_sample_idx(sizes, documents, length, epochs, tokens_per_epoch, drop_last=True, extra=1):
    """Rows of (position in `documents`, first token there), one per sample and one after the last."""
    tokens = epochs * tokens_per_epoch - extra
    samples = tokens // length if drop_last else -(-tokens // length)
    index = numpy.zeros((samples + 1, 2), dtype=documents.dtype)
    document = offset = 0
    for sample in range(1, samples + 1):
        wanted = length + extra
        while wanted:
            here = sizes[documents[document]] - offset
            if here >= wanted:
                offset += wanted - extra
                wanted = 0
            elif document == len(documents) - 1:  # out of documents: the last sample is short
                offset = sizes[documents[document]] - extra
                break
            else:
                wanted -= here
                document, offset = document + 1, 0
        index[sample] = document, offset
    return index


def build_blending_indices(dataset, sample, weights, datasets, size, verbose):
    """Sample after sample goes to the dataset that lags furthest behind its weight."""
    weights, taken = numpy.asarray(weights[:datasets]), numpy.zeros(datasets, dtype=numpy.int64)
    for i in range(size):
        chosen = int(numpy.argmax(weights * max(i, 1) - taken))  # the first of equals, as there
        dataset[i], sample[i] = chosen, taken[chosen]
        taken[chosen] += 1


def let_torch_adam_be_loaded():
    from megatron.core.optimizer.distrib_optimizer import DistributedOptimizer as Optimizer
    load, sharded, put = Optimizer.load_state_dict, Optimizer.sharded_state_dict, Optimizer._set_main_param_and_optimizer_states

    @functools.wraps(load)
    def load_state_dict(self, state_dict):
        load(self, state_dict)
        for state in self.optimizer.state.values():
            if "step" in state:
                state["step"] = state["step"].clone()

    @functools.wraps(sharded)
    def sharded_state_dict(self, *args, **kwargs):
        if not self.optimizer.state:
            self._init_optimizer_states_with_dummy_values()
        return sharded(self, *args, **kwargs)

    @functools.wraps(put)
    def set_states(self, model_param, tensors):
        group, order = self.model_param_group_index_map[model_param]
        state = self.optimizer.state[self.optimizer.param_groups[group]["params"][order]]
        put(self, model_param, {**tensors, "step": state.get("step")})  # as load_state_dict() has set it

    Optimizer.load_state_dict, Optimizer.sharded_state_dict = load_state_dict, sharded_state_dict
    Optimizer._set_main_param_and_optimizer_states = set_states


def let_local_attention_serve_mla():
    from megatron.core.transformer import multi_latent_attention
    from megatron.core.transformer.dot_product_attention import DotProductAttention
    for name in ("TELinear", "TEColumnParallelLinear"):  # no class without Transformer Engine, yet used in isinstance()
        if not isinstance(getattr(multi_latent_attention, name, None), type):
            setattr(multi_latent_attention, name, type("Absent", (), {}))
    init = DotProductAttention.__init__

    @functools.wraps(init)
    def without_sizes(self, *args, k_channels=None, v_channels=None, **kwargs):
        init(self, *args, **kwargs)
        if v_channels:
            self.hidden_size_per_partition = v_channels * self.num_attention_heads_per_partition

    DotProductAttention.__init__ = without_sizes


def let_local_norms_be_sequence_parallel():
    from megatron.core.transformer.torch_norm import WrappedTorchNorm
    new = WrappedTorchNorm.__new__

    @functools.wraps(new)
    def marked(cls, config, *args, **kwargs):
        parallel, config.sequence_parallel = config.sequence_parallel, False
        try:
            norm = new(cls, config, *args, **kwargs)
        finally:
            config.sequence_parallel = parallel
        for parameter in norm.parameters():
            parameter.sequence_parallel = parallel  # its gradient is summed over the TP group
        return norm

    WrappedTorchNorm.__new__ = marked


def main():
    root = sys.argv[1]
    sys.path.insert(0, root)
    if os.environ.get("MEGATRON_CPU"):
        import no_cuda
        no_cuda.install()
        sys.argv += ["--distributed-backend", "gloo"]
    helpers = types.ModuleType("megatron.core.datasets.helpers_cpp")
    helpers.build_sample_idx_int32 = helpers.build_sample_idx_int64 = build_sample_idx
    helpers.build_blending_indices = build_blending_indices
    sys.modules[helpers.__name__] = helpers
    import megatron.core.datasets.utils
    megatron.core.datasets.utils.compile_helpers = lambda: None
    let_torch_adam_be_loaded()
    let_local_attention_serve_mla()
    let_local_norms_be_sequence_parallel()
    script = os.path.join(root, "pretrain_gpt.py")
    sys.argv = [script, *sys.argv[2:]]
    runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main()
