// The model by which `auto` compares CPU devices: tables for CPUs with AMX, with full-width AVX-512, and others.
#include "backends/shape_model.h"

#include <doctest/doctest.h>

#include <cmath>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "backends/cpu/cpu_shape_fits.h"
#include "backends/cpu/cpu_shape_fits_amx.h"
#include "backends/cpu/cpu_shape_fits_wide.h"
#include "backends/onednn/onednn_shape_fits.h"
#include "backends/onednn/onednn_shape_fits_3.h"
#include "backends/onednn/onednn_shape_fits_amx.h"
#include "backends/onednn/onednn_shape_fits_wide.h"
#include "backends/onednn/onednn_shape_fits_wide_3.h"
#include "backends/onednn/shared_lines.h"
#include "common/bf16_units.h"

using namespace gable;

namespace {

Conv2dProblem spatial(DType dtype, std::int64_t images = 1, bool nhwc = true) {
  Conv2dProblem p;
  p.n = images, p.c = p.k = 256, p.h = p.w = p.ho = p.wo = 14, p.r = p.s = 3, p.pad_top = p.pad_left = 1;
  p.dtype = dtype, p.nhwc = nhwc;
  return p;
}

double seconds(const Conv2dProblem& p, const ShapeFits& fits, bool amx) {
  return modelled_seconds(p, host_rates(p.dtype, 1, amx), fits);
}

}  // namespace

TEST_CASE("shape model: every type, layout and number of images has a plausible time, with AMX and without") {
  for (const bool amx : {false, true}) {
    const std::vector<const ShapeFits*> with{&kCpuShapeFitsAmx, &kOnednnShapeFitsAmx};
    const std::vector<const ShapeFits*> without{&kCpuShapeFits,     &kOnednnShapeFits,     &kOnednnShapeFits3,
                                                &kCpuShapeFitsWide, &kOnednnShapeFitsWide, &kOnednnShapeFitsWide3};
    for (const ShapeFits* fits : amx ? with : without) {
      for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
        for (const bool nhwc : {true, false}) {
          const double one = seconds(spatial(dtype, 1, nhwc), *fits, amx);
          const double eight = seconds(spatial(dtype, 8, nhwc), *fits, amx);
          CAPTURE(amx);
          CAPTURE(nhwc);
          CAPTURE(to_string(dtype));
          CHECK(one > 20e-6);  // 231 million FLOP
          CHECK(one < 50e-3);
          CHECK(eight > 3 * one);
          CHECK(eight < 32 * one);  // fitted to one thread and to several together
        }
      }
    }
  }
}

TEST_CASE("shape model: with AMX f16 is a type of its own, in which oneDNN has no tiles") {
  const Conv2dProblem f16 = spatial(DType::f16);
  CHECK(seconds(f16, kOnednnShapeFitsAmx, true) > 2 * seconds(f16, kCpuShapeFitsAmx, true));
  CHECK(seconds(f16, kCpuShapeFitsAmx, true) > 1.5 * seconds(spatial(DType::bf16), kCpuShapeFitsAmx, true));
  CHECK(seconds(spatial(DType::bf16), kCpuShapeFitsAmx, true) <
        0.5 * seconds(spatial(DType::bf16), kCpuShapeFits, false));
}

TEST_CASE("shape model: a vector is a class of its own, and so is one image on several threads") {
  Conv2dProblem p;
  p.n = 1, p.c = 64, p.k = 32, p.h = p.w = p.ho = p.wo = p.r = p.s = 1;
  p.dtype = DType::bf16, p.nhwc = true;
  CHECK(shape_class(p) == ShapeClass::vectors);
  p.h = p.ho = 2;
  CHECK(shape_class(p) == ShapeClass::pointwise);
  p.h = p.ho = 1;
  p.c = 6;
  CHECK(shape_class(p) == ShapeClass::vectors);
  p.c = 64;
  const auto time = [&](const ShapeFits& fits, int threads) {
    return modelled_seconds(p, host_rates(p.dtype, threads, true), fits);
  };
  // oneDNN wakes all threads for it.
  CHECK(time(kOnednnShapeFitsAmx, 4) > 1.5 * time(kCpuShapeFitsAmx, 4));
  CHECK(time(kOnednnShapeFitsAmx, 4) > 1.5 * time(kOnednnShapeFitsAmx, 1));
}

