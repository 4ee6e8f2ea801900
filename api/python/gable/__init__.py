"""gable for NumPy: layers of a network on gable's C API (gable/c.h), with nothing but NumPy and the standard library.

    import gable

    conv = gable.Conv2d(weights, bias, padding=1, activation="relu")  # weights (K, C/groups, R, S), packed once
    y = conv(x)                                                        # any batch and image size, from any thread

Arrays are float32, float16, or bfloat16: uint16 with the bits of bfloat16 (to_bf16(), from_bf16()), or ml_dtypes'
bfloat16. Bias is float32, or 16 bits that become it. Layout "nchw" takes x as (N, C, H, W), "nhwc" as (N, H, W, C);
weights are the same for both.
Every failure is a gable.Error; its `code` is the name of the status in gable/c.h, in lower case.
Layers can be copied and pickled, so other processes can take them; there they plan and pack again.

libgable is looked for in $GABLE_LIBRARY, then in the installed tree or the build that this file is a part of, then where
the system's loader looks.
"""

from __future__ import annotations

import ctypes
import functools
import math
import os
import threading
from collections import OrderedDict
from numbers import Integral, Real
from pathlib import Path
from typing import NamedTuple

import numpy as np
from gable._c import (ACTIVATIONS, FUNCTIONS, INTERPOLATIONS, LAYOUTS, MATHS, CActivate, CAdd, CConcat, CConv2d, CDeviceInfo,
                      CMatmul, CMaxPool, CMultiply, CSoftmax, CUpsample)

# open() is left out: "from gable import *" would hide the built-in.
__all__ = ["Choice", "Conv2d", "Device", "DeviceInfo", "Error", "Linear", "activate", "add", "avg_pool2d", "concat",
           "devices", "from_bf16", "max_pool2d", "multiply", "softmax", "to_bf16", "upsample2d", "version"]

VERSION = "0.1"  # the minor version whose C API this is
CODES = ("", "invalid_argument", "unsupported", "unavailable", "device_failure", "out_of_memory")
NOT_MONOTONE = ("silu", "hard_swish", "gelu")  # functions that fall somewhere, so that pooling before them is another result
MAX_PLANS = 64  # that a thread keeps for one layer, or for one device's pools and adds: those used last


class Error(Exception):
    """A failure, with the message of gable::Error, and its code: invalid_argument, unsupported, unavailable, ..."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code

    def __reduce__(self) -> tuple:
        return Error, (self.code, str(self))  # multiprocessing hands failures over by pickle


def _wrong(message: str) -> Error:
    return Error("invalid_argument", message)


# --- The C API ---------------------------------------------------------------------------------------------------------

_pointer = ctypes.c_void_p
_SIGNATURES = {
    "gable_open": [ctypes.c_char_p, _pointer],
    "gable_list_devices": [_pointer],
    "gable_plan_conv2d": [_pointer, _pointer, _pointer],
    "gable_plan_matmul": [_pointer, _pointer, _pointer],
    "gable_plan_max_pool": [_pointer, _pointer, _pointer],
    "gable_plan_add": [_pointer, _pointer, _pointer],
    "gable_plan_activate": [_pointer, _pointer, _pointer],
    "gable_plan_concat": [_pointer, _pointer, _pointer],
    "gable_plan_upsample": [_pointer, _pointer, _pointer],
    "gable_plan_multiply": [_pointer, _pointer, _pointer],
    "gable_plan_softmax": [_pointer, _pointer, _pointer],
    "gable_plan_output_shape": [_pointer, _pointer],
    "gable_plan_explain": [_pointer, _pointer, ctypes.c_size_t, _pointer],
    "gable_plan_kernel": [_pointer, _pointer, ctypes.c_size_t, _pointer],
    "gable_plan_device": [_pointer, _pointer, ctypes.c_size_t, _pointer],
    "gable_plan_threads": [_pointer, _pointer],
    "gable_plan_on_host": [_pointer, _pointer],
    "gable_plan_packing": [_pointer, _pointer],
    "gable_pack": [_pointer, _pointer, _pointer],
    "gable_run": [_pointer] * 6,
    "gable_run_max_pool": [_pointer] * 4,
    "gable_run_add": [_pointer] * 5,
    "gable_run_activate": [_pointer] * 4,
    "gable_run_concat": [_pointer] * 5,
    "gable_run_upsample": [_pointer] * 4,
    "gable_run_multiply": [_pointer] * 5,
    "gable_run_softmax": [_pointer] * 4,
}
_RELEASES = ("gable_close", "gable_plan_release", "gable_packed_release", "gable_device_list_release")


def _candidates() -> list[str]:
    """Where libgable may lie: beside this file in an installed tree or a build, then where the loader looks."""
    named = os.environ.get("GABLE_LIBRARY")
    if named:
        return [named]
    found = []
    for folder in Path(__file__).resolve().parents:
        for place in ("lib*", "lib/*", "build/release/lib"):
            found += sorted(map(str, folder.glob(f"{place}/libgable.so.{VERSION}")))
    return [*found[:1], f"libgable.so.{VERSION}"]


def _load() -> ctypes.CDLL:
    failures = []
    for candidate in _candidates():
        try:
            api = ctypes.CDLL(candidate)
        except OSError as error:
            failures.append(str(error))
            continue
        wanted = ("gable_version", "gable_last_error", "gable_device_list_at", *_SIGNATURES, *_RELEASES)
        missing = [name for name in wanted if not hasattr(api, name)]
        if missing:
            raise Error("unavailable", f"{candidate} is no libgable of {VERSION}: it has no {missing[0]}()")
        api.gable_version.restype = api.gable_last_error.restype = ctypes.c_char_p
        loaded = api.gable_version().decode()
        if not loaded.startswith(VERSION + "."):
            raise Error("unavailable", f"{candidate} is gable {loaded}; this module is of {VERSION}")
        api.gable_device_list_at.argtypes = [_pointer, ctypes.c_size_t]
        api.gable_device_list_at.restype = ctypes.POINTER(CDeviceInfo)
        for name, arguments in _SIGNATURES.items():
            getattr(api, name).argtypes = arguments
        for name in _RELEASES:
            getattr(api, name).argtypes, getattr(api, name).restype = [_pointer], None
        return api
    raise Error("unavailable", "libgable can't be loaded: name it by GABLE_LIBRARY. " + "; ".join(failures))


@functools.cache
def _library() -> ctypes.CDLL:
    """Loaded at the first use, so that gable.layers needs none."""
    return _load()


def version() -> str:
    """libgable's version."""
    return _library().gable_version().decode()


