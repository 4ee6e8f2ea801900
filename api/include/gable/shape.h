// Small fixed-capacity shapes and the 2-D extents that convolutions and pools are described by.
#pragma once

#include <gable/export.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>

namespace gable {

/// Up to four dimensions. Rank-4 shapes read (N, C, H, W) or, for weights, (K, C/groups, R, S).
class GABLE_API Shape {
 public:
  static constexpr std::size_t kMaxRank = 4;

  Shape() = default;
  /// Throws Error(invalid_argument) on more than four dimensions. A dimension's sign is checked where it is used.
  Shape(std::initializer_list<std::int64_t> dims);

  std::size_t rank() const { return rank_; }                         ///< 0 to 4
  std::int64_t operator[](std::size_t i) const { return dims_[i]; }  ///< i < kMaxRank, not checked
  std::int64_t& operator[](std::size_t i) { return dims_[i]; }       ///< the same, to be written
  /// Product of the dimensions: 1 for rank 0. Meaningful for shapes that passed validate().
  std::int64_t elements() const;
  bool operator==(const Shape&) const = default;

 private:
  std::array<std::int64_t, kMaxRank> dims_{};
  std::size_t rank_ = 0;
};

GABLE_API std::string to_string(const Shape& shape);  ///< "16x64x224x224"

/// A height and a width, in elements.
struct Extent {
  std::int64_t h = 1;
  std::int64_t w = 1;
  bool operator==(const Extent&) const = default;
};

/// Zero padding around the image. {h, w} pads both sides alike.
struct Padding {
  std::int64_t top = 0;
  std::int64_t left = 0;
  std::int64_t bottom = 0;
  std::int64_t right = 0;

  constexpr Padding() = default;
  constexpr Padding(std::int64_t h, std::int64_t w) : top(h), left(w), bottom(h), right(w) {}  ///< both sides
  constexpr Padding(std::int64_t t, std::int64_t l, std::int64_t b, std::int64_t r)
      : top(t), left(l), bottom(b), right(r) {}  ///< each side
  bool operator==(const Padding&) const = default;
};

/// A max-pool fused into an epilogue: window and stride, no padding, incomplete windows dropped. {2, 2} is a window of
/// 2x2 with stride 2x2; a window of 0 means no pool.
struct PoolWindow {
  Extent window{0, 0};
  Extent stride{0, 0};

  constexpr PoolWindow() = default;
  constexpr PoolWindow(std::int64_t h, std::int64_t w) : window{h, w}, stride{h, w} {}  ///< side by side
  constexpr PoolWindow(Extent pool_window, Extent pool_stride) : window(pool_window), stride(pool_stride) {}
  constexpr explicit operator bool() const { return window.h != 0 || window.w != 0; }  ///< there is a pool
  bool operator==(const PoolWindow&) const = default;
};

}  // namespace gable