TEST_CASE("shape model: a core that is twice as fast does large layers in less time, and calls and bytes as before") {
  const auto time = [](const Conv2dProblem& p, double speed) {
    return modelled_seconds(p, host_rates(p.dtype, 1, false, speed), kCpuShapeFits);
  };
  CHECK(time(spatial(DType::f32), 2) < 0.75 * time(spatial(DType::f32), 1));
  Conv2dProblem vector;
  vector.n = 1, vector.c = vector.k = 1024, vector.h = vector.w = vector.ho = vector.wo = vector.r = vector.s = 1;
  vector.nhwc = true;
  CHECK(time(vector, 2) == time(vector, 1));
}

TEST_CASE("shape model: cpu's depthwise kernels need about as long for 12 channels as for 16, and less for 8") {
  const auto time = [](std::int64_t channels) {
    Conv2dProblem p = spatial(DType::bf16);
    p.c = p.k = p.groups = channels;
    return seconds(p, kCpuShapeFits, false);
  };
  CHECK(time(12) > 0.9 * time(16));
  CHECK(time(8) < 0.9 * time(16));
}

TEST_CASE("shape model: cores that do two full vectors a cycle have tables of their own") {
  CHECK_FALSE(is_wide(1));     // Zen 4
  CHECK_FALSE(is_wide(1.31));  // 32 multiply-adds a cycle at 2.4 GHz
  CHECK(is_wide(1.6));
  CHECK(is_wide(2.14));  // Zen 5
  // cpu's bf16 kernel is made for 32 channels: 16 take more than half as long, more so than oneDNN's.
  const auto time = [](std::int64_t channels, const ShapeFits& fits) {
    Conv2dProblem p;
    p.n = 1, p.c = 3, p.k = channels, p.h = p.w = 256, p.ho = p.wo = 128, p.r = p.s = 3, p.pad_top = p.pad_left = 1;
    p.stride_h = p.stride_w = 2;
    p.dtype = DType::bf16, p.nhwc = true;
    return modelled_seconds(p, host_rates(p.dtype, 1, false, 2.14), fits);
  };
  const auto share = [&](const ShapeFits& fits) { return time(16, fits) / time(32, fits); };
  for (const ShapeFits* const onednn : {&kOnednnShapeFitsWide, &kOnednnShapeFitsWide3}) {
    CHECK(share(kCpuShapeFitsWide) > 1.05 * share(*onednn));
    CHECK(time(32, kCpuShapeFitsWide) < time(32, *onednn));
  }
}

TEST_CASE(
    "shape model: NCHW depthwise with a wide stride takes cpu longer where planes are too large to be transposed") {
  const auto time = [](std::int64_t size) {
    Conv2dProblem p;
    p.n = 1, p.c = p.k = p.groups = 96, p.h = p.w = size, p.ho = p.wo = size / 4, p.r = p.s = 4;
    p.stride_h = p.stride_w = 4, p.nhwc = false;
    p.dtype = DType::bf16;
    return seconds(p, kCpuShapeFits, false) / static_cast<double>(size * size);
  };
  CHECK(time(40) > 1.5 * time(32));
}

TEST_CASE("shape model: layers of few pixels are told apart by their weights, and by windows beyond the image") {
  constexpr std::size_t kWeights = 26, kBeyond = 27;  // as in bench/fit_choice.py
  const auto log_time = [](std::int64_t size, std::int64_t window, std::int64_t images, std::size_t feature) {
    Conv2dProblem p;
    p.n = images, p.c = 64, p.k = 32, p.h = p.w = p.ho = p.wo = size, p.r = p.s = window;
    p.pad_top = p.pad_left = window / 2;
    p.dtype = DType::f32, p.nhwc = true;
    ShapeFit fit{.weights = {}, .least = -100, .most = 100};
    fit.weights[feature] = 1;
    ClassFits classes;
    classes.fill(fit);
    ShapeFits fits;
    for (auto& load : fits)
      for (auto& layout : load) layout.fill(classes);
    const Rates roof{.multiply_adds = 1e30, .bytes = 1e30, .call = 1};
    return std::log(modelled_seconds(p, roof, fits));
  };
  for (const std::int64_t images : {1, 8})
    CHECK(log_time(2, 3, images, kWeights) == doctest::Approx(std::log1p(64 * 32 * 9 / (96 * 4.0))));
  CHECK(log_time(2, 3, 1, kBeyond) == doctest::Approx(2 * std::log(1.5)));
  CHECK(log_time(9, 3, 1, kBeyond) == 0);
  CHECK(log_time(2, 9, 1, kBeyond) == doctest::Approx(2 * std::log(2.0)));
}