def _call(name: str, *arguments: object) -> None:
    status = getattr(_library(), name)(*arguments)
    if status != 0:
        message = _library().gable_last_error().decode(errors="replace")
        raise Error(CODES[status] if status < len(CODES) else str(status), message)


class _Handle:
    """Owns what a function of the C API made, and releases it once."""

    def __init__(self, release: str, make: str, *arguments: object) -> None:
        self._release = getattr(_library(), release)
        self.pointer = _pointer()
        _call(make, *arguments, ctypes.byref(self.pointer))

    def __del__(self) -> None:
        if self.__dict__.get("pointer"):
            self._release(self.pointer)


def _data(array: np.ndarray | None) -> _pointer:
    return _pointer(None if array is None else array.ctypes.data)


# --- Arguments ---------------------------------------------------------------------------------------------------------


def _index(value: str, names: tuple[str, ...], what: str) -> int:
    if not isinstance(value, str) or value not in names:
        raise _wrong(f"{what} is {value!r}; it must be one of {', '.join(names)}")
    return names.index(value)


def _slope(slope: float | None, function: str | None, what: str) -> float:
    """Of leaky_relu, PyTorch's where none is given."""
    if slope is None:
        return 0.01
    if function != "leaky_relu":
        raise _wrong(f"slope is {slope!r}, and {what} is {function!r}: leaky_relu alone has a slope")
    try:
        value = ctypes.c_float(float(slope)).value if isinstance(slope, Real) else math.nan
    except OverflowError:  # a whole number beyond float64
        value = math.inf
    if not math.isfinite(value) or value == 0:
        raise _wrong(f"slope is {slope!r}; it must be a finite number of float32 other than 0, such as 0.01")
    return value


def _activations(activation: str | None, slope: float | None, is_pooled: bool = False) -> tuple[int, CActivate | None]:
    """The activation that a layer's kernels compute, by its number, and the function of a pass of its own behind them."""
    name = "none" if activation is None else activation
    _index(name, (*ACTIVATIONS, *(function for function in FUNCTIONS if function not in ACTIVATIONS)), "activation")
    factor = _slope(slope, activation, "activation")
    if name in ACTIVATIONS:
        return ACTIVATIONS.index(name), None
    if is_pooled and (name in NOT_MONOTONE or (name == "leaky_relu" and factor < 0)):
        raise _wrong(f"activation is {name!r}, whose maximum is not that of its argument: leave max_pool out, and take "
                     "max_pool2d() afterwards")
    return 0, CActivate(function=FUNCTIONS.index(name), slope=factor)


