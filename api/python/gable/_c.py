"""The structs of gable's C API (gable/c.h), and its enumerators by their numbers. Needs the standard library alone."""

import ctypes

DTYPES = ("f32", "f16", "bf16")
LAYOUTS = ("nchw", "nhwc")
MATHS = ("strict", "tf32", "split3", "split6")
ACTIVATIONS = ("none", "relu", "tanh")
INTERPOLATIONS = ("nearest", "bilinear", "bilinear_align_corners")
FUNCTIONS = ("relu", "relu6", "tanh", "sigmoid", "hard_sigmoid", "silu", "hard_swish", "gelu", "leaky_relu")


class CConv2d(ctypes.Structure):
    """struct gable_conv2d."""

    _fields_ = [
        ("input", ctypes.c_int64 * 4),
        ("weights", ctypes.c_int64 * 4),
        ("stride", ctypes.c_int64 * 2),
        ("padding", ctypes.c_int64 * 4),
        ("dilation", ctypes.c_int64 * 2),
        ("groups", ctypes.c_int64),
        ("dtype", ctypes.c_int),
        ("layout", ctypes.c_int),
        ("math", ctypes.c_int),
        ("bias", ctypes.c_int),
        ("activation", ctypes.c_int),
        ("pool_window", ctypes.c_int64 * 2),
        ("pool_stride", ctypes.c_int64 * 2),
    ]


class CMatmul(ctypes.Structure):
    """struct gable_matmul."""

    _fields_ = [
        ("m", ctypes.c_int64),
        ("n", ctypes.c_int64),
        ("k", ctypes.c_int64),
        ("dtype", ctypes.c_int),
        ("math", ctypes.c_int),
        ("bias", ctypes.c_int),
        ("activation", ctypes.c_int),
    ]


class CMaxPool(ctypes.Structure):
    """struct gable_max_pool."""

    _fields_ = [
        ("input", ctypes.c_int64 * 4),
        ("window", ctypes.c_int64 * 2),
        ("stride", ctypes.c_int64 * 2),
        ("padding", ctypes.c_int64 * 4),
        ("dtype", ctypes.c_int),
        ("layout", ctypes.c_int),
    ]


class CAdd(ctypes.Structure):
    """struct gable_add."""

    _fields_ = [
        ("shape", ctypes.c_int64 * 4),
        ("dtype", ctypes.c_int),
        ("layout", ctypes.c_int),
        ("activation", ctypes.c_int),
    ]


class CActivate(ctypes.Structure):
    """struct gable_activate."""

    _fields_ = [
        ("shape", ctypes.c_int64 * 4),
        ("function", ctypes.c_int),
        ("dtype", ctypes.c_int),
        ("layout", ctypes.c_int),
        ("slope", ctypes.c_float),
    ]


class CConcat(ctypes.Structure):
    """struct gable_concat."""

    _fields_ = [
        ("a", ctypes.c_int64 * 4),
        ("b", ctypes.c_int64 * 4),
        ("dtype", ctypes.c_int),
        ("layout", ctypes.c_int),
    ]


class CUpsample(ctypes.Structure):
    """struct gable_upsample."""

    _fields_ = [
        ("input", ctypes.c_int64 * 4),
        ("scale", ctypes.c_int64 * 2),
        ("dtype", ctypes.c_int),
        ("layout", ctypes.c_int),
        ("interpolation", ctypes.c_int),
    ]


class CMultiply(ctypes.Structure):
    """struct gable_multiply."""

    _fields_ = [
        ("a", ctypes.c_int64 * 4),
        ("b", ctypes.c_int64 * 4),
        ("dtype", ctypes.c_int),
        ("layout", ctypes.c_int),
    ]


class CSoftmax(ctypes.Structure):
    """struct gable_softmax."""

    _fields_ = [
        ("shape", ctypes.c_int64 * 4),
        ("axis", ctypes.c_int),
        ("dtype", ctypes.c_int),
        ("layout", ctypes.c_int),
    ]


class CDeviceInfo(ctypes.Structure):
    """struct gable_device_info."""

    _fields_ = [
        ("uri", ctypes.c_char_p),
        ("backend", ctypes.c_char_p),
        ("name", ctypes.c_char_p),
        ("reason", ctypes.c_char_p),
        ("on_host", ctypes.c_int),
    ]
