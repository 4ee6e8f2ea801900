// bilinear: a unit of work is rows of output, about 64 KiB. Pixels of several channels (NHWC) are means of four
// vectors. Planes (NCHW) blend two rows of input into a strip of f32, from which each vector of output gathers both
// neighbours.
#include "cpu/common/per_target.h"
// per_target.h first: it decides what Highway compiles.
#include "cpu/ops/bilinear.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/ops/bilinear.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <array>
#include <stdexcept>
#include <string>

#include "cpu/common/coverage.h"
#include "cpu/common/parallel.h"
#include "cpu/common/vector-inl.h"
#include "cpu/ops/bilinear_row.h"
#include "cpu/ops/rest-inl.h"

HWY_BEFORE_NAMESPACE();
namespace gable::cpu::HWY_NAMESPACE {

template <DType kType>
void bilinear_pixels(const BilinearProblem& p, const RowNeighbours& columns, const BilinearRow& row) {
  const hn::ScalableTag<float> d;
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto* upper = static_cast<const Storage<kType>*>(row.upper);
  const auto* lower = static_cast<const Storage<kType>*>(row.lower);
  auto* y = static_cast<Storage<kType>*>(row.y);
  const auto upper_share = hn::Set(d, row.upper_share), lower_share = hn::Set(d, row.lower_share);
  for (std::int64_t i = 0; i < p.pixels * p.scale_w; ++i, y += p.channels) {
    const auto at = static_cast<std::size_t>(i);
    const std::int64_t first = columns.first[at] * p.channels, second = columns.second[at] * p.channels;
    const auto first_share = hn::Set(d, columns.first_share[at]), second_share = hn::Set(d, columns.second_share[at]);
    const auto mean = [&](auto a, auto b, auto c, auto e) HWY_ATTR {
      const auto above = hn::MulAdd(b, second_share, hn::Mul(a, first_share));
      const auto below = hn::MulAdd(e, second_share, hn::Mul(c, first_share));
      return hn::MulAdd(below, lower_share, hn::Mul(above, upper_share));
    };
    for (std::int64_t c = 0; c < p.channels; c += lanes) {
      const int rest = c + lanes <= p.channels ? 0 : static_cast<int>(p.channels - c);
      const auto load = [&](const Storage<kType>* from) HWY_ATTR { return load_some<kType>(d, from + c, rest); };
      const auto value = mean(load(upper + first), load(upper + second), load(lower + first), load(lower + second));
      store_some<kType>(d, value, y + c, rest);
    }
  }
}

template <DType kType>
void bilinear_planes(const BilinearProblem& p, const RowNeighbours& columns, const BilinearRow& row) {
  const hn::ScalableTag<float> d;
  const hn::RebindToSigned<decltype(d)> di;
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d)), pixels = p.pixels * p.scale_w;
  const auto* upper = static_cast<const Storage<kType>*>(row.upper);
  const auto* lower = static_cast<const Storage<kType>*>(row.lower);
  auto* y = static_cast<Storage<kType>*>(row.y);
  const auto upper_share = hn::Set(d, row.upper_share), lower_share = hn::Set(d, row.lower_share);
  for (std::int64_t i = 0; i < p.pixels; i += lanes) {
    const int rest = i + lanes <= p.pixels ? 0 : static_cast<int>(p.pixels - i);
    const auto above = hn::Mul(load_some<kType>(d, upper + i, rest), upper_share);
    // The strip has room for whole vectors.
    hn::StoreU(hn::MulAdd(load_some<kType>(d, lower + i, rest), lower_share, above), d, row.strip + i);
  }
  // The neighbours' arrays end in a vector of zeros: the last gather may read beyond the row.
  for (std::int64_t i = 0; i < pixels; i += lanes) {
    const auto first = hn::GatherIndex(d, row.strip, hn::LoadU(di, columns.first.data() + i));
    const auto second = hn::GatherIndex(d, row.strip, hn::LoadU(di, columns.second.data() + i));
    const auto part = hn::Mul(first, hn::LoadU(d, columns.first_share.data() + i));
    const auto mean = hn::MulAdd(second, hn::LoadU(d, columns.second_share.data() + i), part);
    store_some<kType>(d, mean, y + i, i + lanes <= pixels ? 0 : static_cast<int>(pixels - i));
  }
}

using BilinearFunction = void (*)(const BilinearProblem&, const RowNeighbours&, const BilinearRow&);

