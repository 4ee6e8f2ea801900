// Tensors: a view (not owning) of dense memory, and an owner of it. External pointers need no copy: make a view.
#pragma once

#include <gable/dtype.h>
#include <gable/error.h>
#include <gable/export.h>
#include <gable/shape.h>

#include <cstddef>
#include <memory>
#include <type_traits>
#include <utility>

namespace gable {

/// Where bytes live. Every CPU backend shares the host's memory.
struct Memory {
  enum class Kind : std::uint8_t { host, cuda };
  Kind kind = Kind::host;
  int index = 0;  ///< of the GPU
  bool operator==(const Memory&) const = default;
};

GABLE_API std::string to_string(Memory memory);  ///< "host" or "cuda:0"

/// Whether both layouts put every element of a tensor of `shape` at the same address: always below rank 4, and at rank
/// 4 where C = 1 or H = W = 1.
GABLE_API bool same_order(const Shape& shape, Layout a, Layout b);

namespace detail {
template <typename Pointer>
struct View {
  Pointer data = nullptr;
  DType dtype = DType::f32;
  Shape shape;  ///< (N, C, H, W) whatever the layout
  Layout layout = Layout::nchw;
  Memory memory;

  std::size_t bytes() const { return static_cast<std::size_t>(shape.elements()) * size_of(dtype); }  ///< of it all
};
}  // namespace detail

/// Dense memory of `shape` in `layout`. The memory is the caller's and outlives the view. Nothing is checked here;
/// plans check what they get.
struct TensorView : detail::View<void*> {
  TensorView() = default;
  TensorView(void* pointer, DType type, const Shape& dims, Layout order = Layout::nchw, Memory where = {})
      : detail::View<void*>{pointer, type, dims, order, where} {}  ///< dims are (N, C, H, W) in both orders
};

/// The same, read-only. A TensorView converts to it.
struct ConstTensorView : detail::View<const void*> {
  ConstTensorView() = default;
  ConstTensorView(const void* pointer, DType type, const Shape& dims, Layout order = Layout::nchw, Memory where = {})
      : detail::View<const void*>{pointer, type, dims, order, where} {}  ///< dims are (N, C, H, W) in both orders
  ConstTensorView(const TensorView& v) : detail::View<const void*>{v.data, v.dtype, v.shape, v.layout, v.memory} {}
};

/// Owns 128-byte-aligned memory on one device. Movable, not copyable; made by Device::tensor() or, on the host, here.
/// One that was moved from, or made without arguments, is empty: data() is null, the shape has rank 0, bytes() is 0.
/// Whatever takes a tensor throws Error(invalid_argument) on an empty one, and so does as().
class GABLE_API Tensor {
 public:
  /// Memory and the way to release it; Device::tensor() fills it.
  using Storage = std::shared_ptr<void>;

  Tensor() = default;
  /// Uninitialised host memory. Throws Error(out_of_memory), or Error(invalid_argument) on a dimension below 1.
  Tensor(DType dtype, const Shape& shape, Layout layout = Layout::nchw);
  Tensor(Storage storage, const TensorView& view) : storage_(std::move(storage)), view_(view) {}  ///< for backends
  Tensor(Tensor&& other) noexcept
      : storage_(std::move(other.storage_)), view_(std::exchange(other.view_, TensorView())) {}
  Tensor& operator=(Tensor&& other) noexcept {
    storage_ = std::move(other.storage_);
    view_ = std::exchange(other.view_, TensorView());
    return *this;
  }
  Tensor(const Tensor&) = delete;
  Tensor& operator=(const Tensor&) = delete;

  const TensorView& view() const { return view_; }    ///< valid while the tensor lives
  operator TensorView() const { return view_; }       ///< view()
  operator ConstTensorView() const { return view_; }  ///< view(), read-only

  void* data() const { return view_.data; }                                        ///< null if the tensor is empty
  DType dtype() const { return view_.dtype; }                                      ///< of its elements
  const Shape& shape() const { return view_.shape; }                               ///< (N, C, H, W) whatever the layout
  Layout layout() const { return view_.layout; }                                   ///< in memory
  std::size_t bytes() const { return view_.data == nullptr ? 0 : view_.bytes(); }  ///< of all elements
  const Storage& storage() const { return storage_; }  ///< keeps the memory alive without the tensor

  /// Typed pointer to host elements: float for f32, std::uint16_t bit patterns for f16 and bf16.
  template <typename T>
  T* as() const {
    static_assert(std::is_same_v<T, float> || std::is_same_v<T, std::uint16_t>, "float or std::uint16_t");
    if (view_.data == nullptr) {
      throw Error(ErrorCode::invalid_argument, "Tensor::as: the tensor is empty: moved from, or never given memory");
    }
    if (sizeof(T) != size_of(view_.dtype) || view_.memory.kind != Memory::Kind::host) {
      throw Error(ErrorCode::invalid_argument, "Tensor::as: the element type does not fit a " +
                                                   std::string(to_string(view_.dtype)) + " tensor in " +
                                                   to_string(view_.memory) + " memory");
    }
    return static_cast<T*>(view_.data);
  }

 private:
  Storage storage_;
  TensorView view_;
};

}  // namespace gable
