// How problems are cut, for the blockings of all kernels: parts of nearly equal size, units of work for threads, and
// the taps of a window that read the image.
#pragma once

#include <gable/problem.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace gable::cpu {

/// Units of work for each thread: a thread that the machine slows down then takes fewer of them.
constexpr std::int64_t kUnitsPerThread = 4;

/// The least number of units that keeps `threads` threads busy to the end; 1 for one thread.
constexpr std::int64_t units_wanted(int threads) { return threads == 1 ? 1 : kUnitsPerThread * threads; }

/// The first unit of a share. All shares are equal, or differ by a unit.
constexpr std::int64_t first_of_share(std::int64_t units, int share, int shares) { return units * share / shares; }

/// The share that has this unit.
constexpr std::int64_t share_of(std::int64_t units, std::int64_t unit, int shares) {
  return ((unit + 1) * shares - 1) / units;
}

/// Threads and units up to which parallel_time() follows each unit.
constexpr std::int64_t kManyUnits = 64;

/// What parallel_time() adds for threads that the machine slows down, in parts of the longest unit.
constexpr double unit_wait(int threads) { return threads == 2 ? 1.0 / 16 : 1.0 / 2; }

/// The time until the last thread has finished `units` units that parallel_units() distributes: each thread has a share
/// of consecutive units, then takes units that others have left. work(unit) is the time of a unit. A part of the
/// longest unit is added for threads that the machine slows down, so that among equally even cuts the one with more
/// units wins: the more threads, the more probable is one that is much slower than the others. If there are many units,
/// work() is called for the first one only. Measured with two threads of a Zen 5, and 4, 8 and 12 of a Xeon with AMX.
template <class Work>
double parallel_time(int threads, std::int64_t units, const Work& work) {
  const double wait = unit_wait(threads);
  if (units > kManyUnits || threads > kManyUnits)
    return work(0) * (static_cast<double>(ceil_div(units, std::int64_t{threads})) + wait);
  std::array<double, kManyUnits> time{};
  std::array<std::int64_t, kManyUnits> next{};
  for (int thread = 0; thread < threads; ++thread) next[static_cast<std::size_t>(thread)] = units * thread / threads;
  double longest = 0;
  for (std::int64_t left = units; left > 0; --left) {
    const auto first = std::min_element(time.begin(), time.begin() + threads) - time.begin();
    std::int64_t share = first;
    while (next[static_cast<std::size_t>(share)] == units * (share + 1) / threads) share = (share + 1) % threads;
    const double taken = work(next[static_cast<std::size_t>(share)]++);
    time[static_cast<std::size_t>(first)] += taken;
    longest = std::max(longest, taken);
  }
  return *std::max_element(time.begin(), time.begin() + threads) + wait * longest;
}

/// How units follow one another that are `inputs` blocks of input times `weights` blocks of weights.
struct UnitOrder {
  std::int64_t inputs, weights;
  bool weights_outermost;  // consecutive units share weights, not input
};

/// The number of different blocks that units [first, end) read.
struct BlocksRead {
  std::int64_t inputs, weights;
};
constexpr BlocksRead blocks_read(const UnitOrder& order, std::int64_t first, std::int64_t end) {
  const std::int64_t inner = order.weights_outermost ? order.inputs : order.weights;
  const std::int64_t outer = (end - 1) / inner - first / inner + 1, of_inner = std::min(inner, end - first);
  return order.weights_outermost ? BlocksRead{of_inner, outer} : BlocksRead{outer, of_inner};
}

/// `floats` rounded up to whole cache lines: parts of a workspace begin at lines of their own.
constexpr std::size_t line_floats(std::int64_t floats) { return static_cast<std::size_t>(round_up(floats, 16)); }

/// The part size that cuts `total` into the fewest parts of at most `most`, all nearly equal.
constexpr std::int64_t even_part(std::int64_t total, std::int64_t most) {
  return ceil_div(total, ceil_div(total, most));
}

/// About half of `pixels`, in whole tiles of `tile` pixels.
constexpr std::int64_t half_of_tiles(std::int64_t pixels, std::int64_t tile) {
  return round_up(ceil_div(pixels, 2), tile);
}