BilinearFunction bilinear_function(DType type, bool planes) {
  constexpr std::array<BilinearFunction, 3> of_pixels = {&bilinear_pixels<DType::f32>, &bilinear_pixels<DType::f16>,
                                                         &bilinear_pixels<DType::bf16>};
  constexpr std::array<BilinearFunction, 3> of_planes = {&bilinear_planes<DType::f32>, &bilinear_planes<DType::f16>,
                                                         &bilinear_planes<DType::bf16>};
  return planes ? of_planes[static_cast<std::size_t>(type)] : of_pixels[static_cast<std::size_t>(type)];
}

}  // namespace gable::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gable::cpu {
namespace {

constexpr std::int64_t kBilinearUnit = 1 << 14;
constexpr std::int64_t kMostLanes = 64;  // of f32, of any vector

auto bilinear_function_of(const Target& target, DType type, bool planes) {
  GABLE_CPU_RETURN_OF(target, bilinear_function(type, planes));
}

RowNeighbours neighbours_of(const BilinearProblem& p) {
  constexpr std::int64_t kLimit = std::int64_t{1} << 31;  // of the indices by which vectors gather
  if (p.pixels >= kLimit) {
    throw std::invalid_argument("bilinear: pixels is " + std::to_string(p.pixels) + ", must be below " +
                                std::to_string(kLimit));
  }
  const std::int64_t pixels = p.pixels * p.scale_w;
  const auto size = static_cast<std::size_t>(pixels + kMostLanes);
  RowNeighbours all{std::vector<std::int32_t>(size), std::vector<std::int32_t>(size), std::vector<float>(size),
                    std::vector<float>(size)};
  for (std::int64_t i = 0; i < pixels; ++i) {
    const Between of = between(i, p.pixels, p.scale_w, p.align_corners);
    const auto at = static_cast<std::size_t>(i);
    all.first[at] = static_cast<std::int32_t>(of.first);
    all.second[at] = static_cast<std::int32_t>(of.second);
    all.first_share[at] = of.first_share;
    all.second_share[at] = of.second_share;
  }
  return all;
}

/// Of the strip of a thread: whole vectors, and whole lines.
std::size_t strip_floats(const BilinearProblem& p) {
  return p.channels == 1 ? static_cast<std::size_t>(ceil_div(p.pixels, kMostLanes) * kMostLanes) : 0;
}

}  // namespace

BilinearPlan::BilinearPlan(const BilinearProblem& problem, const Target& target, int threads)
    : problem_(problem),
      target_(&target),
      threads_(threads),
      columns_(neighbours_of(problem)),
      thread_floats_(strip_floats(problem)),
      workspace_(thread_floats_ * static_cast<std::size_t>(threads)) {}

void BilinearPlan::run(const void* x_data, void* y_data) {
  const BilinearProblem& p = problem_;
  const bool planes = p.channels == 1;
  note_path(planes ? Path::bilinear_planes : Path::bilinear_pixels, *target_);
  const auto bytes = static_cast<std::int64_t>(size_of(p.dtype));
  const char* x = static_cast<const char*>(x_data);
  char* y = static_cast<char*>(y_data);
  const auto function = bilinear_function_of(*target_, p.dtype, planes);
  const std::int64_t in = p.pixels * p.channels, out = in * p.scale_w;  // elements of a row
  const std::int64_t out_rows = p.rows * p.scale_h, all_rows = p.images * out_rows;
  const std::int64_t rows = std::max<std::int64_t>(1, kBilinearUnit / out);  // of a unit
  parallel_units(threads_, ceil_div(all_rows, rows), [&](std::int64_t unit, int thread) {
    float* const strip = workspace_.data() + static_cast<std::size_t>(thread) * thread_floats_;
    for (std::int64_t row = unit * rows; row < std::min(all_rows, (unit + 1) * rows); ++row) {
      const Between of = between(row % out_rows, p.rows, p.scale_h, p.align_corners);
      const char* const image = x + row / out_rows * p.rows * in * bytes;
      function(p, columns_,
               {.upper = image + of.first * in * bytes,
                .lower = image + of.second * in * bytes,
                .upper_share = of.first_share,
                .lower_share = of.second_share,
                .y = y + row * out * bytes,
                .strip = strip});
    }
  });
}

}  // namespace gable::cpu
#endif  // HWY_ONCE
