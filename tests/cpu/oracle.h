// What the tests of cpu/ share: random data in a storage type, guarded outputs, and straight-loop f64 references with
// the magnitudes that error bounds are made of.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include <gable/problem.h>
#include "cpu/common/check.h"
#include "cpu/common/half.h"
#include "cpu/common/target.h"

namespace gable::cpu::test {

inline void put(std::vector<unsigned char>& bytes, DType type, std::size_t index, float value) {
  if (type == DType::f32) {
    std::memcpy(bytes.data() + 4 * index, &value, 4);
  } else {
    const std::uint16_t half = type == DType::f16 ? f32_to_f16(value) : f32_to_bf16(value);
    std::memcpy(bytes.data() + 2 * index, &half, 2);
  }
}

/// Elements of a storage type in an allocation of exactly their size, so that a sanitizer sees any step beyond.
struct Elements {
  DType type;
  std::vector<unsigned char> bytes;

  Elements(DType element_type, std::size_t count) : type(element_type), bytes(count * size_of(element_type)) {}
  std::size_t size() const { return bytes.size() / size_of(type); }
  float at(std::size_t i) const { return element_as_f32(bytes.data(), type, static_cast<std::int64_t>(i)); }
  void set(std::size_t i, float value) { put(bytes, type, i, value); }
  const void* data() const { return bytes.data(); }
};

inline Elements random_elements(DType type, std::int64_t count, std::mt19937& random) {
  Elements elements(type, static_cast<std::size_t>(count));
  std::uniform_real_distribution<float> uniform(-1.0f, 1.0f);
  for (std::size_t i = 0; i < elements.size(); ++i) elements.set(i, uniform(random));
  return elements;
}

/// An output filled with NaN between two guard bands.
class GuardedOutput {
 public:
  GuardedOutput(DType type, std::int64_t count) : type_(type), count_(static_cast<std::size_t>(count)) {
    bytes_.assign(count_ * size_of(type) + 2 * kGuard, kGuardByte);
    const float nan = std::numeric_limits<float>::quiet_NaN();
    Elements poison(type, count_);
    for (std::size_t i = 0; i < count_; ++i) poison.set(i, nan);
    std::copy(poison.bytes.begin(), poison.bytes.end(), bytes_.begin() + kGuard);
  }
  void* data() { return bytes_.data() + kGuard; }
  float at(std::size_t i) const { return element_as_f32(bytes_.data() + kGuard, type_, static_cast<std::int64_t>(i)); }
  std::size_t size() const { return count_; }
  bool guards_untouched() const {
    for (std::size_t i = 0; i < kGuard; ++i) {
      if (bytes_[i] != kGuardByte || bytes_[bytes_.size() - 1 - i] != kGuardByte) return false;
    }
    return true;
  }

