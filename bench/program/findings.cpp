// See findings.h.
#include "bench/program/findings.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "bench/common/text.h"

namespace gable::bench {
namespace {

/// The evidence comes from a simulation, and a program that follows the advice must run in one again.
constexpr const char* kWide = "-march=native (-march=haswell while W and Q are simulated: valgrind has no AVX-512)";

// Shares of the time from which a cause is named.
constexpr double kIdle = 0.5;             // of the wall time that no CPU was used
constexpr double kMinIdleSeconds = 0.01;  // a shorter wait is the program's start: the loader reads its libraries
constexpr double kSystem = 0.25;          // of the CPU time in the kernel
constexpr double kFasterWithout = 0.7;    // CPU time with the cause removed, against the time with it
constexpr double kFasterOnOneCpu =
    0.5;  // the same of all threads on one CPU: two threads of a core slow each other, down to 0.55
constexpr double kBranches = 0.25;  // of the CPU time for mispredictions
constexpr double kOfRoof = 0.5;
constexpr double kScalarOfRoof = 0.3;
constexpr double kOfBandwidth = 0.4;
constexpr double kUsedOfLine = 0.4;        // bytes that loads and stores touch for a byte of a filled line
constexpr double kFillsMatter = 1.0 / 64;  // lines filled for an instruction
constexpr double kMissesOfTime = 0.4;      // of the program's time, for misses one after another
constexpr double kStalled = 0.5;           // instructions a cycle
constexpr double kMayBeBandwidth = 1e9;    // B/s: of an unknown memory, more than a program that computes has
// Accesses a cycle: accesses that cross lines, and all accesses, where these count twice. The L1 serves two loads a
// cycle.
constexpr double kAcrossLines = 0.25;
constexpr double kBusyL1 = 1;
constexpr double kFlowing = 1.5;  // instructions a cycle; a chain of additions in a loop runs at less than 1
// A program with less is its own start. The system, too, must have seen at some of its ticks (1 to 10 ms) whether the
// kernel worked: by its share, a program of 15 ms whose loop takes 3 ms worked in the kernel alone.
constexpr double kMinCpuSeconds = 0.05;
// Arithmetic instructions a cycle: half of the two pipes that cores with SIMD have had for fused multiply-adds since
// 2013 (more for additions alone, on some).
constexpr double kBusyPipes = 1;
constexpr double kOfTime = 0.5;  // the kernel's share of the CPU time from which it comes first
// Costs. A misprediction refills the pipeline: 15 to 20 cycles on cores since 2013 (Fog: Microarchitecture). A page
// fault takes 0.25 us in the kernel and more where it zeroes the page; in a virtual machine whose host must find the
// page, too, 20 us were measured. A line from memory takes 60 to 120 ns, with misses of the TLB under nested page
// tables 250 ns and more (measured).
constexpr double kMispredictionCycles = 15;
constexpr double kMaxPageFaultSeconds = 25e-6;
constexpr double kPageBytes = 4096;
constexpr double kAgain = 2;  // page faults for each page that the program ever had at a time
constexpr double kMaxMissSeconds = 160e-9;
constexpr double kCudaStartSeconds = 1;    // in the kernel, until CUDA has made a context: 0.4 measured on an H200
constexpr double kLongWaitSeconds = 1e-3;  // shorter ones are other threads that do little

/// Seconds in which a CPU was free and the program did not use it; 0 if other programs may have used all CPUs. What the
/// queue does not say (of threads, and of processes that it waited for) is guessed from who took the CPU away.
double idle_seconds(const RunEvidence& run) {
  const double idle = run.seconds - run.cpu_seconds - run.queued_seconds;
  return idle > kIdle * run.seconds && idle >= kMinIdleSeconds && run.waits >= run.preemptions ? idle : 0;
}

class Findings {
 public:
  explicit Findings(const ProgramEvidence& evidence) : e_(evidence) {}

