"""Lists of a model's convolutions (api/python/gable/layers.py): from PyTorch's modules, and from ONNX where onnx is installed."""

import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("numpy")  # which the package gable imports
from gable import layers


class Tensor:
    def __init__(self, *shape):
        self.shape = shape


class Module:
    """As torch.nn.Module calls forward hooks."""

    def __init__(self):
        self.hooks = []
        self.training = True

    def register_forward_hook(self, hook, with_kwargs):
        assert with_kwargs
        self.hooks.append(hook)
        return type("Handle", (), {"remove": lambda _: self.hooks.remove(hook)})()


class Conv2d(Module):
    def __init__(self, outputs, channels, window, stride=(1, 1), padding=(0, 0), dilation=(1, 1), groups=1):
        super().__init__()
        self.weight = Tensor(outputs, channels, *window)
        self.stride, self.padding, self.dilation, self.groups = stride, padding, dilation, groups

    def __call__(self, x, size):
        y = Tensor(x.shape[0], self.weight.shape[0], *size)
        for hook in self.hooks:
            hook(self, (x,), {}, y)
        return y


class Conv2dSame(Conv2d):
    """timm's: pads by itself."""


class Linear(Module):
    def __init__(self, outputs, inputs):
        super().__init__()
        self.weight = Tensor(outputs, inputs)

    def __call__(self, *x, **keywords):
        size = x[0].shape if x else keywords["input"].shape
        for hook in self.hooks:
            hook(self, x, keywords, Tensor(*size[:-1], self.weight.shape[0]))


class ConvTranspose3d(Module):
    weight = Tensor(8, 4, 2, 2, 2)

    def __call__(self, x):
        for hook in self.hooks:
            hook(self, (x,), {}, x)


class Network(Module):
    def __init__(self):
        super().__init__()
        self.stem = Conv2d(8, 3, (3, 3), stride=(2, 2), padding=(1, 1))
        self.body = Conv2d(8, 2, (3, 3), padding="same", dilation=(2, 2), groups=4)
        self.same = Conv2dSame(8, 8, (3, 3), stride=(2, 2))
        self.up = ConvTranspose3d()

    def modules(self):
        return [self, self.stem, self.body, self.same, self.up]

    def __call__(self, x):
        self.trained = any(module.training for module in self.modules())
        x = self.stem(x, (16, 16))
        x = self.body(self.body(x, (16, 16)), (16, 16))
        self.up(self.same(x, (8, 8)))


def test_a_torch_model_is_listed_with_counts_and_what_was_left_out():
    network = Network()
    assert layers.of_torch(network, Tensor(1, 3, 32, 32), name="toy").splitlines() == [
        "# toy: 4 convolutions, 3 distinct",
        "# left out: ConvTranspose3d (8, 4, 2, 2, 2)",
        'mb1ic3ih32iw32oc8oh16ow16kh3kw3sh2sw2ph1pw1dh0dw0n"toy:1*1"',
        'g4mb1ic8ih16iw16oc8oh16ow16kh3kw3sh1sw1ph2pw2dh1dw1n"toy:2*2"',
        'mb1ic8ih16iw16oc8oh8ow8kh3kw3sh2sw2ph0pw0dh0dw0n"toy:3*1"',
    ]
    assert all(module.hooks == [] for module in network.modules())


class Conv1d(Conv2d):
    """Its sizes have one number."""


class Speech(Module):
    def __init__(self):
        super().__init__()
        self.one = Conv1d(8, 4, (5,), stride=(2,), padding=(2,))
        self.two = Conv1d(8, 2, (3,), padding="same", dilation=(2,), groups=4, stride=(1,))

    def modules(self):
        return [self, self.one, self.two]

    def __call__(self, x):
        self.two(self.one(x, (50,)), (50,))


def test_one_dimensional_convolutions_are_those_of_images_of_one_row():
    assert layers.of_torch(Speech(), Tensor(2, 4, 100), name="speech").splitlines() == [
        "# speech: 2 convolutions, 2 distinct",
        'mb2ic4ih1iw100oc8oh1ow50kh1kw5sh1sw2ph0pw2dh0dw0n"speech:1*1"',
        'g4mb2ic8ih1iw50oc8oh1ow50kh1kw3sh1sw1ph0pw2dh0dw1n"speech:2*1"',
    ]


