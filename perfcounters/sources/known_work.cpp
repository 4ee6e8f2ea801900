// See known_work.h.
#include "perfcounters/sources/known_work.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <new>
#include <stdexcept>
#include <utility>

#include "perfcounters/ceilings/loops.h"
#include "perfcounters/sources/counted_region.h"

namespace gable::perf {
namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::size_t kElementsStep = 256;  // the loops have no tail

/// Zeroed and aligned; freed with the last copy of the callable that owns it.
template <class T>
std::shared_ptr<T[]> array_of(std::size_t elements) {
  auto* data = static_cast<T*>(::operator new(elements * sizeof(T), std::align_val_t(kAlignment)));
  std::fill_n(data, elements, T(1));
  return std::shared_ptr<T[]>(data, [](T* p) { ::operator delete(p, std::align_val_t(kAlignment)); });
}

std::size_t elements_beyond_caches(const Machine& machine) {
  constexpr std::size_t kArrays = 3;
  constexpr std::size_t kLeast = std::size_t{32} << 20;
  const std::size_t caches =
      machine.caches.l3.bytes * static_cast<std::size_t>(std::max(1, machine.caches.l3.instances)) +
      machine.caches.l2.bytes;
  const std::size_t wanted = std::max(4 * caches, kLeast);
  const std::size_t bytes = std::min(wanted, machine.memory.available_bytes / 4 / kArrays);
  return bytes / sizeof(float) / kElementsStep * kElementsStep;
}

/// Arithmetic that has events: f32, f64 and f16, not bf16.
std::vector<ComputeLoop> known_loops() {
  std::vector<ComputeLoop> loops = f32_loops();
  for (const ComputeLoop& loop : f64_loops()) loops.push_back(loop);
  for (const ComputeLoop& loop : half_precision_loops())
    if (loop.dtype == "f16") loops.push_back(loop);
  return loops;
}

constexpr std::int64_t kIterations = 1'000'000;

KnownWork known_chain(const ComputeLoop& loop, double tolerance, std::int64_t iterations = kIterations) {
  const double flop = static_cast<double>(iterations) * loop.instructions_per_iteration * loop.flop_per_instruction;
  return {.name = loop.name() + " chain",
          .workload = {.run = [run = loop.run, iterations] { run(iterations); }},
          .expected = {{Metric::flop, flop}},
          .tolerance = tolerance};
}

std::function<std::vector<std::string>(const ChildTask&)> child_of(const std::string& helper, const std::string& kernel,
                                                                   std::size_t elements, std::int64_t passes) {
  return [=](const ChildTask& task) {
    std::vector<std::string> argv{helper,       "counted",
                                  "--kernel",   kernel,
                                  "--elements", std::to_string(elements),
                                  "--passes",   std::to_string(passes)};
    for (std::string& word : task_arguments(task)) argv.push_back(std::move(word));
    return argv;
  };
}

}  // namespace

const std::vector<KnownSweep>& known_sweeps() {
  static const std::vector<KnownSweep> sweeps{
      {"read", 4, 4, 1}, {"copy", 12, 8, 0}, {"triad", 16, 12, 2}, {"daxpy", 24, 24, 2}};
  return sweeps;
}

std::function<void()> known_kernel(const std::string& name, std::size_t elements, std::int64_t passes) {
  for (const ComputeLoop& loop : known_loops())
    if (loop.name() == name) return [run = loop.run, passes] { run(passes); };
  if (elements == 0 || elements % kElementsStep != 0)
    throw std::invalid_argument(
        fmt::format("{} elements of the sweep '{}': must be a positive multiple of {}", elements, name, kElementsStep));
  if (name == "daxpy") {
    return [y = array_of<double>(elements), x = array_of<double>(elements), elements, passes] {
      daxpy_loop(y.get(), x.get(), elements, passes);
    };
  }
  if (name == "read") {
    return [b = array_of<float>(elements), elements, passes] {
      const float sum = read_loop(b.get(), elements, passes);
      asm volatile("" : : "m"(sum));
    };
  }
  if (name == "copy") {
    return [a = array_of<float>(elements), b = array_of<float>(elements), elements, passes] {
      copy_loop(a.get(), b.get(), elements, passes, false);
    };
  }
  if (name == "triad") {
    return [a = array_of<float>(elements), b = array_of<float>(elements), c = array_of<float>(elements), elements,
            passes] { triad_loop(a.get(), b.get(), c.get(), elements, passes, false); };
  }
  throw std::invalid_argument(fmt::format(
      "kernel '{}': known are read, copy, triad, daxpy, and the loops of this CPU, such as 'scalar f32'", name));
}

