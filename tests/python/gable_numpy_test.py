"""gable for NumPy (api/python/gable) on the library of this build: right, shared by threads, and clear about mistakes."""

import copy
import math
import os
import pickle
import re
import threading
import weakref
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
np = pytest.importorskip("numpy")

# ctest names the library; without it, as under sanitizers, whose library Python can't load, there is none.
if "GABLE_COMMAND" in os.environ and not os.environ.get("GABLE_LIBRARY"):
    pytest.skip("the library of this build can't be loaded by Python", allow_module_level=True)
try:
    import gable

    gable.version()
except gable.Error as error:
    pytest.skip(str(error), allow_module_level=True)

RANDOM = np.random.default_rng(1)


def values(*shape):
    return RANDOM.standard_normal(shape).astype(np.float32)


def convolved(x, weights, bias, stride=(1, 1), padding=(0, 0, 0, 0), dilation=(1, 1), groups=1):
    """In f64, by NumPy alone; x is NCHW."""
    top, left, bottom, right = padding
    x = np.pad(np.asarray(x, np.float64), ((0, 0), (0, 0), (top, bottom), (left, right)))
    outputs, channels, rows, columns = weights.shape
    height = (x.shape[2] - dilation[0] * (rows - 1) - 1) // stride[0] + 1
    width = (x.shape[3] - dilation[1] * (columns - 1) - 1) // stride[1] + 1
    y = np.zeros((x.shape[0], outputs, height, width))
    for k in range(outputs):
        first = k // (outputs // groups) * channels
        for r in range(rows):
            for s in range(columns):
                window = x[:, first : first + channels, r * dilation[0] :, s * dilation[1] :]
                window = window[:, :, : height * stride[0] : stride[0], : width * stride[1] : stride[1]]
                y[:, k] += np.einsum("nchw,c->nhw", window, np.asarray(weights[k, :, r, s], np.float64))
    return y + np.asarray(bias, np.float64).reshape(1, -1, 1, 1)


def nhwc(array):
    return np.ascontiguousarray(array.transpose(0, 2, 3, 1))


@pytest.mark.parametrize("device", ["cpu", "reference", None])
def test_a_convolution_is_that_of_numpy_in_both_layouts(device):
    x, weights, bias = values(2, 6, 11, 9), values(8, 3, 3, 2), values(8)
    shape = {"stride": (2, 1), "padding": (1, 0, 2, 1), "dilation": (1, 2), "groups": 2}
    exact = np.maximum(convolved(x, weights, bias, **shape), 0)
    conv = gable.Conv2d(weights, bias, activation="relu", device=device, **shape)
    np.testing.assert_allclose(conv(x), exact, rtol=1e-5, atol=1e-5)
    other = gable.Conv2d(weights, bias, activation="relu", device=device, layout="nhwc", **shape)
    np.testing.assert_allclose(other(nhwc(x)), nhwc(exact), rtol=1e-5, atol=1e-5)