def test_one_dimensional_convolutions_of_onnx_and_a_list_that_nobody_reads(tmp_path):
    onnx = pytest.importorskip("onnx")
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    weights = helper.make_tensor("w", kind, (8, 4, 5), [0.0] * 160)
    nodes = [helper.make_node("Conv", ["x", "w"], ["y"], strides=[2], pads=[2, 1], dilations=[1])]
    graph = helper.make_graph(nodes, "speech", [helper.make_tensor_value_info("x", kind, [2, 4, 100])],
                              [helper.make_tensor_value_info("y", kind, None)], [weights])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), str(tmp_path / "speech.onnx"))
    line = 'mb2ic4ih1iw100oc8oh1ow50kh1kw5sh1sw2ph0pw2dh0dw0n"speech:1*1"'
    assert layers.of_onnx(tmp_path / "speech.onnx").splitlines()[-1] == line
    command = f"{sys.executable} -m gable.layers {tmp_path}/speech.onnx"
    for rest, code, words in (("| true", 141, ""), (">/dev/full", 4, "No space left"), (">&-", 4, "closed")):
        done = subprocess.run(["bash", "-c", f"{command} {rest}; exit ${{PIPESTATUS[0]}}"], capture_output=True, text=True,
                              check=False, env={**os.environ, "PYTHONPATH": str(Path(layers.__file__).parents[1])})
        assert done.returncode == code, rest
        assert "Traceback" not in done.stderr
        assert words in done.stderr


class Transformer(Module):
    def __init__(self):
        super().__init__()
        self.project, self.classify = Linear(64, 16), Linear(10, 64)

    def modules(self):
        return [self, self.project, self.classify]

    def __call__(self, x):
        self.project(x)
        self.project(input=x)
        self.classify(Tensor(x.shape[0], 64))


def test_fully_connected_layers_are_1x1_convolutions_of_the_same_rows():
    assert layers.of_torch(Transformer(), Tensor(2, 7, 16), name="t", linear=True).splitlines() == [
        "# t: 3 convolutions, 2 distinct",
        'mb2ic16ih7iw1oc64oh7ow1kh1kw1sh1sw1ph0pw0dh0dw0n"t:1*2"',
        'mb2ic64ih1iw1oc10oh1ow1kh1kw1sh1sw1ph0pw0dh0dw0n"t:2*1"',
    ]
    assert layers.of_torch(Transformer(), Tensor(2, 7, 16), name="t") == "# t: 0 convolutions, 0 distinct\n"


def test_products_with_weights_of_an_onnx_model_are_fully_connected_layers(tmp_path):
    onnx = pytest.importorskip("onnx")
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    nodes = [
        helper.make_node("Transpose", ["w1"], ["w1t"], perm=[1, 0]),
        helper.make_node("MatMul", ["x", "w1t"], ["q"]),
        helper.make_node("Transpose", ["q"], ["k"], perm=[0, 2, 1]),
        helper.make_node("MatMul", ["q", "k"], ["scores"]),  # of two activations
        helper.make_node("Gemm", ["z", "w2", "b"], ["c"], transB=1),
        helper.make_node("Gemm", ["z2", "w2", "b"], ["d"], name="odd", transA=1, transB=1),
    ]
    sizes = {"x": [2, 7, 16], "z": [2, 64], "z2": [64, 2]}
    weights = {"w1": [64, 16], "w2": [10, 64], "b": [10]}
    graph = helper.make_graph(
        nodes,
        "toy",
        [helper.make_tensor_value_info(name, kind, dims) for name, dims in sizes.items()],
        [helper.make_tensor_value_info(name, kind, None) for name in ("scores", "c", "d")],
        [helper.make_tensor(name, kind, dims, [0.0] * math.prod(dims)) for name, dims in weights.items()],
    )
    path = tmp_path / "toy.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), str(path))
    assert layers.of_onnx(path, linear=True).splitlines() == [
        "# toy: 2 convolutions, 2 distinct",
        "# left out: Gemm odd: more than rows of x times one matrix",
        'mb2ic16ih7iw1oc64oh7ow1kh1kw1sh1sw1ph0pw0dh0dw0n"toy:1*1"',
        'mb2ic64ih1iw1oc10oh1ow1kh1kw1sh1sw1ph0pw0dh0dw0n"toy:2*1"',
    ]
    with pytest.raises(ValueError, match="no convolution; --linear lists its fully connected layers"):
        layers.of_onnx(path)


