"""HF directories in transformers: loading without a blemish, logits, greedy tokens."""
import json

import numpy
import torch
import transformers

transformers.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()
torch.set_num_threads(1)

# float32 sums in another order; the peers' kernels differ from transformers' by more than Megatron's do
LOGIT_TOLERANCE = 2e-5
# of a gated delta net: by as much as transformers' own two forms of its rule, by chunks and token by token, differ in these models (3.1e-5)
RECURRENT_TOLERANCE = 8e-5
LOGPROB_TOLERANCE = 1e-3
LARGEST = {"logit": (0.0, ""), "log-probability": (0.0, "")}  # differences seen in this run, and where: the margin that is left
PROMPT = [1, 5, 17, 42, 99, 7, 3, 250]
COUNT = 16


def measured(kind, value, where):
    """Remembers the largest difference of a run, and passes it on."""
    LARGEST[kind] = max(LARGEST[kind], (value, str(where)))
    return value


def load(directory):
    """The model in float32; fails if a weight is missing, left over, of another shape, or could not be converted."""
    model, report = transformers.AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32, attn_implementation="eager",
                                                                      output_loading_info=True)
    layers, ahead = model.config.num_hidden_layers, getattr(model.config, "num_nextn_predict_layers", 0) or 0
    for layer in range(layers, layers + ahead):  # logits_ahead() loads these
        report["unexpected_keys"] = {key for key in report["unexpected_keys"] if not key.startswith(f"model.layers.{layer}.")}
    blemishes = {key: sorted(map(str, value)) for key, value in report.items() if value}
    assert not blemishes, f"{directory}: {blemishes}"
    return with_megatron_eps(model).eval()


def with_megatron_eps(model):
    """transformers builds the two inner norms of MLA with 1e-6, whatever config.json says; Megatron has one eps."""
    for module in model.modules():
        for name in ("q_a_layernorm", "kv_a_layernorm"):
            if getattr(module, name, None) is not None:
                getattr(module, name).variance_epsilon = model.config.rms_norm_eps
    return model


@torch.no_grad()
def logits(model, tokens):
    return model(torch.from_numpy(tokens)).logits.numpy()


@torch.no_grad()
def logits_ahead(model, directory, tokens):
    """Of the layers of multi-token prediction, one after the other: layer k sees the token k + 1 places ahead, and zeros behind the end as in Megatron."""
    from transformers.modeling_layers import MtpModel
    model.name_or_path = model.config._name_or_path = str(directory)
    layers = model.config.num_hidden_layers
    model._keys_to_ignore_on_load_unexpected = [rf"model\.layers\.{layer}\." for layer in range(layers, layers + model.config.num_nextn_predict_layers)]
    ahead = with_megatron_eps(MtpModel.from_pretrained(model)).float().eval()
    tokens = torch.from_numpy(tokens)
    hidden, said = model.model(tokens).last_hidden_state, []
    places = torch.arange(tokens.shape[1])[None]
    mask = torch.full((tokens.shape[1],) * 2, float("-inf")).triu(1)[None, None]
    for layer in ahead.layers:
        tokens = torch.cat([tokens[:, 1:], torch.zeros_like(tokens[:, :1])], 1)
        embedded = ahead.embed_tokens(tokens)
        hidden = layer(embedded, hidden, position_embeddings=ahead.rotary_emb(embedded, position_ids=places), attention_mask=mask,
                       position_ids=places, past_key_values=None)
        said.append(ahead.shared_head(hidden).numpy())
    return numpy.stack(said)


@torch.no_grad()
def logits_ahead_of_mimo(model, directory, tokens):
    """The same of MiMo, in whose layers the hidden state comes first (vLLM's mimo_mtp.py; but Megatron leaves the first place's embedding as it is)."""
    from safetensors.torch import load_file
    from transformers.models.qwen2.modeling_qwen2 import Qwen2DecoderLayer, Qwen2RMSNorm
    saved, config = load_file(directory / "model.safetensors"), model.config
    tokens = torch.from_numpy(tokens)
    hidden, said = model.model(tokens).last_hidden_state, []
    places = torch.arange(tokens.shape[1])[None]
    mask = torch.full((tokens.shape[1],) * 2, float("-inf")).triu(1)[None, None]

    def norm(weight):
        made = Qwen2RMSNorm(config.hidden_size, config.rms_norm_eps)
        made.weight.copy_(weight)
        return made

    for k in range(config.num_nextn_predict_layers):
        prefix = f"model.mtp_layers.{k}."
        weights = {name.removeprefix(prefix): tensor.float() for name, tensor in saved.items() if name.startswith(prefix)}
        seen, known, projection, last = (weights.pop(f"{name}.weight") for name in
                                         ("token_layernorm", "hidden_layernorm", "input_proj", "final_layernorm"))
        layer = Qwen2DecoderLayer(config, 0).float().eval()
        layer.load_state_dict(weights)
        tokens = torch.cat([tokens[:, 1:], torch.zeros_like(tokens[:, :1])], 1)
        both = torch.cat([norm(known)(hidden), norm(seen)(model.model.embed_tokens(tokens))], -1)
        hidden = norm(last)(layer(both @ projection.T, attention_mask=mask, position_embeddings=model.model.rotary_emb(both, places)))
        said.append(model.lm_head(hidden).numpy())
    return numpy.stack(said)


def difference(model, path):
    """The largest difference from Megatron's logits in an .npz; the padding rows of a cropped vocabulary are left out."""
    want = numpy.load(path)
    got = logits(model, want["tokens"])
    assert got.shape[:2] == want["logits"].shape[:2]
    return measured("logit", float(numpy.abs(got - want["logits"][..., :got.shape[-1]]).max()), path.parent.name)


@torch.no_grad()
def greedy(model, count=COUNT):
    """Tokens by plain argmax, and all log-probabilities of each step: no cache, no stop token."""
    tokens, steps = list(PROMPT), []
    for _ in range(count):
        step = torch.log_softmax(model(torch.tensor([tokens])).logits[0, -1].double(), -1)
        tokens.append(int(step.argmax()))
        steps.append(step)
    return tokens[len(PROMPT):], steps


def assert_same_text(answer, model, name):
    """A peer's answer (greedy_vllm.py, greedy_mlx.py) against transformers'."""
    assert "error" not in answer, answer["error"]
    tokens, steps = greedy(model)
    assert answer["tokens"] == tokens
    worst = max(abs(value - float(step[int(token)])) for step, likely in zip(steps, answer["logprobs"]) for token, value in likely.items())
    assert measured("log-probability", worst, name) <= LOGPROB_TOLERANCE
