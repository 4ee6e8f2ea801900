// See kernel_findings.h.
#include "bench/program/kernel_findings.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "bench/common/text.h"
#include "bench/record/headroom.h"

namespace gable::bench {
namespace {

// Shares from which a cause is named.
constexpr double kLaunches = 0.25;      // of a launch that is waited for: about what one of many costs
constexpr double kBusy = 0.6;           // of the multiprocessors' cycles with warps
constexpr double kLocal = 0.2;          // of the sectors of L1: those of local memory
constexpr double kUsedOfSector = 0.5;   // of the bytes of the sectors that loads and stores touch
constexpr double kUnitStride = 16;      // sectors for an access of a warp, at most: 16 bytes a thread
constexpr double kSectorsMatter = 0.1;  // sectors for a cycle of a multiprocessor: a seventh of what an H200 reads
constexpr double kConflicts = 0.5;      // of the wavefronts of shared memory
constexpr double kSharedBusy = 0.3;     // of the cycles: wavefronts of shared memory, one a cycle at most
constexpr double kActiveThreads = 0.5;  // of 32
constexpr double kAtomics = 0.3;        // of the sectors of L2
constexpr double kNearRoof = 50;        // percent
constexpr double kIssue = 0.6;          // of the issue slots
constexpr double kSector = 32;          // bytes
constexpr double kWarp = 32;            // threads

class KernelFindings {
 public:
  explicit KernelFindings(const KernelEvidence& evidence) : e_(evidence) {}

  std::vector<Regime> all() {
    if (count("warp instructions") <= 0) return {};
    overhead();
    blocks();
    local_memory();
    coalescing();
    bank_conflicts();
    divergence();
    atomics();
    roof();
    issue();
    if (found_.empty()) latency();
    return std::move(found_);
  }

 private:
  void add(std::string name, std::string evidence, std::vector<std::string> advice) {
    found_.push_back({std::move(name), std::move(evidence), std::move(advice)});
  }
  double count(const char* part) const {
    const auto found = e_.counts.find(part);
    return found != e_.counts.end() ? found->second : 0;
  }
  /// part / whole; 0 where the whole was not counted.
  static double share(double part, double whole) { return whole > 0 ? part / whole : 0; }
  double global_sectors() const { return count("l1 global load sectors") + count("l1 global store sectors"); }
  double issue_share() const { return share(count("issued instructions"), count("scheduler cycles with warps")); }

  void overhead() {
    if (e_.launch_seconds <= 0 || e_.seconds > kLaunches * e_.launch_seconds) return;
    add("overhead",
        fmt::format("it runs for {}, and a launch that is waited for takes {}", seconds_text(e_.seconds),
                    seconds_text(e_.launch_seconds)),
        {"more work a launch: fuse kernels, larger batches", "CUDA graphs"});
  }

  void blocks() {
    const double busy = share(count("multiprocessor cycles with warps"), count("multiprocessor cycles"));
    if (busy <= 0 || busy > kBusy || !found_.empty()) return;
    add("few blocks",
        fmt::format("multiprocessors have warps {:.0f} % of the time: the grid has too few blocks, or their last wave "
                    "is nearly empty",
                    100 * busy),
        {"smaller blocks, or less work a block", "split sums over blocks (split-K)"});
  }

  void local_memory() {
    const double local = count("l1 local load sectors") + count("l1 local store sectors");
    const double part = share(local, local + global_sectors());
    if (part < kLocal) return;
    add("local memory",
        fmt::format("{:.0f} % of the sectors that loads and stores touch in L1 are local memory: spilled registers, or "
                    "arrays with indices that the compiler does not know",
                    100 * part),
        {"more registers a thread: smaller blocks, __launch_bounds__ without a second number, -maxrregcount",
         "less live at a time: smaller tiles, unrolled loops over arrays"});
  }

