"""A convolution, and its operands on the GPU."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

Record = dict[str, Any]
Call = Callable[[], torch.Tensor]  # computes a layer once

# The values of --dtype: gable's dtype and math.
KINDS = {
    "f32": ("f32", "strict"),
    "tf32": ("f32", "tf32"),
    "split3": ("f32", "split3"),
    "split6": ("f32", "split6"),
    "f16": ("f16", "strict"),
    "bf16": ("bf16", "strict"),
}
TORCH_DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
MEMORY_FORMATS = {"nhwc": torch.channels_last, "nchw": torch.contiguous_format}


@dataclass(frozen=True)
class Layer:
    """A convolution as `gable list` describes it."""

    listed: Record

    @property
    def conv(self) -> Record:
        return self.listed["conv2d"]

    @property
    def dtype(self) -> torch.dtype:
        return TORCH_DTYPES[self.listed["dtype"]]

    @property
    def math(self) -> str:
        return self.listed.get("math", "strict")

    @property
    def kind(self) -> str:
        return self.listed["dtype"] if self.math == "strict" else self.math

    @property
    def layout(self) -> str:
        return self.listed.get("layout", "nhwc")

    @property
    def memory_format(self) -> torch.memory_format:
        return MEMORY_FORMATS[self.layout]

    @property
    def activation(self) -> str:
        return self.listed["epilogue"]["activation"]

    @property
    def has_bias(self) -> bool:
        return bool(self.listed["epilogue"]["bias"])

    @property
    def pool(self) -> tuple[list[int], list[int]] | None:
        window = self.conv["pool_window"]
        return (window, self.conv["pool_stride"]) if window[0] > 0 else None

    def is_plain(self) -> bool:
        return not self.has_bias and self.activation == "none" and self.pool is None

    def is_product(self) -> bool:
        """Whether it is a matrix product of pixels and channels, without copies."""
        c = self.conv
        one = c["weights"][2:] == [1, 1] and c["stride"] == [1, 1] and c["groups"] == 1
        return one and not any(c["padding"]) and self.layout == "nhwc"

    def symmetric_padding(self) -> list[int] | None:
        """Padding above and left, if the same padding below and right gives the same output: PyTorch has no other."""
        c = self.conv
        same = []
        for i in (0, 1):
            reach = c["dilation"][i] * (c["weights"][2 + i] - 1) + 1
            before, after = c["padding"][i], c["padding"][2 + i]
            outputs = {(c["input"][2 + i] + before + end - reach) // c["stride"][i] for end in (before, after)}
            same.append(len(outputs) == 1)
        return c["padding"][:2] if all(same) else None


@dataclass
class Operands:
    """x is in the layer's layout, weights are (K, C/groups, R, S) in that order, bias is f32 of the dtype's values."""

    x: torch.Tensor
    weights: torch.Tensor
    bias: torch.Tensor | None


def make_operands(layer: Layer) -> Operands:
    """Outputs have a variance near one, so that tanh is not saturated."""
    c, dtype = layer.conv, layer.dtype
    terms = math.prod(c["weights"][1:])
    x = torch.rand(c["input"], device="cuda").mul_(2).sub_(1).to(dtype)
    weights = torch.rand(c["weights"], device="cuda").mul_(2).sub_(1).mul_(math.sqrt(3 / terms)).to(dtype)
    bias = torch.rand(c["weights"][0], device="cuda").sub_(0.5).to(dtype).float() if layer.has_bias else None
    return Operands(x.contiguous(memory_format=layer.memory_format), weights.contiguous(), bias)
