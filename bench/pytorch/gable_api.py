"""gable's C API (gable/c.h) on PyTorch's memory and streams."""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path
from typing import Any

import torch

from pytorch.layer import Call, Layer, Operands

sys.path.append(str(Path(__file__).resolve().parents[2] / "api" / "python"))
from gable._c import ACTIVATIONS, DTYPES, MATHS, CConv2d  # noqa: E402


class GableError(Exception):
    """A failed call of gable, with its message."""


class CErrorBound(ctypes.Structure):
    """struct gable_error_bound."""

    _fields_ = [("accumulation", ctypes.c_double), ("rounding", ctypes.c_double), ("absolute", ctypes.c_double)]


class Gable:
    """gable's C API."""

    def __init__(self, path: Path) -> None:
        self.api = ctypes.CDLL(str(path))
        self.api.gable_last_error.restype = ctypes.c_char_p
        self.api.gable_version.restype = ctypes.c_char_p
        for release in ("gable_close", "gable_plan_release", "gable_packed_release"):
            getattr(self.api, release).restype = None

    def call(self, name: str, *arguments: Any) -> None:
        if getattr(self.api, name)(*arguments) != 0:
            raise GableError(self.api.gable_last_error().decode())

    def open(self, uri: str) -> ctypes.c_void_p:
        device = ctypes.c_void_p()
        self.call("gable_open", uri.encode(), ctypes.byref(device))
        return device


class GablePlan:
    """A plan with its packed weights, released by close()."""

    def __init__(self, gable: Gable, device: ctypes.c_void_p, layer: Layer, weights: torch.Tensor) -> None:
        self.gable = gable
        self.plan = ctypes.c_void_p()
        self.packed = ctypes.c_void_p()
        gable.call("gable_plan_conv2d", device, ctypes.byref(c_conv2d(layer)), ctypes.byref(self.plan))
        gable.call("gable_pack", self.plan, pointer_of(weights), ctypes.byref(self.packed))

    def close(self) -> None:
        self.gable.api.gable_packed_release(self.packed)
        self.gable.api.gable_plan_release(self.plan)

    def kernel(self) -> str:
        text = ctypes.create_string_buffer(256)
        self.gable.call("gable_plan_kernel", self.plan, text, ctypes.c_size_t(len(text)), None)
        return text.value.decode()

    def fused(self) -> bool:
        value = ctypes.c_int()
        self.gable.call("gable_plan_fused", self.plan, ctypes.byref(value))
        return value.value != 0

    def bound(self) -> CErrorBound:
        value = CErrorBound()
        self.gable.call("gable_plan_error_bound", self.plan, ctypes.byref(value))
        return value

    def caller(self, operands: Operands, y: torch.Tensor) -> Call:
        """Runs on PyTorch's current stream. While a graph is captured that is another stream."""
        run, plan, packed = self.gable.api.gable_run, self.plan, self.packed
        x, bias, result = pointer_of(operands.x), pointer_of(operands.bias), pointer_of(y)

        def call() -> torch.Tensor:
            stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
            if run(plan, x, packed, bias, result, stream) != 0:
                raise GableError(self.gable.api.gable_last_error().decode())
            return y

        return call


def pointer_of(tensor: torch.Tensor | None) -> ctypes.c_void_p:
    return ctypes.c_void_p(tensor.data_ptr() if tensor is not None else None)


def c_conv2d(layer: Layer) -> CConv2d:
    c = layer.conv
    conv = CConv2d(groups=c["groups"], layout=int(layer.layout == "nhwc"), bias=int(layer.has_bias))
    for name in ("input", "weights", "stride", "padding", "dilation", "pool_window", "pool_stride"):
        getattr(conv, name)[:] = c[name]
    conv.dtype = DTYPES.index(layer.listed["dtype"])
    conv.math = MATHS.index(layer.math)
    conv.activation = ACTIVATIONS.index(layer.activation)
    return conv