  std::vector<Regime> all() {
    waiting();
    if (e_.run.cpu_seconds < kMinCpuSeconds) return std::move(found_);
    const std::size_t first_of_kernel = found_.size();
    system();
    const std::size_t first_of_program = found_.size();
    experiments();
    if (e_.work) {
      branches(*e_.work);
      memory(*e_.work, first_of_program);
      arithmetic(*e_.work);
      if (found_.size() == first_of_program && !kernel_comes_first()) {
        unaligned(*e_.work);
        if (found_.size() == first_of_program) latency(*e_.work);
      }
    }
    if (!kernel_comes_first()) {
      const auto at = [this](std::size_t index) { return found_.begin() + static_cast<std::ptrdiff_t>(index); };
      std::rotate(at(first_of_kernel), at(first_of_program), found_.end());
    }
    return std::move(found_);
  }

 private:
  void add(const char* name, std::string evidence, std::vector<std::string> advice) {
    found_.push_back({name, std::move(evidence), std::move(advice)});
  }
  double cpu() const { return std::max(e_.run.cpu_seconds, 1e-9); }
  /// CPU time in the program's own code; only this is simulated.
  double own() const { return std::max(cpu() - e_.run.system_seconds, 1e-9); }
  double busy_seconds() const { return own() / e_.threads; }
  bool many_waits() const { return idle_seconds(e_.run) > 0 && waits_are_short(); }
  bool kernel_comes_first() const { return many_waits() || e_.run.system_seconds > kOfTime * cpu(); }

  bool waits_are_short() const { return idle_seconds(e_.run) < kLongWaitSeconds * e_.run.waits; }

  void waiting() {
    if (idle_seconds(e_.run) <= 0 || waits_are_short()) return;
    if (e_.run.gpu_seconds > kIdle * e_.run.seconds) return;  // it waits for its kernels
    add("waiting",
        fmt::format("the CPUs worked {} of {}; the program waited {}", seconds_text(cpu()),
                    seconds_text(e_.run.seconds),
                    e_.run.waits == 1 ? "once" : fmt::format("{:.0f} times", e_.run.waits)),
        {"overlap input, output and communication with the computation", "look for locks and sleeps"});
  }

  void system() {
    const double in_kernel = e_.run.system_seconds;
    if (in_kernel < kSystem * cpu() && !many_waits()) return;
    if (e_.run.gpu_seconds > 0 && in_kernel < kCudaStartSeconds) return;
    const std::string share = fmt::format("{:.0f} % of the CPU time is the kernel's", 100 * in_kernel / cpu());
    if (!many_waits() && e_.run.page_faults * kMaxPageFaultSeconds > kOfTime * in_kernel) {
      page_faults(share);
    } else {
      add("overhead",
          fmt::format("{}, with {:.0f} waits and {:.0f} page faults: system calls and thread starts, not work", share,
                      e_.run.waits, e_.run.page_faults),
          {"give each call, task and message more to do", "start threads once; buffer input and output"});
    }
  }

  /// Memory that is touched once costs a fault for each page; more faults than pages are memory given back and taken
  /// again.
  void page_faults(const std::string& share) {
    const double pages = e_.run.resident_bytes / kPageBytes;
    const char* huge = "huge pages: madvise(MADV_HUGEPAGE), or GLIBC_TUNABLES=glibc.malloc.hugetlb=1";
    if (pages > 0 && e_.run.page_faults < kAgain * pages) {
      add("page faults",
          fmt::format("{}, with {:.0f} page faults: the first touch of each page of {}", share, e_.run.page_faults,
                      bytes_text(e_.run.resident_bytes)),
          {huge, "less memory: use buffers again, smaller types"});
      return;
    }
    add("page faults", fmt::format("{}, with {:.0f} page faults", share, e_.run.page_faults),
        {"allocate once and use the memory again; glibc: GLIBC_TUNABLES=glibc.malloc.trim_threshold=4294967296 and "
         "mmap_threshold alike keep freed memory",
         huge});
  }

  void experiments() {
    if (e_.cpu_seconds_flushed && *e_.cpu_seconds_flushed < kFasterWithout * cpu()) {
      add("denormals",
          fmt::format("with denormal numbers as zeros the CPU time is {} instead of {}",
                      seconds_text(*e_.cpu_seconds_flushed), seconds_text(cpu())),
          {"flush them: _mm_setcsr(_mm_getcsr() | 0x8040) in each thread, or link with -ffast-math",
           "scale the data, or stop iterating below the smallest normal number"});
    }
    if (e_.cpu_seconds_on_one_cpu && *e_.cpu_seconds_on_one_cpu < kFasterOnOneCpu * cpu()) {
      add("sharing",
          fmt::format("with all threads on one CPU the CPU time is {} instead of {}: they take cache lines from each "
                      "other, or spin while they wait",
                      seconds_text(*e_.cpu_seconds_on_one_cpu), seconds_text(cpu())),
          {"keep what different threads write at least 64 bytes apart (alignas(64), sums in local variables)",
           "fewer atomics and locks; a blocking wait instead of spinning"});
    }
  }