def _is_int64(value: object) -> bool:
    return isinstance(value, Integral) and -(2**63) <= value < 2**63


def _integers(value: object, what: str, form: str, lengths: tuple[int, ...]) -> tuple[int, ...]:
    """A number counts for height and width; ctypes would cut one that is too large."""
    values = (value, value) if isinstance(value, Integral) else value
    if not isinstance(values, (tuple, list)) or len(values) not in lengths or not all(map(_is_int64, values)):
        raise _wrong(f"{what} is {value!r}; it must be {form}")
    return tuple(map(int, values))


def _sizes(shape: object) -> tuple[int, ...]:
    if isinstance(shape, np.ndarray):
        shape = shape.tolist()
    if not isinstance(shape, (tuple, list)) or not all(map(_is_int64, shape)):
        raise _wrong(f"shape is {shape!r}; it must be whole numbers as in (1, 3, 224, 224)")
    return tuple(map(int, shape))


def _pair(value: int | tuple[int, int], what: str) -> tuple[int, int]:
    return _integers(value, what, "a number or a pair (height, width)", (2,))


def _padding(value: int | tuple[int, ...]) -> tuple[int, int, int, int]:
    """As gable has it: top, left, bottom, right."""
    form = "a number, a pair (height, width) or (top, left, bottom, right)"
    padding = _integers(value, "padding", form, (2, 4))
    return padding if len(padding) == 4 else padding * 2


def _dtype(array: np.ndarray, what: str) -> int:
    name = array.dtype.name
    known = {"float32": 0, "float16": 1, "uint16": 2, "bfloat16": 2}
    if name not in known:
        raise _wrong(f"{what} is an array of {name}; gable takes float32, float16 and bfloat16 (to_bf16()): "
                     f"{what}.astype('float32')")
    if not array.dtype.isnative:
        raise _wrong(f"{what} has the byte order of another machine: {what}.astype('{name}')")
    return known[name]


def _bias(bias: np.ndarray) -> np.ndarray:
    """Of 16 bits, as a model in half precision has it, it becomes float32 exactly; anything else stays as it is."""
    if bias.dtype.name == "float16":
        return bias.astype(np.float32)
    return from_bf16(bias) if bias.dtype.name in ("uint16", "bfloat16") else bias


def _plain(array: np.ndarray) -> np.ndarray:
    """Contiguous in C's order and aligned, as kernels read it."""
    return np.require(array, requirements=["C", "A"])


def _rank(array: np.ndarray, rank: int, what: str) -> np.ndarray:
    array = _plain(array)
    if array.ndim != rank:
        raise _wrong(f"{what} has the shape {array.shape}; it must have {rank} dimensions")
    return array


def _nchw(shape: tuple[int, ...], layout: int) -> tuple[int, ...]:
    """The shape as gable describes it, of an array in this layout."""
    return tuple(shape) if layout == 0 else (shape[0], shape[3], shape[1], shape[2])


def _in_layout(shape: tuple[int, ...], layout: int) -> tuple[int, ...]:
    return tuple(shape) if layout == 0 else (shape[0], shape[2], shape[3], shape[1])


