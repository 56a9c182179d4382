"""load_views.py for a Python that has Megatron-Bridge: import_bridge.py JOBS

A job of load_views.py is done as there.  A job with "hf", a HuggingFace directory, lets Bridge import that, and compares each parameter with the
torch_dist checkpoint of "load".  With "logits", a file as there, Bridge's model computes them in float32.  Answers {"job": number, "error": null or the last of a log, "compared": parameters, "different": their names,
"difference": of the logits}.
Those come last: Bridge is imported, with modules that stand in for what it wants of a GPU, before the first of them.
"""
import json
import os
import pathlib
import sys
import tempfile
import traceback
import types

import numpy
import torch

import export_bridge
import load_views
import mcore_cpu
import write_megatron


def compare(AutoBridge, job):
    dtype = getattr(torch, json.loads(pathlib.Path(job["hf"], "config.json").read_text())["dtype"])
    bridge = AutoBridge.from_hf_pretrained(job["hf"], torch_dtype=dtype)
    provider = export_bridge.provider_of(bridge, dtype, load_weights=True, layernorm_zero_centered_gamma=False)  # as the local spec's norms want it
    models = provider.provide_distributed_model(wrap_with_ddp=False, use_cpu_initialization=True)
    weights = dict(models[0].named_parameters()) | {name: bias for name, bias in models[0].named_buffers() if name.endswith("expert_bias")}
    imported = {name: weight.clone() for name, weight in weights.items()}
    with torch.no_grad():
        for weight in weights.values():
            weight.fill_(float("nan"))  # what is not loaded differs
    opt = load_views.options(job)
    directory = load_views.iteration(opt.load)
    load_views.let_newer_files_be_loaded(directory)
    load_views.load_weights(opt, directory, None, models)
    different = [name for name, weight in weights.items() if not torch.equal(weight, imported[name])]
    return dict(compared=len(imported), different=different, **(logits(bridge, weights, job["logits"]) if job.get("logits") else {}))


@torch.no_grad()
def logits(bridge, weights, path):
    models = export_bridge.models_of(bridge, torch.float32)
    for name, weight in models[0].named_parameters():
        weight.copy_(weights[name if name in weights else f"module.{name}"])
    want = numpy.load(path)
    got = mcore_cpu.forward(models, torch.from_numpy(want["tokens"])).numpy()[..., :want["logits"].shape[-1]]
    return dict(difference=float(numpy.abs(got - want["logits"]).max()))


def one_process(store):
    os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE="1")
    mcore_cpu.start(types.SimpleNamespace(tp=1, pp=1, ep=1, vpp=1, etp=None, ranks=1), 0, store)


if __name__ == "__main__":
    write_megatron.import_megatron()
    AutoBridge = None
    with tempfile.TemporaryDirectory() as work:
        for number, job in enumerate(map(json.loads, open(sys.argv[1]))):
            if "hf" not in job:
                print(json.dumps(load_views.run(number, job)), flush=True)
                continue
            if not AutoBridge:
                AutoBridge = export_bridge.import_bridge()
                one_process(f"{work}/store")
            try:
                said = dict(error=None, **compare(AutoBridge, job))
            except BaseException:  # torch.distributed.checkpoint's is no Exception
                said = dict(error=traceback.format_exc()[-2000:])
            print(json.dumps(dict(job=number, **said)), flush=True)
