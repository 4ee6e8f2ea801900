"""The convolutions of a model as a list for `gable bench --file`: distinct layers, with how often each occurs.

    python3 -m gable.layers model.onnx > my.txt                       # needs the package onnx; weights are not read
    python3 -m gable.layers model.onnx --input 1x3x224x224 > my.txt   # where the model leaves its input's size open
    python3 -m gable.layers vit.onnx --linear > my.txt                # fully connected layers too, as 1x1 convolutions

    from gable import layers                                          # PyTorch 2.0 or later: runs the model once
    print(layers.of_torch(model, torch.empty(1, 3, 224, 224), name="my"))

1-D convolutions are listed as those of images of one row. Layers that gable can't express (3-D and transposed convolutions)
are comments in the list and go to stderr.
A fully connected layer of T rows for each of N images is a 1x1 convolution of N images of T pixels: of the same memory in NHWC.
of_torch() sees modules of the classes Conv1d, Conv2d and Linear and their subclasses. Calls of torch.nn.functional.conv2d are not
modules: export such a model to ONNX.
"""

from __future__ import annotations

import argparse
import math
import os
import re
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Convolution:
    """A layer with everything that its time depends on. Pairs are height and width; padding is above and left."""

    input: tuple[int, int, int, int]
    outputs: int
    output: tuple[int, int]
    window: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]
    groups: int

    def descriptor(self) -> str:
        """benchdnn's, as gable reads it (docs/command.md): dilation minus one, the far padding by the output's size."""
        n, c, h, w = self.input
        pairs = (("k", self.window), ("s", self.stride), ("p", self.padding),
                 ("d", tuple(each - 1 for each in self.dilation)))
        groups = f"g{self.groups}" if self.groups > 1 else ""
        return (f"{groups}mb{n}ic{c}ih{h}iw{w}oc{self.outputs}oh{self.output[0]}ow{self.output[1]}"
                + "".join(f"{key}h{pair[0]}{key}w{pair[1]}" for key, pair in pairs))


def fully_connected(x: tuple[int, ...], outputs: int) -> Convolution:
    """On x of (..., inputs): the first dimension is the batch, those between are pixels."""
    images, pixels = (x[0] if len(x) > 1 else 1), math.prod(x[1:-1])
    one = (1, 1)
    return Convolution((images, x[-1], pixels, 1), outputs, (pixels, 1), one, one, (0, 0), one, 1)


def listed(layers: list[Convolution], left_out: list[str], name: str) -> str:
    """The list: a line for each distinct layer, in the order of the network."""
    counts = Counter(layers)
    name = re.sub(r'[\s"]+', "_", name)  # which would end the quoted name of a line, or the line
    lines = [f"# {name}: {len(layers)} convolutions, {len(counts)} distinct"]
    lines += ["# left out: " + " ".join(reason.split()) for reason in left_out]
    lines += [f'{layer.descriptor()}n"{name}:{i}*{count}"' for i, (layer, count) in enumerate(counts.items(), 1)]
    return "\n".join(lines) + "\n"


