// Host kernels of known W and Q: chains of multiplications and additions in registers, and sweeps through memory. A
// source that measures them wrongly is not trusted (calibration.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "perfcounters/machine.h"
#include "perfcounters/sources/source.h"

namespace gable::perf {

/// A sweep through memory, with the bytes per element where every line is fetched from and written back to the next
/// level. Ordinary stores fetch the line first (write-allocate), so a copy of 4-byte elements moves 12 bytes each,
/// not 8.
struct KnownSweep {
  std::string name;  ///< "read", "copy", "triad" (f32) or "daxpy" (f64)
  double bytes_per_element = 0;
  double loaded_bytes_per_element = 0;  ///< between core and L1
  double flop_per_element = 0;
};

const std::vector<KnownSweep>& known_sweeps();

/// One run of a known kernel: a sweep over its own arrays, allocated and written once here, or a chain of arithmetic by
/// its loop's name ("avx2 fma f32"), of `passes` iterations. `elements` of a sweep is a multiple of 256. Throws
/// std::invalid_argument for another number, or for a name that neither has.
std::function<void()> known_kernel(const std::string& name, std::size_t elements, std::int64_t passes);

/// For sources that count in this process: arithmetic of each width that this CPU has (W), and sweeps of four times the
/// last level, at most a quarter of the memory (Q(dram)).
std::vector<KnownWork> known_work_in_process(const Machine& machine, double flop_tolerance, double bytes_tolerance);

/// For sources that start `helper`: the sweeps on `elements` elements, and one that fits the L1. `cold`: the caches
/// start empty, and every level moves the same bytes.
std::vector<KnownWork> known_sweeps_in_child(const std::string& helper, std::size_t elements, bool cold,
                                             double tolerance);

/// The same for arithmetic of each width that this CPU has, so many instructions of each accumulator.
std::vector<KnownWork> known_chains_in_child(const std::string& helper, double tolerance,
                                             std::int64_t iterations = 1'000'000);

}  // namespace gable::perf