TEST_CASE(
    "shape model: what tiles don't hold and half empty panels are told apart; threads count up to those measured") {
  constexpr std::size_t kThreads = 16, kHalfPanel = 29, kBeyondTiles = 30;  // as in bench/fit_choice.py
  const auto log_time = [](std::int64_t outputs, int threads, std::size_t feature, std::int64_t inputs = 64) {
    Conv2dProblem p = spatial(DType::bf16);
    p.c = inputs, p.k = outputs;
    ShapeFits fits{};
    for (auto& load : fits)
      for (ClassFits& classes : load[0])
        for (ShapeFit& fit : classes) fit.weights[feature] = 1, fit.least = -9, fit.most = 9;
    const Rates rates = host_rates(p.dtype, threads, true);
    return std::log(modelled_seconds(p, rates, fits) / modelled_seconds(p, rates, ShapeFits{}));
  };
  CHECK(log_time(48, 1, kHalfPanel) == doctest::Approx(std::log(64 / 48.0)));
  CHECK(log_time(33, 1, kHalfPanel) == doctest::Approx(std::log(64 / 48.0)));
  for (const std::int64_t outputs : {8, 16, 32, 64}) CHECK(log_time(outputs, 1, kHalfPanel) == doctest::Approx(0));
  CHECK(log_time(64, 1, kBeyondTiles, 128) == doctest::Approx(0.5));
  CHECK(log_time(64, 1, kBeyondTiles, 64) == doctest::Approx(0));
  CHECK(log_time(16, 1, kBeyondTiles, 128) == doctest::Approx(0));
  CHECK(log_time(64, 4, kThreads) == doctest::Approx(std::log(4)));
  CHECK(log_time(64, 96, kThreads) == doctest::Approx(std::log(12)));
}

TEST_CASE("shape model: first layers are told apart by their windows") {
  constexpr std::size_t kLeavesOut = 20, kIsPatch = 21, kWaste16 = 22, kWaste32 = 23;  // as in bench/fit_choice.py
  const auto log_time = [](std::int64_t channels, std::int64_t window, std::size_t feature) {
    ShapeFits fits{};
    ShapeFit& fit = fits[0][0][0][static_cast<std::size_t>(ShapeClass::few_channels)];
    fit.weights[feature] = 1;
    fit.least = -9, fit.most = 9;
    Conv2dProblem p;
    p.n = 1, p.c = channels, p.k = 64, p.h = p.w = 224, p.ho = p.wo = 56, p.r = p.s = window;
    p.stride_h = p.stride_w = 4;
    p.dtype = DType::f32, p.nhwc = true;
    const Rates rates = host_rates(p.dtype, 1, false);
    const double with = modelled_seconds(p, rates, fits);
    fit.weights[feature] = 0;
    return std::log(with / modelled_seconds(p, rates, fits));
  };
  CHECK(log_time(3, 3, kLeavesOut) == doctest::Approx(1));
  CHECK(log_time(3, 4, kLeavesOut) == doctest::Approx(0));
  CHECK(log_time(3, 4, kIsPatch) == doctest::Approx(1));
  CHECK(log_time(3, 5, kIsPatch) == doctest::Approx(0));
  CHECK(log_time(3, 4, kWaste16) == doctest::Approx(std::log(16 / 12.0)));
  CHECK(log_time(3, 4, kWaste32) == doctest::Approx(std::log(32 / 12.0)));
}

