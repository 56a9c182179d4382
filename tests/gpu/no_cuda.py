"""Megatron-LM's training script on a machine without a GPU: what it asks of CUDA, the CPU answers. Slow, and the same arithmetic."""
import contextlib
import time

import torch
import torch._dynamo  # it lists the functions that are replaced here
from torch.overrides import TorchFunctionMode


def is_cuda(value):
    return isinstance(value, (str, torch.device)) and str(value).startswith("cuda")


class CudaMeansCpu(TorchFunctionMode):
    """Every device 'cuda' becomes 'cpu', and CPU tensors claim a CUDA type, which Megatron's optimizers ask for."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if is_cuda(kwargs.get("device")):
            kwargs["device"] = "cpu"
        if func in (torch.Tensor.cuda, torch.Tensor.pin_memory):
            return args[0]
        if func is torch.Tensor.to:
            args = tuple("cpu" if is_cuda(a) else a for a in args)
        if func is torch.Tensor.is_cuda.__get__:
            return True
        result = func(*args, **kwargs)
        if func is torch.Tensor.type and isinstance(result, str):
            return result.replace("torch.", "torch.cuda.", 1)
        return result


class Event:
    """A moment of the one stream that there is."""

    def __init__(self, *args, **kwargs):
        self.at = time.monotonic()

    def record(self, *args):
        self.at = time.monotonic()

    def elapsed_time(self, other):
        return (other.at - self.at) * 1e3

    def query(self):
        return True

    def wait(self, *args):
        pass

    synchronize = wait


class Stream:
    """The one stream that there is."""
    cuda_stream = 0

    def __init__(self, *args, **kwargs):
        pass

    def wait_stream(self, *args):
        pass

    wait_event = synchronize = wait_stream

    def record_event(self, event=None):
        return event or Event()


class Generator:
    """Random numbers are the CPU's, whatever state a checkpoint has for CUDA's."""

    def set_state(self, state):
        pass


class Properties:
    major, minor, name, total_memory, multi_processor_count = 8, 0, "CPU", 1 << 34, 1


def install():
    cuda = torch.cuda
    nothing = lambda *a, **k: None  # noqa: E731
    for name in ("synchronize", "set_device", "empty_cache", "set_stream", "manual_seed", "manual_seed_all", "reset_peak_memory_stats", "init",
                 "_lazy_init", "ipc_collect"):
        setattr(cuda, name, nothing)
    cuda.is_available, cuda.is_initialized = lambda: True, lambda: True
    cuda.device_count, cuda.current_device = lambda: 1, lambda: "cpu"
    cuda.get_device_capability, cuda.get_device_properties = lambda *a: (8, 0), lambda *a: Properties
    cuda.get_device_name = lambda *a: "CPU"
    for module in (cuda, cuda.random):
        module.get_rng_state = lambda *a, **k: torch.get_rng_state()
        module.set_rng_state = nothing
    cuda.default_generators = {"cpu": Generator()}
    cuda.memory_stats = lambda *a: {}
    for name in ("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved"):
        setattr(cuda, name, lambda *a, **k: 0)
    cuda.Stream, cuda.Event = Stream, Event
    cuda.current_stream = cuda.default_stream = lambda *a: Stream()
    cuda.stream = lambda *a: contextlib.nullcontext()
    for name, dtype in (("FloatTensor", torch.float32), ("IntTensor", torch.int32), ("LongTensor", torch.int64), ("DoubleTensor", torch.float64),
                        ("ByteTensor", torch.uint8)):
        setattr(cuda, name, type(name, (), dict(__new__=lambda cls, data, dtype=dtype: torch.tensor(data, dtype=dtype))))
    torch.optim.Optimizer._accelerator_graph_capture_health_check = nothing
    CudaMeansCpu().__enter__()
