"""The f64 reference of a layer, and how far a result is from it."""

from __future__ import annotations

import math

import torch

from pytorch.contestants import convolution, pooled, torch_call
from pytorch.gable_api import CErrorBound
from pytorch.layer import Layer, Operands, Record

WRONG = 0.02  # relative error of a whole tensor; above it a contestant's result is wrong


def f64_reference(layer: Layer, operands: Operands) -> tuple[torch.Tensor, torch.Tensor]:
    """The exact result, and the magnitude that gable's error bounds are relative to."""
    x, weights = operands.x.double().contiguous(), operands.weights.double()
    bias = operands.bias.double() if operands.bias is not None else None
    with torch.backends.cudnn.flags(enabled=True, benchmark=False):
        exact = torch_call(layer, x, weights, bias)()
        weights.abs_()
        magnitude = pooled(layer, convolution(layer, x.abs_(), weights, bias.abs() if bias is not None else None))
    return exact, magnitude


def accuracy_of(y: torch.Tensor, exact: torch.Tensor, magnitude: torch.Tensor, bound: CErrorBound | None) -> Record:
    """NaN marks an unchecked element: every comparison below is false for it."""
    error = (y.double() - exact).abs_()
    relative = float(torch.linalg.vector_norm(error) / torch.linalg.vector_norm(exact))
    if bound is None:
        max_error = float(error.max())
        return {"max_error": max_error, "error_bound": None, "relative_error": relative, "ok": relative < WRONG}
    tolerance = magnitude * bound.accumulation + exact.abs() * bound.rounding + bound.absolute
    worst = int((error / tolerance).nan_to_num_(nan=math.inf).argmax())
    max_error, error_bound = float(error.flatten()[worst]), float(tolerance.flatten()[worst])
    return {
        "max_error": max_error,
        "error_bound": error_bound,
        "relative_error": relative,
        "ok": relative < WRONG and max_error <= error_bound,
    }
