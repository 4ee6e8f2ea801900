// The ceilings' loops and their measurement. gable_instrument_check, not this test, checks how fast they are.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "perfcounters/ceilings/arena.h"
#include "perfcounters/ceilings/ceilings.h"
#include "perfcounters/ceilings/loops.h"
#include "perfcounters/machine.h"
#include "perfcounters/sources/instruction_flop.h"

using namespace gable::perf;

namespace {

/// One iteration of the last loop before a function's return.
struct InnerLoop {
  int instructions = 0;
  int bytes = 0;  ///< of memory, read and written
};

/// How far the conditional jump `code` goes from its end; 0: it is no such jump.
std::ptrdiff_t jump_distance(const std::uint8_t* code) {
  if ((code[0] & 0xf0) == 0x70) return static_cast<std::int8_t>(code[1]);
  if (code[0] != 0x0f || (code[1] & 0xf0) != 0x80) return 0;
  std::int32_t distance = 0;
  std::memcpy(&distance, code + 2, sizeof distance);
  return distance;
}

InnerLoop inner_loop_of(void (*function)(std::int64_t)) {
  constexpr std::size_t kLongest = 15;
  constexpr std::uint8_t kReturn = 0xc3;
  const auto* code = reinterpret_cast<const std::uint8_t*>(function);
  std::vector<std::pair<const std::uint8_t*, int>> seen;  // its end, bytes of memory
  InnerLoop loop;
  while (*code != kReturn) {
    const InstructionFlop instruction = flop_of({code, kLongest});
    REQUIRE(instruction.length > 0);
    const std::ptrdiff_t distance = jump_distance(code);
    code += instruction.length;
    seen.emplace_back(code, instruction.bytes);
    if (distance >= 0) continue;
    loop = {};
    for (const auto& [end, bytes] : seen) {
      if (end > code + distance) ++loop.instructions, loop.bytes += bytes;
    }
  }
  return loop;
}

}  // namespace

TEST_CASE("each unit of this machine has its loops, which count its lanes and an FMA twice") {
  std::map<std::string, ComputeLoop> loops;
  for (const auto& of_type : {f32_loops, f64_loops, half_precision_loops, i8_loops})
    for (const ComputeLoop& loop : of_type()) CHECK(loops.emplace(loop.name(), loop).second);
  const Machine machine = describe_machine();
  std::map<std::string, int> expected{{"scalar f32", 1}, {"scalar f64", 1}};
#if defined(__x86_64__)
  if (machine.cpu.has("sse4")) expected["sse4 f32"] = 4, expected["sse4 f64"] = 2;
  if (machine.cpu.has("avx2") && machine.cpu.has("fma")) {
    expected["avx2 f32"] = 8;
    expected["scalar fma f32"] = 2;
    expected["sse4 fma f32"] = 8;
    expected["avx2 fma f32"] = 16;
    expected["avx2 f64"] = 4;
    expected["scalar fma f64"] = 2;
    expected["sse4 fma f64"] = 4;
    expected["avx2 fma f64"] = 8;
  }
  if (machine.cpu.has("avx_vnni")) expected["avx_vnni fma i8"] = 64;
  if (machine.cpu.has("avx512_vnni")) expected["avx512_vnni fma i8"] = 128;
  if (machine.cpu.has("avx512_bf16")) expected["avx512_bf16 fma bf16"] = 64;
  if (machine.cpu.has("avx512_fp16")) expected["avx512_fp16 fma f16"] = 64;
#elif defined(__aarch64__)
  expected["scalar fma f32"] = 2;
  expected["neon f32"] = 4;
  expected["neon fma f32"] = 8;
  expected["neon f64"] = 2;
  expected["neon fma f64"] = 4;
#endif
  for (const auto& unit : expected) {
    CAPTURE(unit.first);
    REQUIRE(loops.count(unit.first) == 1);
    CHECK(loops[unit.first].flop_per_instruction == unit.second);
  }
  for (const auto& entry : loops) {
    const ComputeLoop& loop = entry.second;
    CAPTURE(entry.first);
    CHECK(loop.instructions_per_iteration >= 4);
    REQUIRE((loop.run != nullptr));
    loop.run(100);
  }
}

#if defined(__x86_64__)
// A compiler that keeps the accumulators in memory would report its stores as the unit's speed.
TEST_CASE("the arithmetic loops leave memory alone") {
  if (!has_disassembler()) {
    MESSAGE("not checked: " << disassembler_reason());
    return;
  }
  for (const auto& of_type : {f32_loops, f64_loops, half_precision_loops, i8_loops}) {
    for (const ComputeLoop& loop : of_type()) {
      CAPTURE(loop.name());
      const InnerLoop inner = inner_loop_of(loop.run);
      CHECK(inner.instructions > loop.instructions_per_iteration);
      CHECK(inner.bytes == 0);
    }
  }
}
#endif

