// What takes a program's time, without a PMU: from the kernel's account of its run, from the simulation's counts, from
// ceilings, and from runs in which one thing is different (denormals flushed to zero; all threads on one CPU) or that
// are stopped at random times to see which addresses they access.
//
// Names: "waiting", "page faults", "overhead", "denormals", "sharing" (false sharing, locks), "branches", "scattered"
// (strided or random access), "memory:dram", "compute", "scalar" arithmetic, "unaligned" (accesses across lines),
// "instructions" (many, and none waits), "latency" (dependent instructions).
// What nothing here can tell: store forwarding, aliasing of 4 KiB, TLB misses, contention for ports. They end as
// "latency", whose evidence says so.
#pragma once

#include <optional>
#include <vector>

#include "bench/record/insight.h"
#include "perfcounters/program/sampled_accesses.h"

namespace gable::bench {

/// What the run under the clock showed.
struct RunEvidence {
  double seconds = 0, cpu_seconds = 0, system_seconds = 0;
  double queued_seconds = 0;  ///< it was ready to run, and other programs had the CPU; 0: not known
  double page_faults = 0;
  double resident_bytes = 0;  ///< most memory at a time: each of its pages was touched for a first time
  double waits = 0;
  double preemptions = 0;  ///< by other programs
  double gpu_seconds = 0;  ///< of all GPU kernels; 0: it has none
};

/// What the simulated run showed of the whole program.
struct WorkEvidence {
  double flop = 0, scalar_flop = 0;
  double instructions = 0;
  double arithmetic = 0;      ///< instructions with floating-point operations
  double mispredictions = 0;  ///< by a simple predictor
  double bytes_accessed = 0;  ///< by loads and stores
  double l1_fills = 0;        ///< lines
  double dram_bytes = 0;
};

/// Ceilings for the program's threads; 0 where they were not measured.
struct CeilingEvidence {
  double flops = 0;         ///< of the program's dtype
  double scalar_flops = 0;  ///< of scalar arithmetic with its threads
  double dram = 0;          ///< B/s
};

struct ProgramEvidence {
  RunEvidence run;
  int threads = 1;
  double clock_hz = 0;  ///< 0: not known
  std::optional<WorkEvidence> work{};
  CeilingEvidence ceilings{};
  std::optional<double> cpu_seconds_flushed{};     ///< of a run with denormals as zeros
  std::optional<double> cpu_seconds_on_one_cpu{};  ///< of a run of all threads on one CPU
  std::optional<perf::SampledAccesses> accesses{};
};

/// Whether a run with that change could find something: system and memory do not explain the time.
bool wants_experiments(const ProgramEvidence& evidence);

/// Whether the addresses that it accesses could tell more: nothing but its instructions explains the time.
bool wants_accesses(const std::vector<Regime>& findings);

/// The best supported cause first. Causes in the operating system's kernel come behind those in the program if the
/// program took more time. Empty if nothing is known.
std::vector<Regime> findings_of(const ProgramEvidence& evidence);

}  // namespace gable::bench