TEST_CASE("shape model: groups are told apart by whole blocks of channels") {
  constexpr std::size_t kWhole = 24, kParts = 25;  // as in bench/fit_choice.py
  const auto found = [](std::int64_t groups, std::int64_t in, std::int64_t out, std::size_t feature) {
    ShapeFits fits{};
    for (ShapeFit& fit : fits[0][0][0]) {
      fit.weights[feature] = 1;
      fit.least = -9, fit.most = 9;
    }
    Conv2dProblem p = spatial(DType::f32);
    p.groups = groups, p.c = groups * in, p.k = groups * out;
    const Rates rates = host_rates(p.dtype, 1, false);
    return std::log(modelled_seconds(p, rates, fits) / modelled_seconds(p, rates, ShapeFits{}));
  };
  CHECK(found(2, 16, 32, kWhole) == doctest::Approx(1));
  CHECK(found(2, 16, 24, kWhole) == doctest::Approx(0));
  CHECK(found(1, 16, 32, kWhole) == doctest::Approx(0));
  CHECK(found(2, 4, 12, kParts) == doctest::Approx(1));
  CHECK(found(2, 16, 16, kParts) == doctest::Approx(0));
  CHECK(found(16, 1, 4, kParts) == doctest::Approx(0));
}

TEST_CASE(
    "shape model: oneDNN's threads that take a group each share lines of a pixel, unless groups are whole lines") {
  const auto shares = [](std::int64_t out, std::int64_t groups = 2, int threads = 2, bool amx = false) {
    const Conv2d c{.input = {1, 4 * groups, 70, 70},
                   .weights = {out * groups, 4, 1, 1},
                   .groups = groups,
                   .dtype = DType::bf16,
                   .layout = Layout::nhwc};
    return onednn::threads_share_lines(c, threads, amx);
  };
  for (const std::int64_t out : {16, 20, 24, 40, 48}) CHECK(shares(out));
  for (const std::int64_t out : {8, 32, 64}) CHECK_FALSE(shares(out));
  CHECK_FALSE(shares(16, 2, 1));
  CHECK_FALSE(shares(16, 3));
  CHECK_FALSE(shares(16, 4));
  CHECK_FALSE(shares(16, 4, 4));
  CHECK_FALSE(shares(16, 2, 2, true));

  Conv2d c{.input = {1, 8, 70, 70}, .weights = {32, 4, 1, 1}, .groups = 2, .dtype = DType::bf16};
  CHECK(onednn::shared_line_seconds(c, 2, false) == 0);  // NCHW
  c.layout = Layout::nhwc;
  CHECK(onednn::shared_line_seconds(c, 2, false) == doctest::Approx(49e-6));
  c.weights = {32, 4, 3, 3};
  CHECK(onednn::shared_line_seconds(c, 2, false) == 0);
  c.weights = {32, 4, 1, 1};
  c.dtype = DType::f32;
  CHECK(onednn::shared_line_seconds(c, 2, false) == 0);
}

TEST_CASE("shape model: the speed of this machine's cores is measured, but for those with AMX") {
  CHECK(host_speed(true) == 1);
  CHECK(host_speed(false) > 1e-3);
  CHECK(host_speed(false) < 1e2);
  CHECK(host_speed(false) == host_speed(false));
}

TEST_CASE("shape model: with AMX a slow core makes every predicted time longer alike, within limits") {
  CHECK(host_slowness(false) == 1);
  CHECK(host_slowness(true) >= 0.25);
  CHECK(host_slowness(true) <= 4);
  CHECK(host_slowness(true) == host_slowness(true));
}

#if defined(__linux__) && defined(__x86_64__)
TEST_CASE("AMX is usable where the kernel names it") {
  std::ostringstream text;
  text << std::ifstream("/proc/cpuinfo").rdbuf();
  const bool named = text.str().find(" amx_bf16") != std::string::npos;
  CHECK((amx_state() == AmxState::usable) == named);
}
#endif

TEST_CASE("AMX is usable where the CPU has it and the system lends the tiles' state") {
  constexpr std::uint64_t kTileData = 1u << 18;
  const Bf16Units all{.pair_products = true, .tiles = true};
  CHECK(detail::amx_state_of(all, kTileData) == AmxState::usable);
  CHECK(detail::amx_state_of(all, kTileData | 7) == AmxState::usable);
  CHECK(detail::amx_state_of(all, 7) == AmxState::withheld);
  CHECK(detail::amx_state_of({.pair_products = true}, kTileData) == AmxState::absent);
  CHECK(detail::amx_state_of({.tiles = true}, kTileData) == AmxState::absent);
}
