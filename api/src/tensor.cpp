// Host tensors, and the memory operations of devices whose backend has none of its own.
#include <gable/backend.h>
#include <gable/tensor.h>

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>

#include "api/src/tensor_check.h"

namespace gable {
namespace {

constexpr std::size_t kAlignment = 128;  // two cache lines: what the adjacent-line prefetcher pairs

/// Tensors of at least two huge pages request them: kernels that read many rows at once miss the TLB on smaller pages.
constexpr std::size_t kHugePage = std::size_t{2} << 20;

void* aligned_memory(std::size_t bytes) {
  if (bytes < 2 * kHugePage) return std::aligned_alloc(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment);
  void* memory = nullptr;
  if (posix_memalign(&memory, kHugePage, bytes) != 0) return nullptr;
  madvise(memory, bytes / kHugePage * kHugePage, MADV_HUGEPAGE);  // only a hint: small pages work too
  return memory;
}

std::shared_ptr<void> allocate_host(std::size_t bytes) {
  void* memory = bytes == 0 ? nullptr : aligned_memory(bytes);
  if (memory == nullptr && bytes != 0) {
    throw Error(ErrorCode::out_of_memory, "no " + std::to_string(bytes) + " bytes of host memory");
  }
  return {memory, std::free};
}

}  // namespace

std::string to_string(Memory memory) {
  return memory.kind == Memory::Kind::host ? "host" : "cuda:" + std::to_string(memory.index);
}

bool same_order(const Shape& shape, Layout a, Layout b) {
  return a == b || shape.rank() != 4 || shape[1] == 1 || (shape[2] == 1 && shape[3] == 1);
}

Tensor::Tensor(DType dtype, const Shape& shape, Layout layout) {
  validate_tensor(dtype, shape, layout);
  const TensorView shaped(nullptr, dtype, shape, layout);
  storage_ = allocate_host(shaped.bytes());
  view_ = TensorView(storage_.get(), dtype, shape, layout);
}

std::shared_ptr<void> DeviceImpl::allocate(std::size_t bytes) const { return allocate_host(bytes); }

void DeviceImpl::copy(const ConstTensorView& from, const TensorView& to, void*) const {
  if (from.memory.kind != Memory::Kind::host || to.memory.kind != Memory::Kind::host) {
    throw Error(ErrorCode::invalid_argument, "copy from " + to_string(from.memory) + " to " + to_string(to.memory) +
                                                 " memory on device '" + info_.uri +
                                                 "', which reaches host memory alone: use the CUDA device's copy");
  }
  std::memcpy(to.data, from.data, to.bytes());
}

}  // namespace gable
