// The roofline model on a small machine whose roofs are round numbers.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include "perfcounters/ceilings/ceilings.h"
#include "perfcounters/roofline/roofline.h"

using namespace gable::perf;

namespace {

Ceiling compute(const std::string& name, const std::string& dtype, int threads, double value) {
  Ceiling ceiling{.name = name, .kind = "compute", .isa_or_level = name, .dtype = dtype};
  ceiling.threads = threads;
  ceiling.limit.value = value;
  return ceiling;
}

Ceiling bandwidth(const std::string& level, int threads, double value) {
  Ceiling ceiling{.name = level + " read", .kind = "bandwidth", .isa_or_level = level, .dtype = "f32"};
  ceiling.threads = threads;
  ceiling.limit.value = value;
  return ceiling;
}

// A machine of 4 threads: 100 GFLOP/s a thread, bf16 unit of 800, DRAM saturated by two threads.
std::vector<Ceiling> small_machine() {
  return {compute("sse4", "f32", 1, 50e9),  compute("avx2", "f32", 1, 100e9), compute("sse4", "f32", 4, 200e9),
          compute("avx2", "f32", 4, 400e9), compute("amx", "bf16", 1, 800e9), compute("amx", "bf16", 4, 3200e9),
          bandwidth("l1", 1, 400e9),        bandwidth("l1", 4, 1600e9),       bandwidth("l2", 1, 200e9),
          bandwidth("l2", 4, 800e9),        bandwidth("l3", 1, 100e9),        bandwidth("l3", 4, 300e9),
          bandwidth("dram", 1, 20e9),       bandwidth("dram", 4, 40e9)};
}

bool mentions(const std::vector<std::string>& flags, const std::string& text) {
  return std::any_of(flags.begin(), flags.end(),
                     [&](const auto& flag) { return flag.find(text) != std::string::npos; });
}

}  // namespace

TEST_CASE("a dtype's roof is its best unit, or f32's where it has none") {
  const auto ceilings = small_machine();
  CHECK(compute_roof(ceilings, "f32", 0).value == 400e9);
  CHECK(compute_roof(ceilings, "bf16", 0).name == "amx");
  CHECK(compute_roof(ceilings, "f16", 0).name == "avx2");
  CHECK(compute_roof(ceilings, "f16", 1).value == 100e9);
}

TEST_CASE("f64 finds f64's roof, x87 that of scalar f64, bytes the integer unit's") {
  auto ceilings = small_machine();
  CHECK(compute_roof(ceilings, "f64", 0).value == 200e9);
  for (const auto& [name, dtype, value] :
       {std::tuple{"scalar f64", "f64", 20e9}, std::tuple{"scalar fma f64", "f64", 30e9},
        std::tuple{"avx2 fma f64", "f64", 180e9}, std::tuple{"avx512_vnni fma i8", "i8", 900e9}})
    ceilings.push_back(compute(name, dtype, 4, value));
  CHECK(compute_roof(ceilings, "f64", 0).name == "avx2 fma f64");
  CHECK(compute_roof(ceilings, "f64", 0).value == 180e9);
  CHECK(compute_roof(ceilings, "x87", 0).value == 20e9);
  CHECK(compute_roof(ceilings, "x87", 0).name == "scalar f64 for x87");
  CHECK(compute_roof(ceilings, "i8", 0).value == 900e9);
  CHECK(compute_roof(small_machine(), "i8", 0).name == "avx2");
}

TEST_CASE("a mix of types takes the time of each part under its own roof") {
  auto ceilings = small_machine();
  ceilings.push_back(compute("avx2 f64", "f64", 4, 100e9));
  RooflinePoint point{.flop = 500e9, .bytes = {}, .seconds = 4, .dtype = "f32", .threads = 4};
  point.flop_by_dtype = {{"f32", 400e9}, {"f64", 100e9}};  // 1 s and 1 s
  const Verdict verdict = judge(ceilings, point);
  CHECK(verdict.least_seconds == doctest::Approx(2));
  CHECK(verdict.percent_of_roof == doctest::Approx(50));
  CHECK(verdict.roof == "80 % avx2, 20 % avx2 f64");
  point.flop_by_dtype = {{"f64", 500e9}, {"f32", 0}};
  CHECK(judge(ceilings, point).roof == "avx2 f64");
}

TEST_CASE("between one thread and all, a roof scales up to the measured whole") {
  const auto ceilings = small_machine();
  CHECK(compute_roof(ceilings, "f32", 2).value == 200e9);
  CHECK(compute_roof(ceilings, "f32", 64).value == 400e9);
  CHECK(bandwidth_roof(ceilings, "dram", 1).value == 20e9);
  CHECK(bandwidth_roof(ceilings, "dram", 3).value == 40e9);  // 3 x 20 is more than all reach
  CHECK(bandwidth_roof(ceilings, "hbm", 1).value == 0);
}

