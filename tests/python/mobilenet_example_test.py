"""examples/mobilenet_v3.py, a network of the user's own: on auto and on cpu it computes what NumPy does in f64."""

import importlib.util
import os
from pathlib import Path

import pytest

np = pytest.importorskip("numpy")
if "GABLE_COMMAND" in os.environ and not os.environ.get("GABLE_LIBRARY"):
    pytest.skip("the library of this build can't be loaded by Python", allow_module_level=True)
try:
    import gable

    gable.version()
except gable.Error as error:
    pytest.skip(str(error), allow_module_level=True)

PATH = Path(__file__).resolve().parents[2] / "examples" / "mobilenet_v3.py"
SPEC = importlib.util.spec_from_file_location("mobilenet_v3", PATH)
EXAMPLE = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(EXAMPLE)
FUNCTIONS = {"relu": lambda x: np.maximum(x, 0), "hard_swish": lambda x: x * np.clip(x + 3, 0, 6) / 6}


def conv(state, name, x, stride=1, groups=1):
    """With its batch norm, which is not folded."""
    weights, size = state[f"{name}.0.weight"], state[f"{name}.0.weight"].shape[2]
    x = np.pad(x, ((0, 0), (0, 0), (size // 2,) * 2, (size // 2,) * 2))
    height, width = ((extent - size) // stride + 1 for extent in x.shape[2:])
    y = 0
    for r in range(size):
        for s in range(size):
            tap = x[:, :, r : r + stride * height : stride, s : s + stride * width : stride][:, :, :height, :width]
            own = weights[:, :, r, s]
            y = y + (tap * own.reshape(1, -1, 1, 1) if groups > 1 else np.einsum("nchw,kc->nkhw", tap, own))
    mean, variance, scale, shift = (state[f"{name}.1.{part}"].reshape(-1, 1, 1, 1).transpose(1, 0, 2, 3)
                                    for part in ("running_mean", "running_var", "weight", "bias"))
    return (y - mean) / np.sqrt(variance + 1e-3) * scale + shift


def linear(state, name, x):
    return x @ state[f"{name}.weight"].reshape(state[f"{name}.weight"].shape[:2]).T + state[f"{name}.bias"]


def scores_of(state, x):
    x = FUNCTIONS["hard_swish"](conv(state, "features.0", x, 2))
    for i, (_, inputs, expanded, outputs, has_excite, function, stride) in enumerate(EXAMPLE.BLOCKS, 1):
        names, y = (f"features.{i}.block.{j}" for j in range(4)), x
        if expanded != inputs:
            y = FUNCTIONS[function](conv(state, next(names), y))
        y = FUNCTIONS[function](conv(state, next(names), y, stride, expanded))
        if has_excite:
            name = next(names)
            squeezed = np.maximum(linear(state, f"{name}.fc1", y.mean((2, 3))), 0)
            y = y * (np.clip(linear(state, f"{name}.fc2", squeezed) + 3, 0, 6) / 6)[:, :, None, None]
        y = conv(state, next(names), y)
        x = x + y if stride == 1 and inputs == outputs else y
    x = FUNCTIONS["hard_swish"](conv(state, "features.12", x)).mean((2, 3))
    return linear(state, "classifier.3", FUNCTIONS["hard_swish"](linear(state, "classifier.0", x)))


def test_mobilenet_v3_is_that_of_numpy():
    state = EXAMPLE.random_state()
    x = np.random.default_rng(3).random((2, 3, 64, 64), np.float32)
    exact = scores_of({name: value.astype(np.float64) for name, value in state.items()}, x.astype(np.float64))
    for device in (None, "cpu"):
        scores = EXAMPLE.MobileNetV3Small(state, device)(x)
        np.testing.assert_allclose(scores, exact, atol=1e-5 * np.abs(exact).max(), rtol=0)
    difference = EXAMPLE.check(state, x, scores)
    assert difference is None or difference < 1e-5 * np.abs(exact).max()
