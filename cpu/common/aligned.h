// A buffer of floats on a cache-line boundary: workspaces. What is in it before it is written is undefined, but for the
// floats at its beginning that a plan asks to be zero: a workspace may be megabytes a thread, and to fill it would be
// most of the time that its plan takes to make. AddressSanitizer's builds fill it with NaNs, which no result may
// contain.
#pragma once

#include <algorithm>
#include <cstddef>
#include <limits>
#include <memory>
#include <new>

namespace gable::cpu {

class AlignedFloats {
 public:
  static constexpr std::size_t kAlignment = 64;

  explicit AlignedFloats(std::size_t size = 0, std::size_t zeros = 0)
      : data_(size == 0 ? nullptr
                        : static_cast<float*>(::operator new(size * sizeof(float), std::align_val_t(kAlignment)))),
        size_(size) {
#if defined(__SANITIZE_ADDRESS__)
    std::fill_n(data_.get(), size_, std::numeric_limits<float>::quiet_NaN());
#endif
    std::fill_n(data_.get(), zeros, 0.0f);
  }

  float* data() const { return data_.get(); }
  std::size_t size() const { return size_; }

 private:
  struct Free {
    void operator()(float* data) const { ::operator delete(data, std::align_val_t(kAlignment)); }
  };
  std::unique_ptr<float, Free> data_;
  std::size_t size_;
};

}  // namespace gable::cpu