def test_a_layer_takes_any_batch_and_image_and_packs_once():
    weights, bias = values(8, 4, 3, 3), values(8)
    conv = gable.Conv2d(weights, bias, padding=1, max_pool=2, device="cpu?kernel=direct")
    for shape in ((1, 4, 8, 8), (3, 4, 8, 8), (1, 4, 14, 10)):
        x = values(*shape)
        y = convolved(x, weights, bias, padding=(1, 1, 1, 1))
        n, k, h, w = y.shape
        pooled = y.reshape(n, k, h // 2, 2, w // 2, 2).max((3, 5))
        np.testing.assert_allclose(conv(x), pooled, rtol=1e-5, atol=1e-5)
    assert len(conv._packed._packed) == 1
    assert "direct" in conv.explain((1, 4, 8, 8))


@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_sixteen_bits(kind):
    x, weights, bias = values(1, 16, 8, 8), values(16, 16, 3, 3), values(16)
    to = (lambda a: a.astype(np.float16)) if kind == "f16" else gable.to_bf16
    back = (lambda a: a.astype(np.float32)) if kind == "f16" else gable.from_bf16
    y = gable.Conv2d(to(weights), bias, padding=1, layout="nhwc")(nhwc(to(x)))
    exact = convolved(back(to(x)), back(to(weights)), bias, padding=(1, 1, 1, 1))
    np.testing.assert_allclose(back(y), nhwc(exact), rtol=2**-7 if kind == "bf16" else 2**-10, atol=1e-2)


@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_a_bias_of_sixteen_bits_becomes_f32(kind):
    to = (lambda a: a.astype(np.float16)) if kind == "f16" else gable.to_bf16
    x, weights, bias = to(values(1, 4, 3, 3)), to(values(2, 4, 1, 1)), np.array([1.5, -0.25], np.float32)
    assert np.array_equal(gable.Conv2d(weights, to(bias))(x), gable.Conv2d(weights, bias)(x))


def test_ml_dtypes_bfloat16():
    bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
    x, weights = values(1, 4, 3, 3).astype(bfloat16), values(2, 4, 1, 1).astype(bfloat16)
    y = gable.Conv2d(weights)(x)
    assert y.dtype == bfloat16
    assert np.array_equal(y.view(np.uint16), gable.Conv2d(weights.view(np.uint16))(x.view(np.uint16)))


def test_views_are_taken_as_they_read():
    x, weights = values(3, 3, 4, 2), values(2, 4, 1, 1)
    turned = x.transpose(3, 2, 0, 1)[:, ::-1]  # not contiguous, with a negative stride
    assert np.array_equal(gable.Conv2d(weights)(turned), gable.Conv2d(weights)(turned.copy()))


def test_arrays_that_are_not_aligned_are_copied():
    weights = values(2, 4, 1, 1)
    bytes_before = np.concatenate([np.zeros(1, np.uint8), weights.view(np.uint8).ravel()])
    shifted = np.frombuffer(bytes_before.tobytes(), np.float32, offset=1).reshape(weights.shape)
    x = values(1, 4, 3, 3)
    assert np.array_equal(gable.Conv2d(shifted)(x), gable.Conv2d(weights)(x))


def test_a_fused_pool_has_a_window_and_a_stride():
    x, weights = values(1, 2, 9, 8), values(3, 2, 1, 1)
    y = gable.Conv2d(weights)(x)
    assert np.array_equal(gable.Conv2d(weights, max_pool=(3, 2))(x), gable.max_pool2d(y, (3, 2)))
    assert np.array_equal(gable.Conv2d(weights, max_pool=3, pool_stride=2)(x), gable.max_pool2d(y, 3, 2))


def test_bf16_of_another_byte_order_is_read_as_its_values():
    assert list(gable.from_bf16(gable.to_bf16(np.array([1.5, -2], np.float32)).astype(">u2"))) == [1.5, -2]


def test_bf16_rounds_to_even_and_keeps_nan():
    given = np.array([1, 1 + 2**-8, 1 + 3 * 2**-8, 3.4e38, np.inf, np.nan], np.float32)
    back = gable.from_bf16(gable.to_bf16(given))
    assert list(back[:3]) == [1, 1, 1 + 2**-6]
    assert back[3] == np.inf and back[4] == np.inf and np.isnan(back[5])


def test_threads_share_a_layer():
    weights, bias = values(16, 8, 3, 3), values(16)
    conv = gable.Conv2d(weights, bias, padding=1, device="cpu?threads=1")
    inputs = [values(1 + i % 3, 8, 12, 12) for i in range(8)]
    exact = [conv(x) for x in inputs]
    wrong = []

    def run(i):
        for _ in range(50):
            if not np.array_equal(conv(inputs[i]), exact[i]):
                wrong.append(i)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(inputs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_residual_block_and_a_classifier():
    x, first, second = values(2, 8, 6, 6), values(8, 8, 3, 3), values(8, 8, 1, 1)
    biases, weights, bias = values(2, 8), values(5, 8), values(5)
    a = gable.Conv2d(first, biases[0], padding=1, activation="relu")(x)
    b = gable.Conv2d(second, biases[1])(a)
    pooled = gable.max_pool2d(gable.add(a, b, out=b), 3, stride=2, padding=1)
    y = gable.Linear(weights, bias)(pooled.mean((2, 3)))

    exact_a = np.maximum(convolved(x, first, biases[0], padding=(1, 1, 1, 1)), 0)
    total = exact_a + convolved(exact_a, second, biases[1])
    padded = np.pad(total, ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=-np.inf)
    exact = np.stack([padded[:, :, r : r + 5 : 2, s : s + 5 : 2] for r in range(3) for s in range(3)]).max(0)
    np.testing.assert_allclose(pooled, exact, rtol=1e-5, atol=1e-4)
    np.testing.assert_allclose(y, exact.mean((2, 3)) @ weights.T.astype(np.float64) + bias, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(nhwc(pooled), gable.max_pool2d(nhwc(b), 3, 2, 1, layout="nhwc"))


def test_add_with_relu_keeps_nan_and_runs_on_either_layout():
    a, b = values(2, 3, 5, 7), values(2, 3, 5, 7)
    a[0, 1, 2, 3] = np.nan
    exact = np.maximum(a + b, 0)
    for device in ("cpu", "reference"):
        np.testing.assert_array_equal(gable.add(a, b, activation="relu", device=device), exact)
        np.testing.assert_array_equal(gable.add(nhwc(a), nhwc(b), activation="relu", device=device), nhwc(exact))
    np.testing.assert_array_equal(gable.add(a, b), a + b)  # the plan with relu is not taken for one without
    assert gable.add(a, b, activation="relu", out=b) is b
    np.testing.assert_array_equal(b, exact)


@pytest.mark.parametrize("shape", [(), (7,), (3, 5), (2, 3, 5), (2, 3, 4, 5, 6), (1, 2, 2, 2, 2, 2)])
def test_add_takes_any_dimensions(shape):
    a, b = np.asarray(values(*shape), np.float32), np.asarray(values(*shape), np.float32)
    c = gable.add(a, b, activation="relu")
    assert c.shape == shape
    np.testing.assert_array_equal(c, np.maximum(a + b, 0))


FORMULAS = {
    "relu": lambda x: np.maximum(x, 0),
    "relu6": lambda x: np.clip(x, 0, 6),
    "tanh": np.tanh,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "hard_sigmoid": lambda x: np.clip(x + 3, 0, 6) / 6,
    "silu": lambda x: x / (1 + np.exp(-x)),
    "hard_swish": lambda x: x * np.clip(x + 3, 0, 6) / 6,
    "leaky_relu": lambda x: np.where(x < 0, 0.01 * x, x),
    "gelu": lambda x: x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))) / 2,
}