def test_a_torch_model_runs_in_evaluation_and_is_given_back_as_it_was():
    network = Network()
    network.body.training = False
    layers.of_torch(network, Tensor(1, 3, 32, 32))
    assert not network.trained
    assert [module.training for module in network.modules()] == [True, True, False, True, True]


def test_a_name_with_blanks_and_quotes_makes_lines_that_can_be_read():
    lines = layers.of_torch(Network(), Tensor(1, 3, 32, 32), name='my "net"\nof\tall').splitlines()
    assert lines[0] == "# my_net_of_all: 4 convolutions, 3 distinct"
    assert lines[2].endswith('n"my_net_of_all:1*1"') and len(lines) == 5


@pytest.mark.parametrize("size", ["1x3x32x", "1x3x0x4", "1,3,2,2", "1x3x-1x4", "x"])
def test_a_wrong_size_is_said_as_it_was_given(size, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["layers", str(tmp_path / "a.onnx"), f"--input={size}"])
    assert layers.main() == 2
    assert f"--input is '{size}'; it must be sizes as in 1x3x224x224" in capsys.readouterr().err


@pytest.fixture
def model(tmp_path):
    onnx = pytest.importorskip("onnx")
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT

    def weights(name, *dims):
        return helper.make_tensor(name, kind, dims, [0.0] * math.prod(dims))

    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["a"], name="stem", strides=[2, 2], pads=[1, 1, 1, 1]),
        helper.make_node("Conv", ["a", "w2"], ["b"], name="dw", group=8, auto_pad="SAME_LOWER", strides=[2, 2]),
        helper.make_node("Conv", ["b", "w3"], ["c"], name="r1", pads=[0, 1, 1, 2], dilations=[2, 1]),
        helper.make_node("Conv", ["b", "w3"], ["d"], name="r2", pads=[0, 1, 1, 2], dilations=[2, 1]),
        helper.make_node("ConvTranspose", ["d", "w4"], ["y"], name="up", strides=[2, 2]),
    ]
    graph = helper.make_graph(
        nodes,
        "toy",
        [helper.make_tensor_value_info("x", kind, ["N", 3, "H", "W"])],
        [helper.make_tensor_value_info("y", kind, None)],
        [weights("w1", 8, 3, 3, 3), weights("w2", 8, 1, 3, 3), weights("w3", 8, 8, 3, 3), weights("w4", 8, 4, 2, 2)],
    )
    path = tmp_path / "toy.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), str(path))
    return path


def test_an_onnx_model_is_listed(model):
    assert layers.of_onnx(model, (1, 3, 64, 48)).splitlines() == [
        "# toy: 4 convolutions, 3 distinct",
        "# left out: ConvTranspose up",
        'mb1ic3ih64iw48oc8oh32ow24kh3kw3sh2sw2ph1pw1dh0dw0n"toy:1*1"',
        'g8mb1ic8ih32iw24oc8oh16ow12kh3kw3sh2sw2ph1pw1dh0dw0n"toy:2*1"',
        'mb1ic8ih16iw12oc8oh13ow13kh3kw3sh1sw1ph0pw1dh1dw0n"toy:3*2"',
    ]


def test_an_onnx_model_whose_size_is_open_says_what_to_give(model):
    with pytest.raises(layers.UnknownShape, match="--input 1x3x224x224"):
        layers.of_onnx(model)
    with pytest.raises(ValueError, match="3 dimensions"):
        layers.of_onnx(model, (3, 64, 48))


def test_an_onnx_layer_whose_size_is_not_known_is_left_out_and_the_others_are_listed(model):
    import onnx

    changed = onnx.load(str(model))
    helper = onnx.helper
    changed.graph.input.append(helper.make_tensor_value_info("sizes", onnx.TensorProto.INT64, [4]))
    changed.graph.node.insert(1, helper.make_node("Reshape", ["a", "sizes"], ["free"]))
    changed.graph.node[2].input[0] = "free"
    onnx.save(changed, str(model))
    lines = layers.of_onnx(model, (1, 3, 64, 48)).splitlines()
    assert lines[0] == "# toy: 1 convolutions, 1 distinct"
    assert [line for line in lines if "Conv dw: the size of" in line] != []
    assert lines[-1].endswith('n"toy:1*1"')