std::vector<KnownWork> known_work_in_process(const Machine& machine, double flop_tolerance, double bytes_tolerance) {
  std::vector<KnownWork> all;
  for (const ComputeLoop& loop : known_loops()) all.push_back(known_chain(loop, flop_tolerance));
  const std::size_t elements = elements_beyond_caches(machine);
  for (const KnownSweep& sweep : known_sweeps()) {
    if (sweep.name == "daxpy") continue;  // the same traffic as triad, in f64
    // Allocated at the first run: the arrays are several times the caches.
    auto work = std::make_shared<std::function<void()>>();
    all.push_back({.name = fmt::format("{} of {} MiB an array", sweep.name, elements * sizeof(float) >> 20),
                   .workload = {.run =
                                    [work, name = sweep.name, elements] {
                                      if (!*work) *work = known_kernel(name, elements, 1);
                                      (*work)();
                                    }},
                   .expected = {{Metric::dram_bytes, sweep.bytes_per_element * static_cast<double>(elements)}},
                   .tolerance = bytes_tolerance});
  }
  constexpr std::int64_t kPasses = 20'000;
  const std::size_t resident =
      std::max(machine.caches.l1d.bytes / 2 / sizeof(float), kElementsStep) / kElementsStep * kElementsStep;
  const double loaded = static_cast<double>(resident * sizeof(float)) * static_cast<double>(kPasses);
  all.push_back({.name = fmt::format("read of {} KiB, {} times", resident * sizeof(float) >> 10, kPasses),
                 .workload = {.run = known_kernel("read", resident, kPasses)},
                 .expected = {{Metric::dram_bytes, 0}},
                 .tolerance = bytes_tolerance,
                 .allowance = bytes_tolerance * loaded});
  return all;
}

std::vector<KnownWork> known_sweeps_in_child(const std::string& helper, std::size_t elements, bool cold,
                                             double tolerance) {
  const auto work = [&](const KnownSweep& sweep, std::size_t count, std::int64_t passes, bool from_memory) {
    const double moved = from_memory ? sweep.bytes_per_element * static_cast<double>(count) : 0;
    const double loaded = sweep.loaded_bytes_per_element * static_cast<double>(count) * static_cast<double>(passes);
    KnownWork known{.name = fmt::format("{} of {} elements, {} passes", sweep.name, count, passes),
                    .workload = {},
                    .expected = {{Metric::l2_bytes, moved}, {Metric::l3_bytes, moved}, {Metric::dram_bytes, moved}},
                    .tolerance = tolerance,
                    .allowance = from_memory ? 0 : tolerance * loaded};
    if (from_memory && cold) known.workload.flush = [] {};
    known.workload.child = child_of(helper, sweep.name, count, passes);
    return known;
  };
  std::vector<KnownWork> all;
  for (const KnownSweep& sweep : known_sweeps()) all.push_back(work(sweep, elements, 1, true));
  constexpr std::size_t kInsideL1 = 2048;  // 8 KiB
  all.push_back(work(known_sweeps().front(), kInsideL1, 100, false));
  return all;
}

std::vector<KnownWork> known_chains_in_child(const std::string& helper, double tolerance, std::int64_t iterations) {
  std::vector<KnownWork> all;
  for (const ComputeLoop& loop : known_loops()) {
    KnownWork known = known_chain(loop, tolerance, iterations);
    known.workload.run = nullptr;
    known.workload.child = child_of(helper, loop.name(), 0, iterations);
    all.push_back(std::move(known));
  }
  return all;
}

}  // namespace gable::perf
