"""bench/compare_pytorch.py without a GPU: which layers it takes, how it describes them to gable, and what it records."""

import argparse
import ctypes
import statistics

import pytest

pytest.importorskip("numpy")  # which the package gable imports
import compare_pytorch as compare
from gable._c import CConv2d
from pytorch.contestants import Contestant
from pytorch.gable_api import c_conv2d
from pytorch.layer import Layer
from pytorch.timing import Timed


def listed(**conv):
    shapes = {
        "input": [2, 64, 56, 56],
        "weights": [128, 64, 3, 3],
        "stride": [1, 1],
        "padding": [1, 1, 1, 1],
        "dilation": [1, 1],
        "groups": 1,
        "pool_window": [0, 0],
        "pool_stride": [0, 0],
    }
    return {
        "suite": "study",
        "name": "vgg",
        "op": "conv2d",
        "problem": "mb2ic64",
        "dtype": "f32",
        "math": "strict",
        "epilogue": {"bias": True, "activation": "relu"},
        "conv2d": shapes | conv,
        "flop": 6e9,
        "bytes": 3e6,
    }


def test_a_layer_s_kind_is_its_math_unless_that_is_strict():
    assert Layer(listed()).kind == "f32"
    assert Layer(listed() | {"math": "tf32"}).kind == "tf32"
    assert Layer(listed() | {"dtype": "bf16"}).kind == "bf16"


def test_padding_is_symmetric_where_the_output_is_the_same():
    assert Layer(listed()).symmetric_padding() == [1, 1]
    assert Layer(listed(padding=[0, 0, 1, 1])).symmetric_padding() is None
    # Stride 2 over 56: the last row of padding is never reached, so that one row more or less changes nothing.
    strided = listed(stride=[2, 2], padding=[1, 1, 0, 0])
    assert Layer(strided).symmetric_padding() == [1, 1]


def test_a_pool_is_there_where_its_window_is():
    assert Layer(listed()).pool is None
    pooled = Layer(listed(pool_window=[3, 2], pool_stride=[2, 2]))
    assert pooled.pool == ([3, 2], [2, 2])


def test_gable_s_struct_is_filled_member_by_member():
    layer = Layer(listed(groups=2, stride=[2, 1]) | {"dtype": "bf16", "math": "strict"})
    conv = c_conv2d(layer)
    assert list(conv.input) == [2, 64, 56, 56] and list(conv.stride) == [2, 1] and list(conv.padding) == [1, 1, 1, 1]
    assert (conv.groups, conv.dtype, conv.math, conv.layout, conv.bias, conv.activation) == (2, 2, 0, 1, 1, 1)
    assert c_conv2d(Layer(listed() | {"math": "split6"})).math == 3
    assert c_conv2d(Layer(listed() | {"layout": "nchw"})).layout == 0
    assert ctypes.sizeof(CConv2d) % 8 == 0


def test_a_measurement_has_the_median_and_the_quartiles_of_its_samples():
    contestant = Contestant(
        "cuda:0", "wgmma", True, lambda: None, accuracy={"max_error": 1, "error_bound": 2, "relative_error": 3}
    )
    seconds = [4e-3, 1e-3, 2e-3, 3e-3, 5e-3]
    timed = Timed(contestant, "cuda:0 graph", 7, lambda: 0.0, seconds)
    record = compare.measurement(Layer(listed()), timed, "a GPU")
    assert record["device"] == "cuda:0 graph" and record["kernel"] == "wgmma"
    assert record["T"] == {
        "source": "event",
        "seconds": statistics.median(seconds),
        "q1": 2e-3,
        "q3": 4e-3,
        "fastest": 1e-3,
        "runs": 5,
        "calls_per_run": 7,
    }
    assert record["gflops"] == pytest.approx(6e9 / 3e-3 / 1e9)
    assert record["intensity"] == 2000
    assert (record["max_error"], record["error_bound"], record["relative_error"]) == (1, 2, 3)


def timed(device, name, seconds):
    return Timed(Contestant(device, "wgmma", True, lambda: None), name, 1, lambda: 0.0, [seconds])


def test_a_row_compares_gable_s_first_device_with_the_fastest_of_pytorch_on_a_stream_and_in_a_graph():
    timings = [
        timed("cuda:0", "cuda:0", 10e-6),
        timed("cuda:0", "cuda:0 graph", 5e-6),
        timed("pytorch:eager", "pytorch:eager", 40e-6),
        timed("pytorch:eager", "pytorch:eager graph", 20e-6),
        timed("pytorch:fused", "pytorch:fused", 30e-6),
        timed("pytorch:fused", "pytorch:fused graph", 25e-6),
    ]
    text = compare.row(Layer(listed()), timings)
    assert "x3.00/4.00" in text
    assert "cuda:0 10.0/5.0" in text
    assert "xnan/nan" in compare.row(Layer(listed()), timings[:2])


def test_layers_are_selected_by_suite_and_kind_and_only_convolutions(monkeypatch):
    calls = []

    def fake(command, arguments):
        calls.append(arguments)
        return {"cases": [listed(), listed() | {"op": "add"}]}

    monkeypatch.setattr(compare, "gable_json", fake)
    options = argparse.Namespace(
        gable="gable",
        layout="nhwc",
        suite=["study"],
        problem=[],
        file=[],
        dtype=["f16", "tf32"],
        activation=None,
        max_pool=None,
        bias=False,
        name=None,
        max_batch=None,
    )
    assert len(list(compare.selected(options))) == 2
    assert [call[-4:] for call in calls] == [
        ["--dtype", "f16", "--math", "strict"],
        ["--dtype", "f32", "--math", "tf32"],
    ]
    options.problem, options.bias, options.max_pool = ["ic8oc8"], True, "2"
    list(compare.selected(options))
    assert calls[-1][:6] == ["list", "--problem", "ic8oc8", "--max-pool", "2", "--bias"]
    options.problem, options.file, options.max_batch = [], ["net.txt"], "1"
    list(compare.selected(options))
    assert calls[-1][:6] == ["list", "--file", "net.txt", "--max-pool", "2", "--bias"]
    assert calls[-1][9:11] == ["--max-batch", "1"]


def test_the_library_lies_beside_the_command(tmp_path):
    (tmp_path / "bin").mkdir()
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "libgable.so").touch()
    assert compare.library_beside(tmp_path / "bin" / "gable") == tmp_path / "lib" / "libgable.so"
    assert str(compare.library_beside(tmp_path / "elsewhere" / "bin" / "gable")) == "libgable.so"


def test_1x1_layers_without_stride_padding_and_groups_are_matrix_products():
    product = {"weights": [128, 64, 1, 1], "padding": [0, 0, 0, 0]}
    assert Layer(listed(**product)).is_product()
    assert not Layer(listed()).is_product()
    assert not Layer(listed(**product) | {"layout": "nchw"}).is_product()
    for other in ({"stride": [2, 2]}, {"groups": 2}, {"padding": [0, 0, 0, 1]}):
        assert not Layer(listed(**product | other)).is_product()