TEST_CASE("the roof with the greatest least time bounds a point") {
  const auto ceilings = small_machine();
  const Verdict heavy =
      judge(ceilings, {.flop = 400e9, .bytes = {.dram = 1e9, .l3 = {}, .l2 = {}, .l1 = {}}, .seconds = 2});
  CHECK(heavy.bound == "compute");
  CHECK(heavy.roof == "avx2");
  CHECK(heavy.flops == 200e9);
  CHECK(heavy.attainable == doctest::Approx(400e9));
  CHECK(heavy.percent_of_roof == doctest::Approx(50));

  // Intensity 1 at DRAM: 40 GFLOP/s.
  const Verdict light =
      judge(ceilings, {.flop = 40e9, .bytes = {.dram = 40e9, .l3 = 40e9, .l2 = 40e9, .l1 = 40e9}, .seconds = 4});
  CHECK(light.bound == "memory:dram");
  CHECK(light.attainable == doctest::Approx(40e9));
  CHECK(light.percent_of_roof == doctest::Approx(25));
  CHECK(light.flags.empty());

  const auto bound = [&](Traffic bytes) { return judge(ceilings, {.flop = 1e9, .bytes = bytes, .seconds = 10}).bound; };
  CHECK(bound({.dram = 1e9, .l3 = 30e9, .l2 = 30e9, .l1 = 30e9}) == "memory:l3");
  CHECK(bound({.dram = 1e9, .l3 = 1e9, .l2 = 80e9, .l1 = 80e9}) == "memory:l2");
  CHECK(bound({.dram = 1e9, .l3 = 1e9, .l2 = 1e9, .l1 = 160e9}) == "memory:l1");
}

TEST_CASE("a pure copy is judged by its bytes") {
  const Verdict copy =
      judge(small_machine(), {.flop = 0, .bytes = {.dram = 40e9, .l3 = {}, .l2 = {}, .l1 = {}}, .seconds = 2});
  CHECK(copy.bound == "memory:dram");
  CHECK(copy.attainable == 0);
  CHECK(copy.percent_of_roof == doctest::Approx(50));
}

TEST_CASE("a short call far from every roof is bound by overhead, one near a roof is not") {
  const auto ceilings = small_machine();
  CHECK(judge(ceilings, {.flop = 4e5, .bytes = {}, .seconds = 10e-6}).bound == "overhead");
  CHECK(judge(ceilings, {.flop = 3.6e6, .bytes = {}, .seconds = 10e-6}).bound == "compute");
  CHECK(judge(ceilings, {.flop = 4e5, .bytes = {}, .seconds = 10e-3}).bound == "compute");
  CHECK(judge(ceilings, {.flop = 4e5, .bytes = {}, .seconds = 10e-6}, {.overhead_seconds = 5e-6}).bound == "compute");
}

TEST_CASE("impossible numbers are flagged, impossible input is refused") {
  const auto ceilings = small_machine();
  const Verdict inverted =
      judge(ceilings, {.flop = 1e9, .bytes = {.dram = 2e9, .l3 = {}, .l2 = 1e9, .l1 = 3e9}, .seconds = 1});
  CHECK(inverted.flags.size() == 1);
  CHECK(mentions(inverted.flags, "Q(l2)"));
  // A triad a = b + s c loads and stores 24 bytes an element, and moves 32: each line of a is read before it is stored.
  const Verdict triad =
      judge(ceilings, {.flop = 2e6, .bytes = {.dram = 32e6, .l3 = {}, .l2 = {}, .l1 = 24e6}, .seconds = 1});
  CHECK(triad.flags.empty());
  CHECK(mentions(judge(ceilings, {.flop = 500e9, .bytes = {}, .seconds = 1}).flags, "above the peak"));
  CHECK(
      mentions(judge(ceilings, {.flop = 1, .bytes = {.dram = 50e9, .l3 = {}, .l2 = {}, .l1 = {}}, .seconds = 1}).flags,
               "above the bandwidth"));
  CHECK_THROWS_AS(judge(ceilings, {.flop = 1, .bytes = {}, .seconds = 0}), std::invalid_argument);
  CHECK_THROWS_AS(judge(ceilings, {.flop = -1, .bytes = {}, .seconds = 1}), std::invalid_argument);
  CHECK_THROWS_AS(judge(ceilings, {.flop = std::nan(""), .bytes = {}, .seconds = 1}), std::invalid_argument);
}