def test_onnx_convolutions_that_gable_can_t_express_are_said_and_a_model_without_any_is_an_error(model):
    import onnx

    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    branch = helper.make_graph([helper.make_node("Conv", ["x", "w1"], ["inside"])], "branch", [],
                               [helper.make_tensor_value_info("inside", kind, None)])
    changed = onnx.load(str(model))
    changed.graph.input.append(helper.make_tensor_value_info("which", onnx.TensorProto.BOOL, []))
    changed.graph.node.append(helper.make_node("If", ["which"], ["either"], name="fork", then_branch=branch, else_branch=branch))
    changed.graph.node.append(helper.make_node("FusedConv", ["x", "w1"], ["f"], name="fast", domain="com.microsoft"))
    changed.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    onnx.save(changed, str(model))
    lines = layers.of_onnx(model, (1, 3, 64, 48)).splitlines()
    assert "# left out: the convolutions inside If fork" in lines
    assert "# left out: FusedConv fast" in lines
    empty = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "none",
                              [helper.make_tensor_value_info("x", kind, [1])], [helper.make_tensor_value_info("y", kind, [1])])
    onnx.save(helper.make_model(empty), str(model))
    with pytest.raises(ValueError, match="has no convolution"):
        layers.of_onnx(model)


def test_an_onnx_convolution_whose_weights_do_not_fit_its_input_is_left_out(model):
    import onnx

    changed = onnx.load(str(model))
    changed.graph.node[0].attribute.append(onnx.helper.make_attribute("group", 3))
    onnx.save(changed, str(model))
    lines = layers.of_onnx(model, (1, 3, 64, 48)).splitlines()
    assert "# left out: Conv stem: its weights take 3 channels in each of 3 groups; its input has 3" in lines


def test_an_onnx_convolution_whose_outputs_do_not_divide_into_groups_is_left_out(tmp_path):
    onnx = pytest.importorskip("onnx")
    value = onnx.helper.make_tensor_value_info
    floats = onnx.TensorProto.FLOAT
    node = onnx.helper.make_node("Conv", ["x", "w"], ["y"], name="odd", group=2)
    weights = onnx.helper.make_tensor("w", floats, (5, 2, 1, 1), [1.0] * 10)
    graph = onnx.helper.make_graph([node], "odd", [value("x", floats, (1, 4, 6, 6))], [value("y", floats, (1, 5, 6, 6))],
                                   [weights])
    onnx.save(onnx.helper.make_model(graph), str(tmp_path / "odd.onnx"))
    lines = layers.of_onnx(tmp_path / "odd.onnx").splitlines()
    assert "# left out: Conv odd: its 5 output channels do not divide into 2 groups" in lines


def test_a_file_that_is_no_model_is_named(tmp_path):
    pytest.importorskip("onnx")
    (tmp_path / "no.onnx").write_bytes(b"\xff" * 40)
    with pytest.raises(ValueError, match="no.onnx is no ONNX model"):
        layers.of_onnx(tmp_path / "no.onnx")


def test_a_model_that_is_broken_is_an_error_in_words(tmp_path):
    onnx = pytest.importorskip("onnx")
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT

    def saved(*nodes):
        graph = helper.make_graph(list(nodes), "g", [helper.make_tensor_value_info("x", kind, [1, 4, 6, 6])],
                                  [helper.make_tensor_value_info("y", kind, None)])
        path = tmp_path / "broken.onnx"
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("mine", 1)]), str(path))
        return path

    with pytest.raises(ValueError, match="broken.onnx: ONNX can't infer its sizes: .*Conv"):
        layers.of_onnx(saved(helper.make_node("Conv", [], [])))
    lines = layers.of_onnx(saved(helper.make_node("Conv", ["x"], ["y"], name="odd"))).splitlines()
    assert lines[1] == "# left out: Conv odd: it has no weights or no output"
    with pytest.raises(ValueError, match="has no convolution"):
        layers.of_onnx(saved(helper.make_node("Gemm", ["x"], ["y"])))
    for node in (helper.make_node("Constant", [], []), helper.make_node("Transpose", [], ["y"], domain="mine")):
        with pytest.raises(ValueError, match="has no convolution"):
            layers.of_onnx(saved(node))
