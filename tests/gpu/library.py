"""Loads into a GPU against the same bytes in the host's memory: whole tensors, random boxes, and arrays with gaps or with their axes in another order.
The wheel of mcorefs is in PYTHONPATH: `make wheel`, `unzip -d SITE build/mcorefs-*.whl`, `PYTHONPATH=SITE python3 tests/gpu/library.py`."""
import os
import random

import torch

import mcorefs

FIXTURES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../fixtures/weights")
VIEWS = {"llama-torch-tp2-pp2": ["hf", "hf-fp32", "hf-fp8", "vllm/tp2"], "mixtral-torch_dist-pp2-ep2": ["hf"], "deepseek-torch_dist-pp2-ep2": ["hf", "hf-fp8"],
         "gpt2-torch-tp2-pp2": ["hf"]}


def draw_place(shape, dtype, rng):
    """An array of the GPU with random gaps, whose axes lie in a random order."""
    order = list(range(len(shape)))
    if rng.random() < 0.5:
        rng.shuffle(order)
    room = [shape[a] + rng.randint(0, 2) for a in order]
    array = torch.zeros(room, dtype=dtype, device="cuda")
    return array[tuple(slice(0, shape[a]) for a in order)].permute([order.index(a) for a in range(len(shape))])


def same_bits(a, b):
    return torch.equal(*(x.clone(memory_format=torch.contiguous_format).reshape(-1).view(torch.uint8) for x in (a, b)))


def check(view, rng, **how):
    whole = mcorefs.load(view, device="cpu", file=view.tensors()[0].file)
    boxes, expected = [], []
    for t in view.tensors():
        if t.file != view.tensors()[0].file:
            continue
        begin = [rng.randint(0, n - 1) for n in t.shape]
        slices = [slice(b, rng.randint(b + 1, n)) for b, n in zip(begin, t.shape)]
        part = whole[t.name][tuple(slices)]
        boxes.append((t, draw_place(list(part.shape), part.dtype, rng), slices))
        expected.append(part)
    view.fill(boxes, **how)
    for (t, array, _), part in zip(boxes, expected):
        assert same_bits(array.cpu(), part), t.name
    return len(boxes)


def main():
    rng, count = random.Random(1), 0
    for fixture, views in VIEWS.items():
        for name in views:
            with mcorefs.Source(os.path.join(FIXTURES, fixture)) as source, source.open(name) as view:
                for how in {}, {"threads": 1, "memory": 1 << 20}, {"direct": "always", "threads": 4}:
                    count += check(view, rng, **how)
                file = view.tensors()[0].file
                host, device = (mcorefs.load(view, device=d, file=file) for d in ("cpu", "cuda"))
                for tensor in host:
                    assert same_bits(device[tensor].cpu(), host[tensor]), tensor
    print(f"{count} boxes are the same in the GPU: passed")


main()