  void branches(const WorkEvidence& w) {
    if (e_.clock_hz <= 0) return;
    const double seconds = w.mispredictions * kMispredictionCycles / e_.clock_hz;
    if (seconds < kBranches * own()) return;
    add("branches",
        fmt::format("{:.3g} mispredicted branches in {:.3g} instructions, simulated with a simple predictor: about "
                    "{:.0f} % of the program's own CPU time at {:.0f} cycles each",
                    w.mispredictions, w.instructions, std::min(100.0, 100 * seconds / own()), kMispredictionCycles),
        {"compute both sides and select (conditional moves, vector masks)", "sort or partition the data first"});
  }

  void memory(const WorkEvidence& w, std::size_t first_of_program) {
    const double used = w.l1_fills > 0 ? w.bytes_accessed / (64 * w.l1_fills) : 1;
    if (used < kUsedOfLine && w.l1_fills > kFillsMatter * w.instructions) {
      add("scattered",
          fmt::format("loads and stores touch {:.0f} of the 64 bytes of each line that comes into the L1", 64 * used),
          {"walk along the fastest index: exchange loops, transpose the array, or structs of arrays",
           "block the loops so that a line is used again before it leaves the cache"});
    }
    const double rate = w.dram_bytes / busy_seconds();
    const bool is_stalled = e_.clock_hz > 0 && w.instructions < kStalled * own() * e_.clock_hz;
    const double miss_seconds = w.dram_bytes / 64 * kMaxMissSeconds;
    if (found_.size() == first_of_program && is_stalled && miss_seconds > kMissesOfTime * own() &&
        rate < kOfBandwidth * e_.ceilings.dram) {
      add("scattered",
          fmt::format(
              "{:.3g} lines come from memory at {:.0f} % of its bandwidth, while {:.2f} instructions a cycle run: "
              "loads wait for each other, at addresses that no prefetcher expects",
              w.dram_bytes / 64, 100 * rate / e_.ceilings.dram, w.instructions / (own() * e_.clock_hz)),
          {"several independent walks at once, or prefetch instructions", "data that are used together side by side"});
    }
    if (e_.ceilings.dram > 0 && rate > kOfBandwidth * e_.ceilings.dram) {
      add("memory:dram", bandwidth_used(rate),
          {"do more with each byte: fuse loops over the same data, block for the caches", "smaller types"});
    }
  }

  /// Own time is sampled at the system's ticks: where it is a small part of all, bytes by this time can exceed the
  /// roof.
  std::string bandwidth_used(double rate) const {
    if (rate > e_.ceilings.dram) {
      return fmt::format("its own code, {} of CPU time, moves data from and to memory at the measured bandwidth of {}",
                         seconds_text(own()), bandwidth_text(e_.ceilings.dram));
    }
    return fmt::format("{} from and to memory, {:.0f} % of the measured bandwidth", bandwidth_text(rate),
                       100 * rate / e_.ceilings.dram);
  }