 private:
  static constexpr std::size_t kGuard = 256;
  static constexpr unsigned char kGuardByte = 0xa5;
  DType type_;
  std::size_t count_;
  std::vector<unsigned char> bytes_;
};

/// Largest relative error of rounding to a storage type, and its smallest subnormal's half.
inline double rounding(DType type, double value) {
  if (type == DType::f32) return std::ldexp(std::abs(value), -24);
  if (type == DType::f16) return std::ldexp(std::abs(value), -11) + std::ldexp(1.0, -25);
  return std::ldexp(std::abs(value), -8);
}

/// One value and how far a f32 computation of it may be off.
struct Expected {
  double value;
  double tolerance;
};

/// Order of elements in memory: nhwc or nchw, from logical (n, c, h, w).
inline std::size_t offset(bool nhwc, std::int64_t channels, std::int64_t h, std::int64_t w, std::int64_t image,
                          std::int64_t c, std::int64_t row, std::int64_t column) {
  return static_cast<std::size_t>(nhwc ? ((image * h + row) * w + column) * channels + c
                                       : ((image * channels + c) * h + row) * w + column);
}

/// A tensor in logical nchw order, rewritten in the requested layout.
inline Elements in_layout(const Elements& nchw, bool nhwc, std::int64_t n, std::int64_t c, std::int64_t h,
                          std::int64_t w) {
  Elements result(nchw.type, nchw.size());
  std::size_t i = 0;
  for (std::int64_t image = 0; image < n; ++image) {
    for (std::int64_t channel = 0; channel < c; ++channel) {
      for (std::int64_t row = 0; row < h; ++row) {
        for (std::int64_t column = 0; column < w; ++column) {
          result.set(offset(nhwc, c, h, w, image, channel, row, column), nchw.at(i++));
        }
      }
    }
  }
  return result;
}

/// A sum of products and the sum of their magnitudes.
struct ProductSums {
  double sum, magnitude;
};

/// Adds `count` products of x and w. A build with sanitizers would spend most of its time here, so the addresses are
/// not checked: the oracle's arrays are its own. Vectors of the compiler's, because it keeps the order of a sum;
/// several of them, since one sum would wait for each addition.
__attribute__((no_sanitize("address", "undefined"))) inline void add_products(const double* x, const double* w,
                                                                              std::int64_t count, ProductSums& to) {
  using Two = double __attribute__((vector_size(2 * sizeof(double))));
  using Bits = std::int64_t __attribute__((vector_size(2 * sizeof(double))));
  constexpr int kSums = 4;
  constexpr std::int64_t kAllButSign = std::numeric_limits<std::int64_t>::max();
  Two sums[kSums]{}, magnitudes[kSums]{};
  std::int64_t i = 0;
  for (; i + 2 * kSums <= count; i += 2 * kSums) {
#pragma GCC unroll 4
    for (int of = 0; of < kSums; ++of) {
      const std::int64_t at = i + 2 * of;
      const Two product = Two{x[at], x[at + 1]} * Two{w[at], w[at + 1]};
      sums[of] += product;
      magnitudes[of] += reinterpret_cast<Two>(reinterpret_cast<Bits>(product) & kAllButSign);
    }
  }
  const Two sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
  const Two magnitude = (magnitudes[0] + magnitudes[1]) + (magnitudes[2] + magnitudes[3]);
  to.sum += sum[0] + sum[1];
  to.magnitude += magnitude[0] + magnitude[1];
  for (; i < count; ++i) {
    const double product = x[i] * w[i];
    to.sum += product;
    to.magnitude += product < 0.0 ? -product : product;
  }
}

/// Elements [outer][channels][pixels] as f64 [outer][pixels][channels], so that the channels are neighbours.
inline std::vector<double> channels_last(const Elements& elements, std::int64_t channels, std::int64_t pixels) {
  std::vector<double> result(elements.size());
  const std::int64_t outer = static_cast<std::int64_t>(elements.size()) / (channels * pixels);
  std::size_t i = 0;
  for (std::int64_t o = 0; o < outer; ++o) {
    for (std::int64_t c = 0; c < channels; ++c) {
      double* const to = result.data() + o * channels * pixels + c;
      for (std::int64_t pixel = 0; pixel < pixels; ++pixel) to[pixel * channels] = elements.at(i++);
    }
  }
  return result;
}

/// conv + bias -> activation -> max-pool in f64, logical nchw. Tolerance: 4·sqrt(terms)·2^-24·Σ|x||w| for the sum
/// (random rounding errors), 4 ulp for tanh, and the rounding to the storage type.
inline std::vector<Expected> conv2d_reference(const Conv2dProblem& p, const Elements& x, const Elements& weights,
                                              const std::vector<float>& bias) {
  const std::int64_t group_c = p.c / p.groups;
  const std::int64_t group_k = p.k / p.groups;
  const double terms = static_cast<double>(group_c * p.r * p.s + 1);
  const std::vector<double> xs = channels_last(x, p.c, p.h * p.w), ws = channels_last(weights, group_c, p.r * p.s);
  std::vector<Expected> conv(static_cast<std::size_t>(p.n * p.k * p.ho * p.wo));
  std::size_t out = 0;
  for (std::int64_t image = 0; image < p.n; ++image) {
    for (std::int64_t k = 0; k < p.k; ++k) {
      for (std::int64_t row = 0; row < p.ho; ++row) {
        for (std::int64_t column = 0; column < p.wo; ++column) {
          const double first = p.bias ? static_cast<double>(bias[static_cast<std::size_t>(k)]) : 0.0;
          ProductSums sums{first, std::abs(first)};
          for (std::int64_t kh = 0; kh < p.r; ++kh) {
            const std::int64_t ih = row * p.stride_h - p.pad_top + kh * p.dilation_h;
            if (ih < 0 || ih >= p.h) continue;
            for (std::int64_t kw = 0; kw < p.s; ++kw) {
              const std::int64_t iw = column * p.stride_w - p.pad_left + kw * p.dilation_w;
              if (iw < 0 || iw >= p.w) continue;
              const double* const pixel = xs.data() + offset(true, p.c, p.h, p.w, image, k / group_k * group_c, ih, iw);
              const double* const tap = ws.data() + offset(true, group_c, p.r, p.s, k, 0, kh, kw);
              add_products(pixel, tap, group_c, sums);
            }
          }
          double sum = sums.sum;
          double tolerance = 4.0 * std::sqrt(terms) * std::ldexp(sums.magnitude, -24);
          if (p.activation == Activation::relu) sum = std::max(sum, 0.0);
          if (p.activation == Activation::tanh) {
            sum = std::tanh(sum);
            tolerance += std::ldexp(std::abs(sum), -21);
          }
          conv[out++] = {sum, tolerance};
        }
      }
    }
  }
  std::vector<Expected> pooled;
  for (std::int64_t plane = 0; plane < p.n * p.k; ++plane) {
    for (std::int64_t row = 0; row < p.out_h(); ++row) {
      for (std::int64_t column = 0; column < p.out_w(); ++column) {
        Expected best{-std::numeric_limits<double>::infinity(), 0.0};
        for (std::int64_t i = 0; i < p.pool.h; ++i) {
          for (std::int64_t j = 0; j < p.pool.w; ++j) {
            const Expected& value = conv[static_cast<std::size_t>((plane * p.ho + row * p.pool.stride_h + i) * p.wo +
                                                                  column * p.pool.stride_w + j)];
            best = {std::max(best.value, value.value), std::max(best.tolerance, value.tolerance)};
          }
        }
        best.tolerance += rounding(p.dtype, best.value);
        pooled.push_back(best);
      }
    }
  }
  return pooled;
}

/// The reference's results with tolerances for products of bf16 parts. The reference's own are 4·sqrt(terms)·2^-24·M
/// and more; several products a term add sums, and leave products of lesser parts out.
inline std::vector<Expected> for_products(std::vector<Expected> expected, const Conv2dProblem& p, int products) {
  const double terms = static_cast<double>(p.group_c() * p.r * p.s + 1);
  const double left_out = products == 6           ? 2 * 0x1p-24
                          : products != 3         ? 0.0
                          : p.dtype == DType::f16 ? 0x1p-18
                                                  : 3 * 0x1p-16;
  const double share = left_out * (1 + 0x1p-7) / (4.0 * std::sqrt(terms) * 0x1p-24);
  for (Expected& e : expected) e.tolerance *= std::sqrt(static_cast<double>(products)) + share;
  return expected;
}

/// Fills in the output size from bottom/right padding.
inline Conv2dProblem sized(Conv2dProblem p, std::int64_t pad_bottom, std::int64_t pad_right) {
  p.ho = (p.h + p.pad_top + pad_bottom - ((p.r - 1) * p.dilation_h + 1)) / p.stride_h + 1;
  p.wo = (p.w + p.pad_left + pad_right - ((p.s - 1) * p.dilation_w + 1)) / p.stride_w + 1;
  return p;
}

inline Conv2dProblem same_padded(Conv2dProblem p) {
  p.pad_top = p.pad_left = (p.r - 1) * p.dilation_h / 2;
  return sized(p, p.pad_top, p.pad_left);
}

/// Every output within its tolerance, none unwritten, nothing written beside them.
inline void check_output(const Conv2dProblem& p, const std::vector<Expected>& expected, const GuardedOutput& y) {
  std::size_t wrong = 0;
  std::size_t i = 0;
  for (std::int64_t image = 0; image < p.n; ++image) {
    for (std::int64_t k = 0; k < p.k; ++k) {
      for (std::int64_t row = 0; row < p.out_h(); ++row) {
        for (std::int64_t column = 0; column < p.out_w(); ++column) {
          const Expected& e = expected[i++];
          const double value = y.at(offset(p.nhwc, p.k, p.out_h(), p.out_w(), image, k, row, column));
          // Written so that NaN, the poison, counts as wrong.
          if (!(std::abs(value - e.value) <= e.tolerance) && wrong++ == 0) {
            FAIL_CHECK("at n" << image << " k" << k << " row " << row << " column " << column << ": " << value
                              << ", expected " << e.value << " within " << e.tolerance);
          }
        }
      }
    }
  }
  CHECK(wrong == 0);
  CHECK(y.guards_untouched());
}

inline std::string describe(const Conv2dProblem& p) {
  const auto number = [](const char* name, std::int64_t value) { return std::string(name) + std::to_string(value); };
  return number("mb", p.n) + number("g", p.groups) + number("ic", p.c) + number("ih", p.h) + number("iw", p.w) +
         number("oc", p.k) + number("oh", p.ho) + number("ow", p.wo) + number("kh", p.r) + number("kw", p.s) +
         number("sh", p.stride_h) + number("sw", p.stride_w) + number("ph", p.pad_top) + number("pw", p.pad_left) +
         number("dh", p.dilation_h - 1) + number("dw", p.dilation_w - 1) + " " + name_of(p.dtype) +
         (p.nhwc ? " nhwc" : " nchw") + (p.bias ? " bias" : "") +
         (p.activation == Activation::relu   ? " relu"
          : p.activation == Activation::tanh ? " tanh"
                                             : "") +
         number(" pool ", p.pool.h) + number("x", p.pool.w) + number(" stride ", p.pool.stride_h) +
         number("x", p.pool.stride_w);
}

inline std::vector<const Target*> supported_targets() {
  std::vector<const Target*> targets;
  for (const Target& target : compiled_targets()) {
    if (target.supported) targets.push_back(&target);
  }
  return targets;
}

}  // namespace gable::cpu::test
