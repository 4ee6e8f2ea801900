// A workspace: a buffer of floats on a cache-line boundary. It is uninitialised, except that a plan may ask for zeros
// at its beginning: a workspace may have megabytes for each thread, and filling it would take most of the time of
// making the plan. AddressSanitizer's builds fill it with NaNs, which no result may contain.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
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

/// Between the parts of a workspace that two threads write. With a page, kernels took up to 1.6 times as long on two
/// threads of a Zen 5 (suspected: the prefetcher of one core takes lines of the other's).
constexpr std::int64_t kApartFloats = 8 << 10;

/// The part of a workspace that one thread writes, of at least `floats`: whole cache lines, and the distance to the
/// next thread's part.
constexpr std::size_t thread_part_floats(std::int64_t floats) {
  constexpr std::int64_t kLineFloats = 16;
  return static_cast<std::size_t>((floats + kLineFloats - 1) / kLineFloats * kLineFloats + kApartFloats);
}

/// For memory whose leftovers take part in sums that nobody reads: lanes beyond the last channel, vectors that reach
/// beyond the last row. A denormal there costs an Intel core about 150 cycles a product. AddressSanitizer's builds keep
/// their NaNs.
inline void clear_leftovers([[maybe_unused]] float* data, [[maybe_unused]] std::size_t count) {
#if !defined(__SANITIZE_ADDRESS__)
  std::fill_n(data, count, 0.0f);
#endif
}

}  // namespace gable::cpu