@pytest.mark.parametrize("device", ["cpu", "reference"])
@pytest.mark.parametrize("function", FORMULAS)
def test_functions_are_those_of_pytorch(function, device):
    x = np.linspace(-9, 9, 210, dtype=np.float32).reshape(2, 3, 5, 7)
    exact = FORMULAS[function](x.astype(np.float64))
    np.testing.assert_allclose(gable.activate(x, function, device=device), exact, rtol=1e-6, atol=1e-6)
    half = gable.activate(x.astype(np.float16), function, device=device)
    assert half.dtype == np.float16
    np.testing.assert_allclose(half, FORMULAS[function](x.astype(np.float16).astype(np.float64)), rtol=1e-3, atol=1e-6)
    assert gable.activate(x, function, device=device, out=x) is x
    np.testing.assert_allclose(x, exact, rtol=1e-6, atol=1e-6)


def test_layers_take_every_function_also_behind_a_pool():
    x, weights, bias = values(2, 3, 8, 8), values(4, 3, 3, 3), values(4)
    plain = gable.Conv2d(weights, bias, padding=1)(x)
    for function, formula in FORMULAS.items():
        y = gable.Conv2d(weights, bias, padding=1, activation=function)(x)
        np.testing.assert_allclose(y, formula(plain.astype(np.float64)), rtol=1e-5, atol=1e-5)
    pooled = gable.Conv2d(weights, bias, padding=1, activation="relu6", max_pool=2)(x)
    np.testing.assert_allclose(pooled, gable.max_pool2d(np.clip(plain, 0, 6), 2), rtol=1e-5, atol=1e-5)
    layer = copy.deepcopy(gable.Linear(values(5, 3), values(5), activation="silu"))
    rows = values(2, 7, 3)
    exact = FORMULAS["silu"](gable.Linear(layer._packed.weights.T, layer._bias)(rows).astype(np.float64))
    np.testing.assert_allclose(layer(rows), exact, rtol=1e-5, atol=1e-6)