  void coalescing() {
    const double sectors = global_sectors();
    const double accesses = count("global load instructions") + count("global store instructions");
    if (accesses <= 0 || sectors < kSectorsMatter * count("multiprocessor cycles")) return;
    const double used = share(count("global bytes asked for"), kSector * sectors);
    const bool wastes = used > 0 ? used < kUsedOfSector : sectors > kUnitStride * accesses;
    if (!wastes) return;
    add("uncoalesced",
        fmt::format("a global access of a warp touches {:.1f} sectors of 32 bytes{}", sectors / accesses,
                    used > 0 ? fmt::format(" and uses {:.0f} % of their bytes", 100 * used) : ""),
        {"neighbouring threads on neighbouring addresses: exchange loops or indices, structs of arrays",
         "stage tiles through shared memory"});
  }

  void bank_conflicts() {
    const double wavefronts = count("shared load wavefronts") + count("shared store wavefronts");
    const double conflicts = count("shared load bank conflicts") + count("shared store bank conflicts");
    const double accesses = count("shared load instructions") + count("shared store instructions");
    const double busy = share(wavefronts, count("multiprocessor cycles with warps"));
    if (wavefronts <= 0 || conflicts < kConflicts * wavefronts || busy < kSharedBusy) return;
    add("bank conflicts",
        fmt::format("a shared access of a warp takes {:.1f} wavefronts, {:.0f} % of them for conflicts; shared memory "
                    "is busy {:.0f} % of the time",
                    share(wavefronts, accesses), 100 * conflicts / wavefronts, 100 * busy),
        {"pad rows by an element, or swizzle addresses", "wider accesses of fewer threads"});
  }

  void divergence() {
    const double active = share(count("thread instructions not predicated off"), kWarp * count("warp instructions"));
    if (active <= 0 || active > kActiveThreads) return;
    add("divergence",
        fmt::format("{:.1f} of 32 threads work in an instruction of a warp, the others are inactive or predicated off",
                    kWarp * active),
        {"conditions that whole warps share: sort or compact the work first", "a thread for each element of the loop"});
  }

  void atomics() {
    const double atomic = count("l2 atomic sectors") + count("l2 reduction sectors");
    const double part = share(atomic, atomic + count("l2 read sectors") + count("l2 write sectors"));
    if (part < kAtomics || is_near_roof()) return;
    add("atomics", fmt::format("{:.0f} % of the sectors of L2 are atomic operations", 100 * part),
        {"sum in registers (__shfl_down_sync) and shared memory first, then one atomic a block",
         "several counters, summed at the end"});
  }

  bool is_near_roof() const {
    return e_.verdict.percent_of_roof.value_or(0) >= kNearRoof && e_.verdict.bound != "overhead";
  }

  void roof() {
    if (!is_near_roof()) return;
    const bool computes = e_.verdict.bound == "compute";
    add(e_.verdict.bound, headroom_text(e_.verdict),
        computes ? std::vector<std::string>{"a smaller type, or the tensor cores", "an algorithm with less arithmetic"}
                 : std::vector<std::string>{
                       "do more with each byte: fuse kernels, tiles in shared memory and registers", "smaller types"});
  }

  void issue() {
    const double issued = issue_share();
    if (issued < kIssue || is_near_roof()) return;
    add("issue slots",
        fmt::format("the schedulers issue an instruction in {:.0f} % of the cycles, and no roof explains the time",
                    100 * issued),
        {"fewer instructions for a FLOP: wider loads, unrolled loops, indices computed once", "tensor cores"});
  }

  void latency() {
    const double warps = share(count("warp cycles"), count("scheduler cycles with warps"));
    std::pair<std::string, double> most;
    double all = 0;
    for (const auto& [reason, stalled] : e_.stalls) {
      all += stalled;
      if (reason != "selected" && reason != "not selected" && stalled > most.second) most = {reason, stalled};
    }
    std::string evidence = fmt::format("{:.1f} warps on a scheduler issue an instruction in {:.0f} % of the cycles",
                                       warps, 100 * issue_share());
    if (all > 0 && most.second > 0)
      evidence += fmt::format(", mostly stalled by '{}' ({:.0f} %)", most.first, 100 * most.second / all);
    add("latency", std::move(evidence),
        {"more warps: fewer registers or less shared memory a block", "more independent work a thread (unroll)"});
  }

  const KernelEvidence& e_;
  std::vector<Regime> found_;
};

}  // namespace

std::vector<Regime> kernel_findings(const KernelEvidence& evidence) { return KernelFindings(evidence).all(); }

}  // namespace gable::bench