/// Pixels cut into tiles of nearly equal width, of at most `most` pixels and a multiple of `step`.
struct Tiles {
  std::int64_t step, count, narrow, wide_tiles;
  Tiles(std::int64_t pixels, std::int64_t most, std::int64_t tile_step = 1)
      : step(tile_step),
        count(ceil_div(pixels / step, most / step)),
        narrow(pixels / step / count),
        wide_tiles(pixels / step % count) {}
  std::int64_t width(std::int64_t tile) const { return (narrow + (tile < wide_tiles ? 1 : 0)) * step; }
  std::int64_t begin(std::int64_t tile) const { return (narrow * tile + std::min(tile, wide_tiles)) * step; }
};

/// The number of taps that read coordinates before `bound`, of `taps` taps that read first, first + dilation, ...
constexpr std::int64_t taps_before(std::int64_t first, std::int64_t bound, std::int64_t dilation, std::int64_t taps) {
  return bound <= first ? 0 : std::min(taps, ceil_div(bound - first, dilation));
}

/// The taps [begin, end) that read coordinates in [0, size); empty where all of them read padding.
struct TapRange {
  std::int64_t begin, end;
};
constexpr TapRange taps_inside(std::int64_t first, std::int64_t size, std::int64_t dilation, std::int64_t taps) {
  const std::int64_t begin = taps_before(first, 0, dilation, taps);
  return {begin, std::max(begin, taps_before(first, size, dilation, taps))};
}

/// How the outputs along one axis of an image read it: output o, tap t reads coordinate o*stride + t*dilation - pad.
struct WindowAxis {
  std::int64_t size, outputs, taps, stride, dilation, pad;

  constexpr std::int64_t first(std::int64_t output) const { return output * stride - pad; }
  /// How far the last tap of the last output lies beyond the image; zero or less where it lies inside.
  constexpr std::int64_t overhang() const { return first(outputs - 1) + (taps - 1) * dilation + 1 - size; }
  constexpr bool padded() const { return pad > 0 || overhang() > 0; }
  /// The taps of one output that read the image.
  constexpr TapRange inside(std::int64_t output) const { return taps_inside(first(output), size, dilation, taps); }
  /// The number of outputs for which this tap reads the image: outputs lie `stride` apart as taps lie `dilation` apart.
  constexpr std::int64_t outputs_inside(std::int64_t tap) const {
    const TapRange found = taps_inside(tap * dilation - pad, size, stride, outputs);
    return found.end - found.begin;
  }
};
constexpr WindowAxis row_axis(const Conv2dProblem& p) { return {p.h, p.ho, p.r, p.stride_h, p.dilation_h, p.pad_top}; }
constexpr WindowAxis column_axis(const Conv2dProblem& p) {
  return {p.w, p.wo, p.s, p.stride_w, p.dilation_w, p.pad_left};
}

/// Whether output pixels are input pixels, one after another: 1x1, stride 1, no padding, no pool. Images then follow
/// one another in NHWC like the rows of one image.
constexpr bool is_pointwise(const Conv2dProblem& p) {
  return p.r == 1 && p.s == 1 && p.stride_h == 1 && p.stride_w == 1 && p.pad_top == 0 && p.pad_left == 0 &&
         p.ho == p.h && p.wo == p.w && p.pool.none();
}

/// A pointwise problem with all its pixels in one row: those of all images in NHWC, of each image in NCHW. Other
/// problems are unchanged.
constexpr Conv2dProblem with_pixels_in_a_row(Conv2dProblem p) {
  if (!is_pointwise(p)) return p;
  const std::int64_t pixels = p.h * p.w * (p.nhwc ? p.n : 1);
  if (p.nhwc) p.n = 1;
  p.h = p.ho = 1;
  p.w = p.wo = pixels;
  return p;
}

/// One input channel, and one or more output channels, in each of several groups.
constexpr bool has_single_channel_groups(const Conv2dProblem& p) { return p.groups > 1 && p.c == p.groups; }

/// One input and one output channel in each of several groups.
constexpr bool is_depthwise(const Conv2dProblem& p) { return p.groups > 1 && p.c == p.groups && p.k == p.groups; }

}  // namespace gable::cpu