  void arithmetic(const WorkEvidence& w) {
    const double rate = w.flop / busy_seconds();
    const bool is_scalar = w.flop > 0 && w.scalar_flop > 0.5 * w.flop;
    const double per_cycle = e_.clock_hz > 0 ? w.arithmetic / (own() * e_.clock_hz) : 0;
    if (e_.ceilings.flops > 0 && rate > kOfRoof * e_.ceilings.flops) {
      add("compute", fmt::format("{}, {:.0f} % of the measured peak", flops_text(rate), 100 * rate / e_.ceilings.flops),
          {"a smaller type (f32, bf16) has more lanes", "an algorithm with less arithmetic"});
    } else if (!is_scalar && per_cycle > kBusyPipes) {
      add("compute",
          fmt::format(
              "{:.2f} arithmetic instructions a cycle keep the pipes busy, at {}{}", per_cycle, flops_text(rate),
              e_.ceilings.flops > 0 ? fmt::format(", {:.0f} % of the measured peak", 100 * rate / e_.ceilings.flops)
                                    : ""),
          {"fused multiply-adds and wider vectors: -ffp-contract=fast, " + std::string(kWide),
           "an algorithm with less arithmetic"});
    }
    if (is_scalar && e_.ceilings.scalar_flops > 0 && rate > kScalarOfRoof * e_.ceilings.scalar_flops) {
      add("scalar",
          fmt::format("{:.0f} % of the arithmetic is scalar, at {:.0f} % of the scalar peak and {:.0f} % of the vector "
                      "units'",
                      100 * w.scalar_flop / w.flop, 100 * rate / e_.ceilings.scalar_flops,
                      100 * rate / e_.ceilings.flops),
          {"let the compiler use vectors: restrict, no calls and exits in the loop, -O3 " + std::string(kWide),
           "sums need -ffast-math or `#pragma omp simd reduction`"});
    }
  }

  void unaligned(const WorkEvidence& w) {
    if (!e_.accesses || e_.accesses->accesses <= 0 || e_.clock_hz <= 0) return;
    const perf::SampledAccesses& seen = *e_.accesses;
    const double per_cycle = w.instructions / (own() * e_.clock_hz) / seen.instructions;  // of what was seen
    const double across = seen.across_lines * per_cycle;
    if (across < kAcrossLines || seen.accesses * per_cycle + across < kBusyL1) return;
    add("unaligned",
        fmt::format("{:.0f} % of loads and stores cross from one cache line into the next, {:.2f} in a cycle: each "
                    "takes the L1 twice ({:.0f} instructions seen at {} random times)",
                    100 * seen.across_lines / seen.accesses, across, seen.instructions, seen.stops),
        {"begin arrays, and rows in them, at multiples of 64 bytes: aligned_alloc, alignas(64), padded rows",
         "where an array is given: some scalar steps until its address is a multiple"});
  }

  void latency(const WorkEvidence& w) {
    if (e_.clock_hz <= 0 || w.instructions <= 0) return;
    const double per_cycle = w.instructions / (own() * e_.clock_hz);
    if (per_cycle > kFlowing) {
      add("instructions",
          fmt::format("{:.2f} instructions a cycle: their number takes the time{}", per_cycle,
                      e_.ceilings.flops > 0 ? "" : ", unless memory or arithmetic is near its peak (--ceilings)"),
          {"wider vectors: -O3 " + std::string(kWide), "fewer of them: unrolling, an algorithm with less work"});
      return;
    }
    const double traffic = w.dram_bytes / busy_seconds();
    if (e_.ceilings.dram <= 0 && traffic > kMayBeBandwidth) {
      add("latency",
          fmt::format("{:.2f} instructions a cycle, and neither branches, denormals nor the kernel explain it: "
                      "instructions wait for memory, or for each other's results; {} come from and go to memory",
                      per_cycle, bandwidth_text(traffic)),
          {"--ceilings says whether that is all that this machine's memory can do"});
      return;
    }
    add("latency",
        fmt::format("{:.2f} instructions a cycle, and neither memory, branches, denormals nor the kernel explain it: "
                    "instructions wait for each other's results. Without a PMU, {}store forwarding, TLB misses and "
                    "busy ports can't be told from that",
                    per_cycle, e_.accesses ? "" : "and without --experiments unaligned accesses, "),
        {"several independent chains: unroll sums into 4 to 8 accumulators", "replace divisions and square roots"});
  }

  const ProgramEvidence& e_;
  std::vector<Regime> found_;
};

}  // namespace

std::vector<Regime> findings_of(const ProgramEvidence& evidence) { return Findings(evidence).all(); }

bool wants_accesses(const std::vector<Regime>& findings) {
  return !findings.empty() && (findings.front().name == "latency" || findings.front().name == "instructions");
}

bool wants_experiments(const ProgramEvidence& evidence) {
  const RunEvidence& run = evidence.run;
  return idle_seconds(run) <= 0 && run.system_seconds < kOfTime * run.cpu_seconds;
}

}  // namespace gable::bench
