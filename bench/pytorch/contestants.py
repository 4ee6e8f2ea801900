"""PyTorch's ways to compute a layer: eager calls, cuDNN's fused convolution, compiled, and a matrix product."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F

from pytorch.gable_api import CErrorBound
from pytorch.layer import MEMORY_FORMATS, Call, Layer, Operands, Record


@dataclass
class Contestant:
    """One way to compute a layer."""

    device: str
    kernel: str
    fused: bool
    call: Call
    layout: str = "nhwc"
    bound: CErrorBound | None = None
    accuracy: Record = field(default_factory=dict)


def convolution(layer: Layer, x: torch.Tensor, weights: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    c = layer.conv
    padding = layer.symmetric_padding()
    if padding is None:
        top, left, bottom, right = c["padding"]
        x, padding = F.pad(x, (left, right, top, bottom)), [0, 0]
    return F.conv2d(x, weights, bias, c["stride"], padding, c["dilation"], c["groups"])


def pooled(layer: Layer, y: torch.Tensor) -> torch.Tensor:
    return y if layer.pool is None else F.max_pool2d(y, *layer.pool)


def activate_(layer: Layer, y: torch.Tensor) -> torch.Tensor:
    if layer.activation == "none":
        return y
    return torch.relu_(y) if layer.activation == "relu" else torch.tanh_(y)


def torch_call(layer: Layer, x: torch.Tensor, weights: torch.Tensor, bias: torch.Tensor | None) -> Call:
    """Pools before the activation. The two commute, and this order is faster."""
    return lambda: activate_(layer, pooled(layer, convolution(layer, x, weights, bias)))


def fused_call(layer: Layer, x: torch.Tensor, weights: torch.Tensor, bias: torch.Tensor | None) -> Call | None:
    """cuDNN's fused convolution with bias and relu, then the pool."""
    c, padding = layer.conv, layer.symmetric_padding()
    if layer.activation != "relu" or padding is None:
        return None
    return lambda: pooled(
        layer, torch.cudnn_convolution_relu(x, weights, bias, c["stride"], padding, c["dilation"], c["groups"])
    )


def matmul_call(layer: Layer, x: torch.Tensor, weights: torch.Tensor, bias: torch.Tensor | None) -> Call | None:
    """The layer as PyTorch's matrix product (cuBLAS); None if it isn't one."""
    if not layer.is_product():
        return None
    images, _, height, width = x.shape
    a = x.permute(0, 2, 3, 1).reshape(-1, x.shape[1])
    b = weights.flatten(1).t().contiguous()

    def call() -> torch.Tensor:
        y = a @ b if bias is None else torch.addmm(bias, a, b)
        y = y.view(images, height, width, -1).permute(0, 3, 1, 2)
        return activate_(layer, pooled(layer, y))

    return call


def torch_contestants(layer: Layer, operands: Operands, layout: str, compiled: bool) -> Iterator[Contestant]:
    memory_format = MEMORY_FORMATS[layout]
    x = operands.x.contiguous(memory_format=memory_format)
    weights = operands.weights.contiguous(memory_format=memory_format)
    bias = operands.bias.to(layer.dtype) if operands.bias is not None else None
    suffix = "" if layout == "nhwc" else " nchw"
    plain = layer.is_plain()
    eager = torch_call(layer, x, weights, bias)
    yield Contestant("pytorch:eager" + suffix, "conv2d", plain, eager, layout)
    fused = fused_call(layer, x, weights, bias)
    if fused is not None:
        yield Contestant("pytorch:fused" + suffix, "cudnn_convolution_relu", layer.pool is None, fused, layout)
    if compiled:
        torch.compiler.reset()
        yield Contestant("pytorch:compile" + suffix, "torch.compile", False, torch.compile(eager), layout)


def set_torch_math(layer: Layer) -> None:
    torch.backends.cudnn.allow_tf32 = layer.math == "tf32"
    torch.backends.cuda.matmul.allow_tf32 = layer.math == "tf32"