TEST_CASE("every ceiling is positive, its quartiles ordered, named once and carries a formula") {
  const Machine machine = describe_machine();
  std::set<std::string> seen;
  std::set<std::string> kinds;
  for (const Ceiling& ceiling : measure_ceilings(machine, {.quick = true, .progress = {}})) {
    CAPTURE(ceiling.name);
    CAPTURE(ceiling.threads);
    CHECK(ceiling.limit.value > 0);
    CHECK(ceiling.limit.q1 <= ceiling.limit.value);
    CHECK(ceiling.limit.value <= ceiling.limit.q3);
    CHECK(ceiling.limit.runs >= 3);
    CHECK_FALSE(ceiling.limit.formula.empty());
    CHECK((ceiling.kind == "compute" || (ceiling.kind == "bandwidth" && ceiling.working_set_bytes > 0)));
    CHECK((ceiling.threads == 1 || ceiling.threads == machine.threads.available));
    CHECK(seen.insert(ceiling.name + " " + std::to_string(ceiling.threads)).second);
  }
  for (const std::string name :
       {"scalar f32", "scalar f64", "l1 read", "l2 read", "dram read", "dram triad", "dram triad nt"}) {
    CAPTURE(name);
    CHECK(seen.contains(name + " 1"));
    CHECK(seen.contains(name + " " + std::to_string(machine.threads.available)));
  }
}

TEST_CASE("the read loop adds every float of every pass") {
  constexpr std::size_t kCount = 2560;
  const Arena arena(kCount * sizeof(float));
  REQUIRE(arena.data() != nullptr);
  std::fill_n(arena.data(), kCount, 0.0F);
  // It returns one lane of the sum: the lane of the first float, whatever the width of the vectors.
  for (std::size_t i = 0; i < kCount; ++i) arena.data()[i] = i % (load_bytes() / sizeof(float)) == 0 ? 1.0F : 1000.0F;
  const std::size_t loads = kCount * sizeof(float) / load_bytes();
  const auto in_lane = static_cast<float>(loads);
  CHECK(read_loop(arena.data(), kCount, 1) == in_lane);
  CHECK(read_loop(arena.data(), kCount, 3) == 3 * in_lane);
}

TEST_CASE("daxpy computes what it counts, once a pass") {
  constexpr std::size_t kCount = 256;
  const Arena arena(2 * kCount * sizeof(double));
  REQUIRE(arena.data() != nullptr);
  auto* y = reinterpret_cast<double*>(arena.data());
  double* x = y + kCount;
  for (std::size_t i = 0; i < kCount; ++i) y[i] = 1, x[i] = static_cast<double>(i);
  daxpy_loop(y, x, kCount, 2);
  for (std::size_t i = 0; i < kCount; ++i) CHECK(y[i] == 1 + 6 * static_cast<double>(i));
}

TEST_CASE("copy and triad compute what they count, also with non-temporal stores, and write nothing beyond") {
  constexpr std::size_t kCount = 512;
  const Arena arena(4 * kCount * sizeof(float));
  REQUIRE(arena.data() != nullptr);
  float* a = arena.data();
  float* b = a + 2 * kCount;
  float* c = b + kCount;
  for (const bool streaming : {false, true}) {
    for (std::size_t i = 0; i < kCount; ++i) b[i] = static_cast<float>(i), c[i] = static_cast<float>(2 * i);
    std::fill_n(a, 2 * kCount, -1.0F);
    copy_loop(a, b, kCount, 2, streaming);
    CHECK(std::equal(b, b + kCount, a));
    triad_loop(a, b, c, kCount, 2, streaming);
    for (std::size_t i = 0; i < kCount; ++i) CHECK(a[i] == static_cast<float>(7 * i));
    CHECK(std::all_of(a + kCount, b, [](float beyond) { return beyond == -1.0F; }));
  }
}

TEST_CASE("progress counts up to its total, and parts can be left out") {
  std::vector<int> done;
  int total = 0;
  CeilingOptions options{.quick = true, .compute = false, .progress = {}};
  options.progress = [&](const std::string& next, int count, int all) {
    CHECK_FALSE(next.empty());
    done.push_back(count);
    total = all;
  };
  Machine machine = describe_machine();
  machine.threads.cpus.resize(1);
  machine.threads.available = machine.threads.cores = 1;
  const auto ceilings = measure_ceilings(machine, options);
  CHECK(static_cast<int>(ceilings.size()) == total);
  CHECK(std::is_sorted(done.begin(), done.end()));
  CHECK(done.back() == total);
  for (const Ceiling& ceiling : ceilings) CHECK(ceiling.kind == "bandwidth");
}

TEST_CASE("working sets lie between the cache levels, also where threads share a cache") {
  Machine machine;
  machine.caches.l1d.bytes = 48 << 10;
  machine.caches.l2.bytes = 2 << 20;
  machine.caches.l3.bytes = 105 << 20;
  machine.caches.l1d.sharers = machine.caches.l2.sharers = 2;
  machine.caches.l3.sharers = 96;
  machine.caches.l3.instances = machine.caches.l2.instances = 1;
  machine.threads.available = 96;
  machine.memory.available_bytes = std::size_t{256} << 30;
  CHECK(working_set(machine, 1, true) == 12 << 10);
  CHECK(working_set(machine, 2, false) > machine.caches.l1d.bytes);
  CHECK(working_set(machine, 2, false) < machine.caches.l2.bytes);
  CHECK(working_set(machine, 3, false) > machine.caches.l2.bytes);
  CHECK(working_set(machine, 3, false) < machine.caches.l3.bytes);
  CHECK(working_set(machine, 3, true) > machine.caches.l2.bytes / 2);
  CHECK(working_set(machine, 3, true) * 96 < machine.caches.l3.bytes + 48 * machine.caches.l2.bytes);
  CHECK(working_set(machine, 0, true) * 96 >= 4 * machine.caches.l3.bytes - 96);
  machine.memory.available_bytes = std::size_t{1} << 30;
  CHECK(working_set(machine, 0, false) <= (std::size_t{1} << 30) / 12);
  machine.caches.l3.bytes = 0;
  CHECK(working_set(machine, 3, true) == 0);
}
