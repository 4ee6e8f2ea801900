// DLPack in and out, without copies: tensors of NumPy, PyTorch, CuPy or JAX as views, gable's tensors for them.
// Needs DLPack's own header (libdlpack-dev); gable.h therefore does not include this.
#pragma once

#include <gable/error.h>
#include <gable/tensor.h>

#include <dlpack/dlpack.h>

#include <array>
#include <cstdint>
#include <memory>
#include <string>

namespace gable {

namespace detail {

using Strides = std::array<std::int64_t, Shape::kMaxRank>;

/// Strides in elements of dense memory.
inline Strides dense_strides(const Shape& shape, Layout layout) {
  Strides strides{};
  if (shape.rank() == 4 && layout == Layout::nhwc) {
    strides = {shape[1] * shape[2] * shape[3], 1, shape[3] * shape[1], shape[1]};
    return strides;
  }
  std::int64_t stride = 1;
  for (std::size_t i = shape.rank(); i-- > 0;) {
    strides[i] = stride;
    stride *= shape[i];
  }
  return strides;
}

/// A dimension of one element can have any stride. DLPack's null strides mean row-major.
inline bool has_strides(const DLTensor& tensor, const Shape& shape, const Strides& wanted) {
  for (std::size_t i = 0; i < shape.rank(); ++i) {
    if (shape[i] != 1 && tensor.strides[i] != wanted[i]) return false;
  }
  return true;
}

inline DType dtype_of_dlpack(DLDataType type) {
  if (type.lanes == 1 && type.code == kDLFloat && type.bits == 32) return DType::f32;
  if (type.lanes == 1 && type.code == kDLFloat && type.bits == 16) return DType::f16;
  if (type.lanes == 1 && type.code == kDLBfloat && type.bits == 16) return DType::bf16;
  throw Error(ErrorCode::invalid_argument, "DLPack: type code " + std::to_string(type.code) + " with " +
                                               std::to_string(type.bits) + " bits and " + std::to_string(type.lanes) +
                                               " lanes; gable takes float32, float16 and bfloat16, one lane");
}

inline Memory memory_of_dlpack(DLDevice device) {
  switch (device.device_type) {
    case kDLCPU:
    case kDLCUDAHost:
      return {};
    case kDLCUDA:
      return {.kind = Memory::Kind::cuda, .index = device.device_id};
    default:
      throw Error(ErrorCode::invalid_argument, "DLPack: device type " + std::to_string(device.device_type) +
                                                   "; gable takes CPU (1), CUDA (2) and pinned host (3) memory");
  }
}

}  // namespace detail

/// A view of the producer's memory, which must outlive it. Row-major tensors become Layout::nchw, rank-4 tensors in
/// channels-last order Layout::nhwc. Throws Error(invalid_argument) on other strides, types, devices or ranks.
inline TensorView view_of(const DLTensor& tensor) {
  if (tensor.ndim < 1 || tensor.ndim > static_cast<int>(Shape::kMaxRank)) {
    throw Error(ErrorCode::invalid_argument,
                "DLPack: a tensor of " + std::to_string(tensor.ndim) + " dimensions; gable takes 1 to 4");
  }
  Shape shape;
  switch (tensor.ndim) {
    case 1:
      shape = {tensor.shape[0]};
      break;
    case 2:
      shape = {tensor.shape[0], tensor.shape[1]};
      break;
    case 3:
      shape = {tensor.shape[0], tensor.shape[1], tensor.shape[2]};
      break;
    default:
      shape = {tensor.shape[0], tensor.shape[1], tensor.shape[2], tensor.shape[3]};
  }
  TensorView view(static_cast<char*>(tensor.data) + tensor.byte_offset, detail::dtype_of_dlpack(tensor.dtype), shape,
                  Layout::nchw, detail::memory_of_dlpack(tensor.device));
  if (tensor.strides == nullptr || detail::has_strides(tensor, shape, detail::dense_strides(shape, Layout::nchw))) {
    return view;
  }
  if (shape.rank() == 4 && detail::has_strides(tensor, shape, detail::dense_strides(shape, Layout::nhwc))) {
    view.layout = Layout::nhwc;
    return view;
  }
  throw Error(ErrorCode::invalid_argument,
              "DLPack: a " + to_string(shape) +
                  " tensor that is neither dense row-major nor dense channels-last; make it "
                  "contiguous first");
}

/// Hands the tensor's memory to a consumer, which calls the result's deleter when done. The memory stays alive until
/// then, also when `tensor` goes first. Throws Error(invalid_argument) on an empty tensor.
inline DLManagedTensor* to_dlpack(const Tensor& tensor) {
  if (tensor.data() == nullptr) {
    throw Error(ErrorCode::invalid_argument, "DLPack: the tensor is empty: moved from, or never given memory");
  }
  struct Holder {
    DLManagedTensor managed{};
    Tensor::Storage storage;
    detail::Strides shape{};
    detail::Strides strides{};
  };
  auto holder = std::make_unique<Holder>();
  holder->storage = tensor.storage();
  holder->strides = detail::dense_strides(tensor.shape(), tensor.layout());
  for (std::size_t i = 0; i < tensor.shape().rank(); ++i) holder->shape[i] = tensor.shape()[i];
  const Memory memory = tensor.view().memory;
  const bool on_host = memory.kind == Memory::Kind::host;
  DLTensor& view = holder->managed.dl_tensor;
  view.data = tensor.data();
  view.device = {on_host ? kDLCPU : kDLCUDA, on_host ? 0 : memory.index};
  view.ndim = static_cast<int>(tensor.shape().rank());
  view.dtype = {static_cast<std::uint8_t>(tensor.dtype() == DType::bf16 ? kDLBfloat : kDLFloat),
                static_cast<std::uint8_t>(8 * size_of(tensor.dtype())), 1};
  view.shape = holder->shape.data();
  view.strides = holder->strides.data();
  holder->managed.manager_ctx = holder.get();
  holder->managed.deleter = [](DLManagedTensor* self) { delete static_cast<Holder*>(self->manager_ctx); };
  return &holder.release()->managed;
}

}  // namespace gable
