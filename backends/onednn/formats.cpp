// See formats.h.
#include "formats.h"

#include "version.h"

#include <algorithm>
#include <numeric>

namespace gable::onednn {

dnnl::memory::data_type data_type(DType dtype) {
  switch (dtype) {
    case DType::f16:
      return dnnl::memory::data_type::f16;
    case DType::bf16:
      return dnnl::memory::data_type::bf16;
    case DType::f32:
      break;
  }
  return dnnl::memory::data_type::f32;
}

dnnl::memory::dims dims_of(const Shape& shape) {
  dnnl::memory::dims dims;
  for (std::size_t i = 0; i < shape.rank(); ++i) dims.push_back(shape[i]);
  return dims;
}

dnnl::memory::desc image(const Shape& shape, DType dtype, Layout layout) {
  using Tag = dnnl::memory::format_tag;
  return {dims_of(shape), data_type(dtype), layout == Layout::nhwc ? Tag::nhwc : Tag::nchw};
}

dnnl::memory::desc row_major(const dnnl::memory::dims& dims, DType dtype) {
  dnnl::memory::dims strides(dims.size(), 1);
  for (std::size_t i = dims.size() - 1; i > 0; --i) strides[i - 1] = strides[i] * dims[i];
  return {dims, data_type(dtype), strides};
}

dnnl::memory::desc any_format(const dnnl::memory::dims& dims, DType dtype) {
  return {dims, data_type(dtype), dnnl::memory::format_tag::any};
}

bool same_memory(const dnnl::memory::desc& a, const dnnl::memory::desc& b) {
  if (a == b) return true;
  const Blocking x = blocking_of(a);
  const Blocking y = blocking_of(b);
  if (!x.blocked || !y.blocked || !x.block_sizes.empty() || !y.block_sizes.empty() || x.dims != y.dims) return false;
  for (std::size_t i = 0; i < x.dims.size(); ++i) {
    if (x.dims[i] > 1 && x.strides[i] != y.strides[i]) return false;
  }
  return true;
}

std::string format_name(const dnnl::memory::desc& description) {
  const Blocking format = blocking_of(description);
  if (!format.blocked) return "opaque";
  std::vector<std::size_t> order(format.dims.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return format.strides[a] > format.strides[b]; });
  const auto is_blocked = [&](std::size_t dim) {
    return std::find(format.block_dims.begin(), format.block_dims.end(), static_cast<dnnl::memory::dim>(dim)) !=
           format.block_dims.end();
  };
  std::string name;
  for (const std::size_t dim : order) name += static_cast<char>((is_blocked(dim) ? 'A' : 'a') + static_cast<int>(dim));
  for (std::size_t i = 0; i < format.block_sizes.size(); ++i) {
    name += std::to_string(format.block_sizes[i]) + static_cast<char>('a' + static_cast<int>(format.block_dims[i]));
  }
  return name;
}

}  // namespace gable::onednn
