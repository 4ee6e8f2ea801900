// A zeroed buffer of floats on a cache-line boundary: workspaces.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <new>

namespace gable::cpu {

class AlignedFloats {
 public:
  static constexpr std::size_t kAlignment = 64;

  explicit AlignedFloats(std::size_t size = 0)
      : data_(size == 0 ? nullptr
                        : static_cast<float*>(::operator new(size * sizeof(float), std::align_val_t(kAlignment)))),
        size_(size) {
    std::fill_n(data_.get(), size_, 0.0f);
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