def test_a_device_without_a_layers_function_refuses_the_layer():
    if not any(info.uri == "onednn" and info.reason is None for info in gable.devices()):
        pytest.skip("oneDNN is not available")
    for make in (lambda: gable.Conv2d(values(4, 2, 1, 1), activation="silu", device="onednn"),
                 lambda: gable.Linear(values(4, 2), activation="silu", device="onednn")):
        with pytest.raises(gable.Error, match="activation is 'silu', which device 'onednn' can't run") as failure:
            make()
        assert failure.value.code == "unsupported"


def test_a_leaky_relu_has_a_slope():
    x = values(1, 2, 4, 4)
    np.testing.assert_allclose(gable.activate(x, "leaky_relu", slope=0.2), np.where(x < 0, 0.2 * x, x), rtol=1e-6)
    layer = pickle.loads(pickle.dumps(gable.Conv2d(values(3, 2, 1, 1), activation="leaky_relu", slope=0.1, max_pool=2)))
    plain = gable.Conv2d(layer._packed.weights)(x)
    np.testing.assert_allclose(layer(x), gable.max_pool2d(np.where(plain < 0, np.float32(0.1) * plain, plain), 2), rtol=1e-5)


@pytest.mark.parametrize("device", ["cpu", "reference"])
def test_products_have_a_factor_for_each_channel_or_element(device):
    x, scale = values(2, 5, 6, 7), values(2, 5)
    exact = x * scale[:, :, None, None]
    np.testing.assert_allclose(gable.multiply(x, scale, device=device), exact, rtol=1e-6)
    np.testing.assert_allclose(gable.multiply(x, scale.reshape(2, 5, 1, 1), device=device), exact, rtol=1e-6)
    np.testing.assert_allclose(gable.multiply(x, exact, device=device), x * exact, rtol=1e-6)
    squares = scale**2
    np.testing.assert_allclose(gable.multiply(scale, scale, device=device, out=scale), squares, rtol=1e-6)
    in_nhwc = gable.multiply(nhwc(x), scale.reshape(2, 1, 1, 5), layout="nhwc", device=device)
    np.testing.assert_allclose(in_nhwc, nhwc(x * scale[:, :, None, None]), rtol=1e-6)
    assert gable.multiply(x, scale, device=device, out=x) is x


def interpolated(row, scale, align_corners):
    """A row, as PyTorch interpolates it."""
    n, m = len(row), len(row) * scale
    at = np.arange(m) * (n - 1) / (m - 1) if align_corners else np.maximum((np.arange(m) + 0.5) / scale - 0.5, 0)
    return np.interp(at, np.arange(n), row)