def same_padding(size: tuple[int, int], output: tuple[int, int], window: tuple[int, int], stride: tuple[int, int],
                 dilation: tuple[int, int], more_first: bool = False) -> tuple[int, int]:
    """Padding above and left where the output's size implies the total: the smaller half, or the larger one."""
    total = [max(0, (o - 1) * s + d * (k - 1) + 1 - i) for i, o, k, s, d in zip(size, output, window, stride, dilation)]
    return tuple((each + 1) // 2 if more_first else each // 2 for each in total)


# --- PyTorch -----------------------------------------------------------------------------------------------------------


def of_torch(model, *inputs, name: str = "", linear: bool = False) -> str:
    """The list of a PyTorch model, from one run on these inputs (on the device `meta` nothing is computed).

    With `linear` it has the fully connected layers too.
    The run is one of evaluation, without gradients: running means of BatchNorm stay as they are.
    """
    import torch

    layers, left_out = [], []

    def hook(module, arguments, keywords, result) -> None:
        x = tuple(next(iter(arguments or keywords.values())).shape)
        if "Linear" in _bases(module):
            layers.append(fully_connected(x, module.weight.shape[0]))
            return
        if _bases(module).isdisjoint(("Conv1d", "Conv2d")):
            left_out.append(f"{type(module).__name__} {tuple(module.weight.shape)}")
            return
        y = tuple(result.shape)
        window, stride, dilation = tuple(module.weight.shape[2:]), tuple(module.stride), tuple(module.dilation)
        padding = (0, 0) if isinstance(module.padding, str) else tuple(module.padding)
        if "Conv1d" in _bases(module):
            x, y = (*x[:-1], 1, x[-1]), (*y[:-1], 1, y[-1])
            window, stride, dilation, padding = (1, *window), (1, *stride), (1, *dilation), (0, padding[-1])
        # padding="same", or a subclass that pads by itself
        if y[-2:] != _output(x[-2:], padding, window, stride, dilation):
            padding = same_padding(x[-2:], y[-2:], window, stride, dilation)
        layers.append(Convolution(x if len(x) == 4 else (1, *x), y[-3], y[-2:], window, stride, padding, dilation,
                                  module.groups))

    hooks = [module.register_forward_hook(hook, with_kwargs=True) for module in model.modules()
             if _is_convolution(module) or (linear and "Linear" in _bases(module))]
    training = [module for module in model.modules() if module.training]
    try:
        for module in training:
            module.training = False
        with torch.no_grad():
            model(*inputs)
    finally:
        for module in training:
            module.training = True
        for each in hooks:
            each.remove()
    return listed(layers, left_out, name or type(model).__name__)


def _output(size, padding, window, stride, dilation) -> tuple[int, int]:
    return tuple((i + 2 * p - d * (k - 1) - 1) // s + 1 for i, p, k, s, d in zip(size, padding, window, stride, dilation))


def _bases(module) -> set[str]:
    return {base.__name__ for base in type(module).__mro__}


def _is_convolution(module) -> bool:
    kinds = ("Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d")
    return not _bases(module).isdisjoint(kinds)


# --- ONNX --------------------------------------------------------------------------------------------------------------


class UnknownShape(Exception):
    """A tensor whose size the model leaves open."""


class NotExpressible(Exception):
    """A convolution of another number of dimensions, or one that no device can run."""


def of_onnx(path: Path, input_shape: tuple[int, ...] | None = None, name: str = "", linear: bool = False) -> str:
    """The list of an ONNX model. Sizes are inferred from the model's inputs; `input_shape` replaces the first one's. With
    `linear` it has the fully connected layers too: Gemm, and MatMul whose second factor is of the model."""
    import onnx
    import onnx.inliner

    try:
        model = onnx.load(str(path), load_external_data=False)
    except OSError:
        raise
    except Exception as error:  # protobuf's, whose module differs from version to version
        raise ValueError(f"{path} is no ONNX model: {error}") from error
    if model.functions:
        model = onnx.inliner.inline_local_functions(model)
    if input_shape is not None:
        _resize(model.graph, input_shape)
    try:
        graph = onnx.shape_inference.infer_shapes(model, data_prop=True).graph
    except Exception as error:
        raise ValueError(f"{path}: ONNX can't infer its sizes: {error}") from error
    shapes = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
    for value in (*graph.input, *graph.value_info, *graph.output):
        if value.type.tensor_type.HasField("shape"):
            shapes[value.name] = tuple(d.dim_value for d in value.type.tensor_type.shape.dim)
    layers, left_out, unknown = [], [], []
    constants = _constants(graph)
    for node in graph.node:
        if linear and _is_linear(node, constants):
            try:
                layers.append(_onnx_linear(node, shapes))
            except UnknownShape as error:
                unknown.append(error)
            except NotExpressible as error:
                left_out.append(str(error))
        elif node.op_type == "Conv" and node.domain in ("", "ai.onnx"):
            try:
                layers.append(_onnx_convolution(node, shapes))
            except UnknownShape as error:
                unknown.append(error)
            except NotExpressible as error:
                left_out.append(str(error))
        elif "Conv" in node.op_type:  # transposed, quantised, fused by a runtime, deformable
            left_out.append(f"{node.op_type} {node.name}")
        elif any(_has_convolutions(attribute.g) for attribute in node.attribute):
            left_out.append(f"the convolutions inside {node.op_type} {node.name}")
    if unknown and not layers:
        raise unknown[0]
    if not layers and not left_out:
        others = any(_is_linear(node, constants) for node in graph.node)
        raise ValueError(f"{path} has no convolution" + ("; --linear lists its fully connected layers" if others else ""))
    return listed(layers, left_out + [str(error) for error in unknown], name or Path(path).stem)


def _has_convolutions(graph) -> bool:
    """Of a branch of If or a body of Loop, with the graphs in it; other attributes have an empty graph."""
    return any("Conv" in node.op_type or any(_has_convolutions(attribute.g) for attribute in node.attribute)
               for node in graph.node)


def _constants(graph) -> set[str]:
    """Tensors that are of the model itself: weights, as they are stored or in another order."""
    constants = {tensor.name for tensor in graph.initializer}
    for node in graph.node:  # in the order of the computation
        moved = node.op_type in ("Identity", "Transpose") and not constants.isdisjoint(node.input)
        if node.domain in ("", "ai.onnx") and (node.op_type == "Constant" or moved):
            constants.update(node.output)
    return constants


def _is_linear(node, constants: set[str]) -> bool:
    return (node.op_type in ("Gemm", "MatMul") and node.domain in ("", "ai.onnx") and len(node.input) > 1
            and node.input[1] in constants)


def _onnx_linear(node, shapes: dict[str, tuple[int, ...]]) -> Convolution:
    x, y, weights = (_known(shapes, tensor, node) for tensor in (node.input[0], node.output[0], node.input[1]))
    transposed = any(a.name == "transA" and a.i for a in node.attribute)
    if len(weights) != 2 or transposed or y[:-1] != x[:-1]:
        raise NotExpressible(f"{node.op_type} {node.name or node.output[0]}: more than rows of x times one matrix")
    return fully_connected(x, y[-1])


def _resize(graph, shape: tuple[int, ...]) -> None:
    """Sets the size of the first input that is no weight. Sizes that were inferred from the old one are dropped."""
    weights = {tensor.name for tensor in graph.initializer}
    value = next((value for value in graph.input if value.name not in weights), None)
    if value is None:
        raise ValueError("--input: the model has no input")
    dims = value.type.tensor_type.shape.dim
    if len(dims) != len(shape):
        raise ValueError(f"--input has {len(shape)} dimensions; the model's input has {len(dims)}")
    for dim, size in zip(dims, shape):
        dim.dim_value = size
    del graph.value_info[:]
    for value in graph.output:
        value.type.tensor_type.ClearField("shape")


def _known(shapes: dict[str, tuple[int, ...]], tensor: str, node) -> tuple[int, ...]:
    shape = shapes.get(tensor, ())
    if not shape or min(shape) < 1:
        raise UnknownShape(f"{node.op_type} {node.name or node.output[0]}: the size of {tensor} is not known; the model's input may "
                           "need another size, as by --input 1x3x224x224")
    return shape


def _onnx_convolution(node, shapes: dict[str, tuple[int, ...]]) -> Convolution:
    import onnx

    attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    if len(node.input) < 2 or not node.output:
        raise NotExpressible(f"Conv {node.name or '?'}: it has no weights or no output")
    x, y, weights = (_known(shapes, tensor, node) for tensor in (node.input[0], node.output[0], node.input[1]))
    if len(x) not in (3, 4):
        raise NotExpressible(f"Conv {node.name or node.output[0]}: its input has {len(x)} dimensions")
    groups = attributes.get("group", 1)
    if weights[1] * groups != x[1]:
        raise NotExpressible(f"Conv {node.name or node.output[0]}: its weights take {weights[1]} channels in each of "
                             f"{groups} groups; its input has {x[1]}")
    if groups < 1 or weights[0] % groups:
        raise NotExpressible(f"Conv {node.name or node.output[0]}: its {weights[0]} output channels do not divide into "
                             f"{groups} groups")
    axes = len(x) - 2
    window = weights[2:]
    stride, dilation = (tuple(attributes.get(key, (1,) * axes)) for key in ("strides", "dilations"))
    automatic = attributes.get("auto_pad", b"NOTSET").decode()
    padding = tuple(attributes.get("pads", (0,) * axes))[:axes]
    if axes == 1:
        x, y = (*x[:2], 1, x[2]), (*y[:2], 1, y[2])
        window, stride, dilation, padding = (1, *window), (1, *stride), (1, *dilation), (0, *padding)
    if automatic.startswith("SAME"):
        padding = same_padding(x[2:], y[2:], window, stride, dilation, more_first=automatic == "SAME_LOWER")
    return Convolution(x, weights[0], y[2:], window, stride, padding, dilation, groups)


def _sizes(text: str) -> tuple[int, ...]:
    sizes = text.split("x")
    if not all(each.isascii() and each.isdigit() and int(each) > 0 for each in sizes):
        raise ValueError(f"--input is '{text}'; it must be sizes as in 1x3x224x224")
    return tuple(map(int, sizes))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python3 -m gable.layers", description="The convolutions of an ONNX model, "
                                     "as a list for gable bench --file. For PyTorch: help(gable.layers).")
    parser.add_argument("model", type=Path, help="a file .onnx")
    parser.add_argument("--input", help="size of the model's input, such as 1x3x224x224")
    parser.add_argument("--linear", action="store_true", help="fully connected layers too, as 1x1 convolutions")
    parser.add_argument("--name", default="", help="the list's name (the file's)")
    arguments = parser.parse_args()
    try:
        size = _sizes(arguments.input) if arguments.input else None
        text = of_onnx(arguments.model, size, arguments.name, arguments.linear)
    except ImportError:
        print("gable.layers: reading ONNX needs the Python package onnx: pip install onnx", file=sys.stderr)
        return 3
    except (OSError, ValueError, UnknownShape) as error:
        print(f"gable.layers: {error}", file=sys.stderr)
        return 2
    for line in text.splitlines():
        if line.startswith("# left out"):
            print("gable.layers: " + line[2:], file=sys.stderr)
    if sys.stdout is None:
        print("gable.layers: standard output is closed", file=sys.stderr)
        return 4
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is left has nowhere to go at the exit
        if isinstance(error, BrokenPipeError):
            return 141  # as a process that SIGPIPE ended: whoever read the list has seen enough
        print(f"gable.layers: standard output: {error.strerror}", file=sys.stderr)
        return 4
    return 0


if __name__ == "__main__":
    sys.exit(main())
