// gable's dtypes and layouts as oneDNN's memory descriptors, and oneDNN's choices as words.
#pragma once

#include <gable/dtype.h>
#include <gable/shape.h>

#include <dnnl.hpp>
#include <string>

namespace gable::onednn {

dnnl::memory::data_type data_type(DType dtype);

/// An (N, C, H, W) tensor in `layout`.
dnnl::memory::desc image(const Shape& shape, DType dtype, Layout layout);
/// Any row-major tensor.
dnnl::memory::desc row_major(const dnnl::memory::dims& dims, DType dtype);
/// The same dims and dtype in a format that oneDNN chooses.
dnnl::memory::desc any_format(const dnnl::memory::dims& dims, DType dtype);
dnnl::memory::dims dims_of(const Shape& shape);

/// Whether both put every element at the same address. Dimensions of 1 have strides too, but they don't matter.
bool same_memory(const dnnl::memory::desc& a, const dnnl::memory::desc& b);

/// In oneDNN's notation: "acdb" is NHWC, "aBcd16b" is blocked by 16 channels; "opaque" for what only oneDNN can read.
std::string format_name(const dnnl::memory::desc& description);

}  // namespace gable::onednn