def _result(out: np.ndarray | None, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    if out is None:
        return np.empty(shape, dtype)
    if not isinstance(out, np.ndarray):
        raise _wrong(f"out is a {type(out).__name__}; it must be an array")
    if out.shape != shape or out.dtype != dtype or not out.flags.carray:
        raise _wrong(f"out is {out.shape} of {out.dtype}; it must be {shape} of {dtype}, writeable, aligned and "
                     "C-contiguous")
    return out


def to_bf16(array: np.ndarray) -> np.ndarray:
    """float32 as bits of bfloat16 in uint16, rounded to nearest even; a NaN stays one."""
    array = np.ascontiguousarray(array, np.float32)
    bits = array.view(np.uint32)
    rounded = (bits + (0x7FFF + ((bits >> 16) & 1))).astype(np.uint32) >> 16
    return np.where(np.isnan(array), (bits >> 16) | 0x40, rounded).astype(np.uint16)


def from_bf16(array: np.ndarray) -> np.ndarray:
    """Bits of bfloat16 as float32, exactly."""
    array = np.ascontiguousarray(array)
    if array.dtype.name not in ("uint16", "bfloat16"):
        raise _wrong(f"from_bf16() takes uint16 or bfloat16, not {array.dtype}")
    bits = array.astype(np.uint16) if array.dtype.name == "uint16" else array.view(np.uint16)  # in this byte order
    return (bits.astype(np.uint32) << 16).view(np.float32)


# --- Devices and plans -------------------------------------------------------------------------------------------------


class DeviceInfo(NamedTuple):
    """A device of this machine, or one that a plugin looked for in vain."""

    uri: str  # what open() takes
    backend: str  # "cpu", "onednn", "cuda", ...
    name: str  # the hardware and what drives it
    reason: str | None  # why it can't be opened; None if it can
    on_host: bool  # False: tensors lie in a GPU's memory; for NumPy open("auto?only=cuda&memory=host"), which copies


def devices() -> list[DeviceInfo]:
    """Every device of every backend, best first, as they are now."""
    found, handle = [], _Handle("gable_device_list_release", "gable_list_devices")
    while info := _library().gable_device_list_at(handle.pointer, len(found)):
        of = info.contents
        uri, backend, name = (text.decode(errors="replace") for text in (of.uri, of.backend, of.name))
        reason = None if of.reason is None else of.reason.decode(errors="replace")
        found.append(DeviceInfo(uri, backend, name, reason, bool(of.on_host)))
    return found


class Choice(NamedTuple):
    """What runs a layer on inputs of one shape."""

    device: str  # its URI with options: "cpu" where auto chose the CPU
    kernel: str
    threads: int  # of the CPU: may be fewer than the device has; 0 on a GPU


class _Plan(_Handle):
    """A plan of one thread, and the shape of its output."""

    def __init__(self, device: Device, make: str, description: ctypes.Structure) -> None:
        super().__init__("gable_plan_release", make, device._handle.pointer, ctypes.byref(description))
        on_host, shape = ctypes.c_int(), (ctypes.c_int64 * 4)()
        _call("gable_plan_on_host", self.pointer, ctypes.byref(on_host))
        if not on_host.value:
            raise Error("unsupported", f"device '{device.uri}' computes in a GPU's memory, and NumPy's arrays lie on the "
                        "host: open('auto?memory=host'), which copies, or open('auto?only=cuda&memory=host')")
        _call("gable_plan_output_shape", self.pointer, shape)
        self.output_shape = tuple(shape)

    def text(self, name: str) -> str:
        """What a function of the C API says about the plan: gable_plan_explain, gable_plan_kernel, gable_plan_device."""
        needed = ctypes.c_size_t()
        _call(name, self.pointer, None, 0, ctypes.byref(needed))
        text = ctypes.create_string_buffer(needed.value)
        _call(name, self.pointer, text, needed.value, None)
        return text.value.decode()

    def threads(self) -> int:
        threads = ctypes.c_int()
        _call("gable_plan_threads", self.pointer, ctypes.byref(threads))
        return threads.value


class _Plans(threading.local):
    """Plans by what they were made for: a set for each thread, since a plan runs in one thread at a time."""

    def __init__(self) -> None:
        self.plans: OrderedDict[tuple, _Plan] = OrderedDict()

    def __reduce__(self) -> tuple:
        return _Plans, ()  # plans are made again

    def get(self, key: tuple, make) -> _Plan:
        if key not in self.plans:
            self.plans[key] = make()
            if len(self.plans) > MAX_PLANS:
                self.plans.popitem(last=False)
        self.plans.move_to_end(key)
        return self.plans[key]


class Device:
    """A device of gable, such as "auto?memory=host", "cpu:avx2?threads=2" or "onednn". Threads may share it."""

    def __init__(self, uri: str = "auto?memory=host") -> None:
        if not isinstance(uri, str) or "\0" in uri:
            raise _wrong(f"device is {uri!r}; it must be text like 'cpu?threads=2', or what gable.open() gave")
        self.uri = uri
        self._handle = _Handle("gable_close", "gable_open", uri.encode(errors="backslashreplace"))
        self._plans = _Plans()

    def __reduce__(self) -> tuple:
        return _device, (self.uri,)


open = Device  # noqa: A001  gable.open(), as in C++

_opened: dict[str, Device] = {}
_opened_lock = threading.Lock()


def _device(device: Device | str | None) -> Device:
    """A device by its URI is opened once; None is auto with tensors on the host."""
    if isinstance(device, Device):
        return device
    uri = "auto?memory=host" if device is None else device
    if not isinstance(uri, str):
        return Device(uri)  # which says what is wrong
    with _opened_lock:
        if uri not in _opened:
            _opened[uri] = Device(uri)
        return _opened[uri]


class _Packed:
    """Weights in the orders that plans asked for, by the plans' packing keys. Threads share them."""

    def __init__(self, weights: np.ndarray) -> None:
        self.weights = weights
        self._packed: dict[int, _Handle] = {}
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple:
        return _Packed, (self.weights,)

    def of(self, plan: _Plan) -> _Handle:
        key = ctypes.c_uint64()
        _call("gable_plan_packing", plan.pointer, ctypes.byref(key))
        with self._lock:
            if key.value not in self._packed:
                self._packed[key.value] = _Handle("gable_packed_release", "gable_pack", plan.pointer, _data(self.weights))
            return self._packed[key.value]


class _Layer:
    """What Conv2d and Linear share: weights, bias, and a plan for each input's shape and thread."""

    def __init__(self, weights: np.ndarray, bias: np.ndarray | None, outputs: int, device: Device | str | None,
                 function: CActivate | None) -> None:
        self.device = _device(device)
        self._function = None if function is None else bytes(function)  # in a pass behind the plan's
        self._dtype = _dtype(weights, "weights")
        self._numpy_dtype = weights.dtype
        self._packed = _Packed(weights)
        self._bias = None if bias is None else _bias(_plain(bias))
        self._plans = _Plans()
        if self._bias is not None and (self._bias.dtype != np.float32 or self._bias.shape != (outputs,)):
            raise _wrong(f"bias is {self._bias.shape} of {self._bias.dtype}; it must be ({outputs},) of float32")
        self._function_plan((1, 1, 1, 1))  # a device without the function refuses the layer, not its first input

    def _function_plan(self, shape: tuple[int, ...]) -> _Plan | None:
        if self._function is None:
            return None
        description = CActivate.from_buffer_copy(self._function)
        description.dtype, description.shape[:] = self._dtype, shape
        try:
            return _Plan(self.device, "gable_plan_activate", description)
        except Error as error:
            name = FUNCTIONS[description.function]
            raise Error(error.code, f"activation is {name!r}, which device {self.device.uri!r} can't run behind "
                        f"the layer: {error}") from error

    def _plan(self, shape: tuple[int, ...]) -> tuple[_Plan, _Handle]:
        def make() -> _Plan:
            plan = _Plan(self.device, self._make, self._description(shape))
            plan.function = self._function_plan(plan.output_shape)
            plan.packed = self._packed.of(plan)
            return plan

        plan = self._plans.get(tuple(shape), make)
        return plan, plan.packed

    def explain(self, shape: tuple[int, ...]) -> str:
        """Which device and kernel run inputs of this shape, and why."""
        return self._plan(_sizes(shape))[0].text("gable_plan_explain")

    def choice(self, shape: tuple[int, ...]) -> Choice:
        """The device, kernel and threads that run inputs of this shape."""
        plan = self._plan(_sizes(shape))[0]
        return Choice(plan.text("gable_plan_device"), plan.text("gable_plan_kernel"), plan.threads())

    def _run(self, x: np.ndarray, shape: tuple[int, ...], out: np.ndarray | None) -> np.ndarray:
        if x.dtype != self._numpy_dtype:
            raise _wrong(f"x is an array of {x.dtype}, and the weights are of {self._numpy_dtype}: convert one of them")
        plan, packed = self._plan(shape)
        y = _result(out, self._output_shape(plan), x.dtype)
        _call("gable_run", plan.pointer, _data(x), packed.pointer, _data(self._bias), _data(y), None)
        if plan.function is not None:
            _call("gable_run_activate", plan.function.pointer, _data(y), _data(y), None)
        return y


class Conv2d(_Layer):
    """A convolution as torch.nn.Conv2d computes it: max_pool(activation(conv(x) + bias)).

    weights: (K, C/groups, R, S), in PyTorch's order. bias: (K,). stride, dilation: a number or (height, width). padding: the
    same, or (top, left, bottom, right). activation: None, "relu" or "tanh", which kernels compute, or another of activate()'s
    in a pass behind them, which the device must have, too. slope: of "leaky_relu". max_pool: a fused pool's window; its stride
    is pool_stride, or the window. layout: "nchw" or "nhwc", of x and y. math: "strict", "tf32", "split3" or "split6", how
    products of float32 are formed (gable/dtype.h). device: a Device or its URI; None is "auto?memory=host".
    The layer keeps both arrays and packs the weights again where another kernel needs another order: do not change them.
    """

    _make = "gable_plan_conv2d"

    def __init__(self, weights, bias=None, *, stride=1, padding=0, dilation=1, groups=1, activation=None, slope=None,
                 max_pool=None, pool_stride=None, layout="nchw", math="strict", device=None) -> None:
        weights = _rank(weights, 4, "weights")
        if not _is_int64(groups):
            raise _wrong(f"groups is {groups!r}; it must be a number")
        fused, function = _activations(activation, slope, max_pool is not None)
        super().__init__(weights, bias, weights.shape[0], device, function)
        self._layout = _index(layout, LAYOUTS, "layout")
        conv = CConv2d(groups=groups, layout=self._layout, bias=int(bias is not None), dtype=self._dtype,
                        math=_index(math, MATHS, "math"), activation=fused)
        conv.weights[:] = weights.shape
        conv.stride[:] = _pair(stride, "stride")
        conv.padding[:] = _padding(padding)
        conv.dilation[:] = _pair(dilation, "dilation")
        if max_pool is None and pool_stride is not None:
            raise _wrong(f"pool_stride is {pool_stride!r}, and there is no max_pool")
        if max_pool is not None:
            conv.pool_window[:] = _pair(max_pool, "max_pool")
            if min(conv.pool_window) < 1:
                raise _wrong(f"max_pool is {max_pool!r}; it must be at least 1, or None for no pool")
            conv.pool_stride[:] = _pair(max_pool if pool_stride is None else pool_stride, "pool_stride")
        self._conv = conv

    def _description(self, shape: tuple[int, ...]) -> CConv2d:
        if len(shape) != 4:
            raise _wrong(f"x has the shape {tuple(shape)}; it must have 4 dimensions")
        conv = CConv2d.from_buffer_copy(self._conv)
        conv.input[:] = _nchw(shape, self._layout)
        return conv

    def _output_shape(self, plan: _Plan) -> tuple[int, ...]:
        return _in_layout(plan.output_shape, self._layout)

    def __call__(self, x: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        """The result, in a new array or in `out`. The first call with a shape in a thread makes its plan."""
        x = _rank(x, 4, "x")
        return self._run(x, x.shape, out)


class Linear(_Layer):
    """A fully connected layer as torch.nn.Linear computes it: activation(x @ weights.T + bias).

    weights: (outputs, inputs), in PyTorch's order. bias: (outputs,). x: (rows, inputs), or with more dimensions before the
    inputs. activation, slope, math, device and out are as Conv2d has them.
    """

    _make = "gable_plan_matmul"

    def __init__(self, weights, bias=None, *, activation=None, slope=None, math="strict", device=None) -> None:
        weights = _rank(weights, 2, "weights")
        fused, function = _activations(activation, slope)
        super().__init__(np.ascontiguousarray(weights.T), bias, weights.shape[0], device, function)
        self._matmul = CMatmul(n=weights.shape[0], k=weights.shape[1], bias=int(bias is not None), dtype=self._dtype,
                                math=_index(math, MATHS, "math"), activation=fused)

    def _rows(self, shape: tuple[int, ...]) -> int:
        if len(shape) < 2 or shape[-1] != self._matmul.k:
            raise _wrong(f"x has the shape {tuple(shape)}; it must be (rows, {self._matmul.k}), or have more dimensions "
                         "in place of the rows")
        return math.prod(shape[:-1])

    def _description(self, shape: tuple[int, ...]) -> CMatmul:
        matmul = CMatmul.from_buffer_copy(self._matmul)
        matmul.m = self._rows(shape)
        return matmul

    def _output_shape(self, plan: _Plan) -> tuple[int, ...]:
        return plan.output_shape[:2]

    def __call__(self, x: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        x = _plain(x)
        rows = self._rows(x.shape)
        y = _result(out, (*x.shape[:-1], self._matmul.n), x.dtype)
        self._run(x.reshape(rows, self._matmul.k), (rows, self._matmul.k), y.reshape(rows, self._matmul.n))
        return y


def max_pool2d(x, window, stride=None, padding=0, *, layout="nchw", device=None, out=None) -> np.ndarray:
    """The maximum over each window of x, (N, C, H, W) or (N, H, W, C); stride is the window if it is not given, as in PyTorch.

    Padding counts as minus infinity; incomplete windows are dropped."""
    device, x, order = _device(device), _rank(x, 4, "x"), _index(layout, LAYOUTS, "layout")
    pool = CMaxPool(dtype=_dtype(x, "x"), layout=order)
    pool.input[:] = _nchw(x.shape, order)
    pool.window[:] = _pair(window, "window")
    pool.stride[:] = _pair(window if stride is None else stride, "stride")
    pool.padding[:] = _padding(padding)
    plan = device._plans.get(("max_pool", bytes(pool)), lambda: _Plan(device, "gable_plan_max_pool", pool))
    y = _result(out, _in_layout(plan.output_shape, order), x.dtype)
    _call("gable_run_max_pool", plan.pointer, _data(x), _data(y), None)
    return y


def avg_pool2d(x, window, stride=None, padding=0, *, layout="nchw", device=None, out=None) -> np.ndarray:
    """The mean over each window, as torch.nn.functional.avg_pool2d computes it: padding counts as zeros. It is a depthwise
    convolution, whose weights are one over the window's size in x's dtype."""
    device, x, order = _device(device), _rank(x, 4, "x"), _index(layout, LAYOUTS, "layout")
    shape, window = _nchw(x.shape, order), _pair(window, "window")
    stride, padding = window if stride is None else _pair(stride, "stride"), _padding(padding)
    if min(*x.shape, *window) < 1:
        raise _wrong(f"x is {x.shape} and the window {window}: they must have elements")
    padded = (shape[2] + padding[0] + padding[2], shape[3] + padding[1] + padding[3])
    if window[0] > padded[0] or window[1] > padded[1]:
        raise _wrong(f"the window {window} does not fit into images of {padded} with their padding")

    def make() -> _Plan:  # and not the layer, which has the device: it would keep itself alive
        weights = np.full((shape[1], 1, *window), 1 / math.prod(window), np.float32)
        weights = to_bf16(weights).view(x.dtype) if _dtype(x, "x") == 2 else weights.astype(x.dtype)
        return Conv2d(weights, stride=stride, padding=padding, groups=shape[1], layout=layout, device=device)._plan(x.shape)[0]

    plan = device._plans.get(("avg_pool", _dtype(x, "x"), shape, window, stride, padding, order), make)
    y = _result(out, _in_layout(plan.output_shape, order), x.dtype)
    _call("gable_run", plan.pointer, _data(x), plan.packed.pointer, None, _data(y), None)
    return y


def _four(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape with four dimensions, for what is computed element by element."""
    return (1,) * (4 - len(shape)) + shape if len(shape) < 5 else (math.prod(shape[:-3]), *shape[-3:])


def add(a, b, *, activation=None, device=None, out=None) -> np.ndarray:
    """activation(a + b), of arrays of one shape of any dimensions; activation is None or "relu". out may be a or b."""
    device, a, b = _device(device), _plain(a), _plain(b)
    if a.shape != b.shape or a.dtype != b.dtype:
        raise _wrong(f"a is {a.shape} of {a.dtype}, b is {b.shape} of {b.dtype}: they must be alike")
    name = "none" if activation is None else activation
    description = CAdd(dtype=_dtype(a, "a"), activation=_index(name, ACTIVATIONS, "activation"))
    description.shape[:] = _four(a.shape)
    plan = device._plans.get(("add", bytes(description)), lambda: _Plan(device, "gable_plan_add", description))
    c = _result(out, a.shape, a.dtype)
    _call("gable_run_add", plan.pointer, _data(a), _data(b), _data(c), None)
    return c


def multiply(a, b, *, layout="nchw", device=None, out=None) -> np.ndarray:
    """a * b, of arrays of one shape of any dimensions; or b has a factor for each channel of each image of a, as (N, C),
    (N, C, 1, 1) or in "nhwc" (N, 1, 1, C): squeeze-and-excitation. out may be a."""
    device, a, b, order = _device(device), _plain(a), _plain(b), _index(layout, LAYOUTS, "layout")
    if a.dtype != b.dtype:
        raise _wrong(f"a is of {a.dtype}, b is of {b.dtype}: they must be alike")
    description = CMultiply(dtype=_dtype(a, "a"), layout=order)
    if a.shape == b.shape:
        description.layout = 0
        description.a[:] = description.b[:] = _four(a.shape)
    else:
        if a.ndim != 4:
            raise _wrong(f"a is {a.shape} and b is {b.shape}: they must have the same shape, or a must have 4 dimensions and "
                         "b a factor for each channel of each image")
        shape = _nchw(a.shape, order)
        channels = (*shape[:2], 1, 1)
        if b.shape not in (channels[:2], _in_layout(channels, order)):
            raise _wrong(f"a is {a.shape} and b is {b.shape}: b must have a's shape, or be {channels[:2]} or "
                         f"{_in_layout(channels, order)}, a factor for each channel of each image")
        description.a[:], description.b[:] = shape, channels
    plan = device._plans.get(("multiply", bytes(description)), lambda: _Plan(device, "gable_plan_multiply", description))
    y = _result(out, a.shape, a.dtype)
    _call("gable_run_multiply", plan.pointer, _data(a), _data(b), _data(y), None)
    return y


def activate(x, function, *, slope=None, device=None, out=None) -> np.ndarray:
    """function(x) of an array of any dimensions: "relu", "relu6", "tanh", "sigmoid", "hard_sigmoid", "silu", "hard_swish",
    "gelu" or "leaky_relu", as PyTorch has them. slope: of leaky_relu, 0.01 if it is not given. out may be x."""
    device, x, number = _device(device), _plain(x), _index(function, FUNCTIONS, "function")
    description = CActivate(dtype=_dtype(x, "x"), function=number, slope=_slope(slope, function, "function"))
    description.shape[:] = _four(x.shape)
    plan = device._plans.get(("activate", bytes(description)), lambda: _Plan(device, "gable_plan_activate", description))
    y = _result(out, x.shape, x.dtype)
    _call("gable_run_activate", plan.pointer, _data(x), _data(y), None)
    return y


def softmax(x, axis=-1, *, device=None, out=None) -> np.ndarray:
    """exp(x) / sum of exp(x) along a dimension of an array of any: the last, or axis=1 for channels of (N, C, H, W). out may
    be x."""
    device, x = _device(device), _plain(x)
    if x.ndim == 0:
        raise _wrong("x has no dimensions; it must have at least one, along which to compute")
    if not _is_int64(axis) or not -x.ndim <= axis < x.ndim:
        raise _wrong(f"axis is {axis!r}; for an array of {x.ndim} dimensions it must lie between {-x.ndim} and {x.ndim - 1}")
    axis %= x.ndim
    description = CSoftmax(dtype=_dtype(x, "x"), axis=2)
    description.shape[:] = 1, math.prod(x.shape[:axis]), x.shape[axis], math.prod(x.shape[axis + 1 :])
    plan = device._plans.get(("softmax", bytes(description)), lambda: _Plan(device, "gable_plan_softmax", description))
    y = _result(out, x.shape, x.dtype)
    _call("gable_run_softmax", plan.pointer, _data(x), _data(y), None)
    return y


def concat(a, b, *, layout="nchw", device=None, out=None) -> np.ndarray:
    """The channels of a, then those of b, which have the same N, H and W."""
    device, a, b, order = _device(device), _rank(a, 4, "a"), _rank(b, 4, "b"), _index(layout, LAYOUTS, "layout")
    if a.dtype != b.dtype:
        raise _wrong(f"a is of {a.dtype}, b is of {b.dtype}: they must be alike")
    description = CConcat(dtype=_dtype(a, "a"), layout=order)
    description.a[:], description.b[:] = _nchw(a.shape, order), _nchw(b.shape, order)
    plan = device._plans.get(("concat", bytes(description)), lambda: _Plan(device, "gable_plan_concat", description))
    y = _result(out, _in_layout(plan.output_shape, order), a.dtype)
    _call("gable_run_concat", plan.pointer, _data(a), _data(b), _data(y), None)
    return y


def upsample2d(x, scale, *, mode="nearest", layout="nchw", device=None, out=None) -> np.ndarray:
    """Images scale times, or (height, width) times, as large. mode: "nearest" repeats pixels; "bilinear" interpolates between
    them, as PyTorch does with align_corners=False, and "bilinear_align_corners" as with True."""
    device, x, order = _device(device), _rank(x, 4, "x"), _index(layout, LAYOUTS, "layout")
    description = CUpsample(dtype=_dtype(x, "x"), layout=order, interpolation=_index(mode, INTERPOLATIONS, "mode"))
    description.input[:], description.scale[:] = _nchw(x.shape, order), _pair(scale, "scale")
    plan = device._plans.get(("upsample", bytes(description)), lambda: _Plan(device, "gable_plan_upsample", description))
    y = _result(out, _in_layout(plan.output_shape, order), x.dtype)
    _call("gable_run_upsample", plan.pointer, _data(x), _data(y), None)
    return y