@pytest.mark.parametrize("device", ["cpu", "reference"])
@pytest.mark.parametrize("mode", ["bilinear", "bilinear_align_corners"])
def test_bilinear_upsampling_is_that_of_pytorch(mode, device):
    x, corners = values(2, 3, 5, 7), mode != "bilinear"
    wide = np.apply_along_axis(interpolated, 3, x.astype(np.float64), 3, corners)
    exact = np.apply_along_axis(interpolated, 2, wide, 2, corners)
    np.testing.assert_allclose(gable.upsample2d(x, (2, 3), mode=mode, device=device), exact, rtol=1e-5, atol=1e-6)
    in_nhwc = gable.upsample2d(nhwc(x), (2, 3), mode=mode, layout="nhwc", device=device)
    np.testing.assert_allclose(in_nhwc, nhwc(exact), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("device", ["cpu", "reference"])
@pytest.mark.parametrize("axis", [0, 1, 2, -1])
def test_softmax_is_along_any_axis(axis, device):
    x = 10 * values(3, 5, 7, 2)
    exact = np.exp(x.astype(np.float64))
    exact /= exact.sum(axis, keepdims=True)
    np.testing.assert_allclose(gable.softmax(x, axis, device=device), exact, rtol=1e-5, atol=1e-30)
    assert gable.softmax(x, axis, device=device, out=x) is x
    np.testing.assert_allclose(x.sum(axis), 1, rtol=1e-5)
    np.testing.assert_allclose(gable.softmax(values(6), device=device).sum(), 1, rtol=1e-5)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_a_step_of_a_u_net_joins_a_skip_with_what_was_upsampled(dtype):
    skip, deep = values(2, 3, 6, 10).astype(dtype), values(2, 5, 3, 5).astype(dtype)
    exact = np.concatenate([skip, deep.repeat(2, 2).repeat(2, 3)], axis=1)
    np.testing.assert_array_equal(gable.concat(skip, gable.upsample2d(deep, 2)), exact)
    in_nhwc = gable.concat(nhwc(skip), gable.upsample2d(nhwc(deep), (2, 2), layout="nhwc"), layout="nhwc")
    np.testing.assert_array_equal(in_nhwc, nhwc(exact))


@pytest.mark.parametrize("kind", ["f32", "f16", "bf16"])
def test_an_average_counts_padding_as_zeros(kind):
    exact = values(2, 6, 9, 7)
    x = {"f32": exact, "f16": exact.astype(np.float16), "bf16": gable.to_bf16(exact)}[kind]
    exact = gable.from_bf16(x) if kind == "bf16" else x.astype(np.float32)
    ninth = np.full((6, 1, 3, 2), 1 / 6)
    wanted = convolved(exact, ninth, np.zeros(6), stride=(2, 2), padding=(1, 1, 1, 1), groups=6)
    tolerance = {"f32": 1e-6, "f16": 2e-3, "bf16": 2e-2}[kind]
    for device in ("cpu", "reference"):
        y = gable.avg_pool2d(x, (3, 2), 2, 1, device=device)
        y = gable.from_bf16(y) if kind == "bf16" else y
        np.testing.assert_allclose(y, wanted, rtol=tolerance, atol=tolerance)
    if kind == "f32":
        y = gable.avg_pool2d(nhwc(x), (3, 2), 2, 1, layout="nhwc")
        np.testing.assert_allclose(y, nhwc(wanted), rtol=tolerance, atol=tolerance)
        np.testing.assert_allclose(gable.avg_pool2d(x, (9, 7))[..., 0, 0], x.mean((2, 3)), rtol=1e-5, atol=1e-6)
        assert gable.avg_pool2d(x, 3).shape == (2, 6, 3, 2)  # the stride is the window


def test_averages_do_not_keep_their_device():
    device = gable.open("cpu?threads=1")
    gable.avg_pool2d(values(1, 2, 4, 4), 2, device=device)
    kept = weakref.ref(device)
    del device
    assert kept() is None  # without a collection of cycles


def test_a_linear_layer_takes_any_dimensions_before_its_inputs():
    weights, bias, x = values(5, 8), values(5), values(2, 3, 4, 8)
    fc = gable.Linear(weights, bias)
    exact = x.astype(np.float64) @ weights.T.astype(np.float64) + bias
    np.testing.assert_allclose(fc(x), exact, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(fc(x[:, ::2]), exact[:, ::2], rtol=1e-5, atol=1e-5)
    out = np.zeros((2, 3, 4, 5), np.float32)
    assert fc(x, out=out) is out and np.array_equal(out, fc(x))
    assert fc.explain(x.shape) == fc.explain((24, 8))


def test_devices_are_listed_and_those_without_a_reason_open():
    listed = {info.uri: info for info in gable.devices()}
    assert listed["cpu"].backend == "cpu" and listed["cpu"].name and listed["cpu"].on_host
    assert listed["cpu"].reason is None and "reference" in listed
    for info in listed.values():
        if info.reason is None:
            gable.open(info.uri)
        else:
            with pytest.raises(gable.Error) as caught:
                gable.open(info.uri)
            assert caught.value.code == "unavailable"


def test_a_layer_names_the_device_kernel_and_threads_of_a_shape():
    conv = gable.Conv2d(values(8, 4, 3, 3), device="cpu?threads=1&kernel=direct")
    choice = conv.choice((1, 4, 8, 8))
    assert choice.device.startswith("cpu?") and choice[1:] == ("direct", 1)
    assert gable.Linear(values(5, 8), device="reference").choice((3, 8)).kernel == "f64_loops"


def test_layers_can_be_copied_and_pickled():
    conv = gable.Conv2d(values(8, 4, 3, 3), values(8), padding=1, activation="relu", device="cpu?threads=1")
    fc = gable.Linear(values(5, 8), device=gable.open("reference"))
    x = values(2, 4, 6, 6)
    y = fc(conv(x).mean((2, 3)))  # both have plans and packed weights now
    for copied in (copy.deepcopy([conv, fc]), pickle.loads(pickle.dumps([conv, fc]))):
        assert [layer.device.uri for layer in copied] == ["cpu?threads=1", "reference"]
        np.testing.assert_array_equal(copied[1](copied[0](x).mean((2, 3))), y)


def test_failures_can_be_pickled():
    error = pickle.loads(pickle.dumps(gable.Error("unsupported", "what it says")))
    assert error.code == "unsupported" and str(error) == "what it says"


def test_out_is_written_and_checked():
    conv = gable.Conv2d(values(4, 2, 1, 1))
    x, out = values(1, 2, 3, 3), np.zeros((1, 4, 3, 3), np.float32)
    assert conv(x, out=out) is out and np.array_equal(out, conv(x))
    with pytest.raises(gable.Error, match="out is .*it must be"):
        conv(x, out=np.zeros((1, 4, 3, 3), np.float64))


@pytest.mark.parametrize(
    "mistake, code, words",
    [
        (lambda: gable.Conv2d(values(4, 3, 1, 1))(values(1, 2, 3, 3)), "invalid_argument", "input"),
        (lambda: gable.Conv2d(values(4, 2, 1, 1))(values(2, 3, 3)), "invalid_argument", "x has the shape .2, 3, 3"),
        (lambda: gable.Conv2d(values(4, 2, 1, 1))(np.zeros((1, 2, 3, 3))), "invalid_argument", "float64"),
        (lambda: gable.Conv2d(values(4, 2, 1, 1))(values(0, 2, 3, 3)), "invalid_argument", "0x2x3x3"),
        (lambda: gable.Conv2d(values(4, 2, 1, 1).astype(">f4")), "invalid_argument", "byte order"),
        (lambda: gable.Conv2d(values(4, 2, 1, 1))(values(1, 2, 3, 3).astype(">f4")), "invalid_argument", ">f4"),
        (lambda: gable.Conv2d(np.zeros((4, 2, 1, 1))), "invalid_argument", r"weights.astype\('float32'\)"),
        (lambda: gable.Conv2d(values(4, 2, 1, 1), values(3)), "invalid_argument", r"bias is \(3,\)"),
        (lambda: gable.Conv2d(values(4, 2, 1, 1), activation="swish"), "invalid_argument", "none, relu, tanh, relu6, sigm"),
        (lambda: gable.Conv2d(values(4, 2, 1, 1), activation=np.tanh), "invalid_argument", "activation is <ufunc"),
        (lambda: gable.Conv2d(values(4, 2, 1, 1), activation=np.ones(2)), "invalid_argument", "must be one of none"),
        (lambda: gable.Conv2d(values(4, 2, 1, 1), activation="silu", max_pool=2), "invalid_argument", "max_pool2d"),
        (lambda: gable.Conv2d(values(4, 2, 1, 1), device="cpus"), "unavailable", "cpus"),
        (lambda: gable.Conv2d(values(4, 2, 1, 1), device=0), "invalid_argument", "device is 0"),
        (lambda: gable.Conv2d(values(4, 2, 1, 1), device="cpu\0x"), "invalid_argument", "device is 'cpu.x00x'"),
        (lambda: gable.open("cpu\udcff"), "invalid_argument", "no backend's name"),
        (lambda: gable.Linear(values(4, 2))(values(2)), "invalid_argument", r"x has the shape \(2,\)"),
        (lambda: gable.Conv2d(values(4, 2, 1, 1), math="tf32", device="cpu")(values(1, 2, 3, 3)), "unsupported", "tf32"),
        (lambda: gable.Linear(values(4, 2))(values(3, 3)), "invalid_argument", r"rows, 2"),
        (lambda: gable.Linear(values(4, 2)).explain((3, 3)), "invalid_argument", r"rows, 2"),
        (lambda: gable.Conv2d(values(4, 2, 1, 1), layout="nhwc").explain((3, 3)), "invalid_argument", "4 dimensions"),
        (lambda: gable.Conv2d(values(4, 2, 1, 1), padding="same"), "invalid_argument", "padding is 'same'"),
        (lambda: gable.Conv2d(values(4, 2, 1, 1), stride=1.5), "invalid_argument", "stride is 1.5"),
        (lambda: gable.Conv2d(values(4, 2, 1, 1), groups=2**64 + 1), "invalid_argument", "groups is 18446744073709551617"),
        (lambda: gable.Conv2d(values(4, 2, 1, 1), max_pool=(2, 2, 2)), "invalid_argument", "max_pool is"),
        (lambda: gable.Conv2d(values(4, 2, 1, 1))(values(1, 2, 3, 3), out=[0]), "invalid_argument", "out is a list"),
        (lambda: gable.Conv2d(values(4, 2, 1, 1), max_pool=0), "invalid_argument", "max_pool is 0"),
        (lambda: gable.Conv2d(values(4, 2, 1, 1), pool_stride=2), "invalid_argument", "there is no max_pool"),
        (lambda: gable.Conv2d(values(4, 2, 1, 1)).choice(5), "invalid_argument", "shape is 5"),
        (lambda: gable.Conv2d(values(4, 2, 1, 1)).explain((1, 2, 2**64 + 8, 8)), "invalid_argument", "shape is .*84467"),
        (lambda: gable.Linear(values(4, 2)).choice((1.5, 2)), "invalid_argument", "shape is .1.5, 2"),
        (lambda: gable.avg_pool2d(values(1, 2, 3, 3), 0), "invalid_argument", "the window .0, 0"),
        (lambda: gable.avg_pool2d(values(1, 2, 3, 3), 4), "invalid_argument", "does not fit"),
        (lambda: gable.avg_pool2d(values(1, 2, 3, 3), (2**40, 1)), "invalid_argument", "1099511627776, 1. does not fit"),
        (lambda: gable.avg_pool2d(values(1, 2, 3, 3).astype("i4"), 2), "invalid_argument", "int32"),
        (lambda: gable.from_bf16(values(2, 3)), "invalid_argument", "not float32"),
        (lambda: gable.add(values(1, 2, 3, 3), values(1, 2, 3, 1)), "invalid_argument", "alike"),
        (lambda: gable.add(*values(2, 1, 2, 3, 3), activation="tanh"), "invalid_argument", "none or relu"),
        (lambda: gable.activate(values(2), "swish"), "invalid_argument", "hard_sigmoid, silu, hard_swish, gelu"),
        (lambda: gable.activate(values(2), "leaky_relu", slope=0), "invalid_argument", "slope is 0; it must be a finite"),
        (lambda: gable.activate(values(2), "leaky_relu", slope="a"), "invalid_argument", "slope is 'a'"),
        (lambda: gable.activate(values(2), "leaky_relu", slope=10**400), "invalid_argument",
         "slope is 10+; it must be a finite"),
        (lambda: gable.activate(values(2), "leaky_relu", slope=1e39), "invalid_argument",
         "slope is 1e.39; it must be a finite"),
        (lambda: gable.activate(values(2), "leaky_relu", slope=1e-50), "invalid_argument",
         "slope is 1e-50; it must be a finite"),
        (lambda: gable.Conv2d(values(4, 2, 1, 1), activation=np.ones(2), slope=0.1), "invalid_argument",
         r"activation is array\(.1., 1..\); it must be one of none, relu, tanh, relu6"),
        (lambda: gable.activate(values(2), "silu", slope=0.1), "invalid_argument", "function is 'silu': leaky_relu alone"),
        (lambda: gable.Conv2d(values(4, 2, 1, 1), activation="leaky_relu", slope=-1, max_pool=2), "invalid_argument",
         "max_pool2d"),
        (lambda: gable.Linear(values(4, 2), slope=0.1), "invalid_argument", "activation is None: leaky_relu alone"),
        (lambda: gable.activate(values(2), ["silu"]), "invalid_argument", "function is .'silu'"),
        (lambda: gable.concat(values(1, 2, 3, 3), values(1, 2, 3, 4)), "invalid_argument", "channels alone"),
        (lambda: gable.concat(values(1, 2, 3, 3), values(1, 2, 3, 3).astype("f2")), "invalid_argument", "alike"),
        (lambda: gable.multiply(values(2, 4, 3, 3), values(4)), "invalid_argument", r"be .2, 4. or .2, 4, 1, 1."),
        (lambda: gable.multiply(values(2, 4), values(2)), "invalid_argument", "the same shape, or a must have 4 dimensions"),
        (lambda: gable.upsample2d(values(1, 2, 3, 3), 2, mode="cubic"), "invalid_argument", "mode is 'cubic'.* bilinear_align"),
        (lambda: gable.softmax(values(2, 3), 2), "invalid_argument", "between -2 and 1"),
        (lambda: gable.softmax(np.float32(1)), "invalid_argument", "no dimensions; it must have at least one"),
        (lambda: gable.softmax(values(2, 3), 1.0), "invalid_argument", "axis is 1.0"),
        (lambda: gable.upsample2d(values(1, 2, 3, 3), 0), "invalid_argument", "scale.h is 0"),
        (lambda: gable.upsample2d(values(1, 2, 3, 3), 1.5), "invalid_argument", "scale is 1.5"),
    ],
)
def test_a_mistake_is_an_error_that_names_it(mistake, code, words):
    with pytest.raises(gable.Error, match=words) as caught:
        mistake()
    assert caught.value.code == code


def test_the_version_is_that_of_the_header():
    header = (ROOT / "api/include/gable/version.h").read_text()
    major, minor = (re.search(rf"GABLE_VERSION_{part} (\d+)", header)[1] for part in ("MAJOR", "MINOR"))
    assert f"{major}.{minor}" == gable.VERSION
    assert gable.version().startswith(gable.VERSION + ".")
