// W and Q of the kernels of this process: CUPTI's range profiler with a range for each kernel, which runs as often as
// its metrics need passes; CUPTI restores the memory that it writes in between.
//
// The profiler is armed for launches that are still to be counted and disarmed after them, so that kernels with enough
// counted calls run at their own speed. Ranges come in the order of the launches, so a list of launches is kept while
// it is armed. Each range is then held against the number of blocks that its launch has: counts that may belong to
// another kernel are thrown away.
//
// Launches with other arguments are counted apart (arguments.h): they may do other work.
//
// The counts of dram are of launches that run once, in the program's own order: a kernel that runs again finds in the
// caches what CUPTI restored (a reduction would seem to write 23 MB).
//
// CUPTI does not tell the kernels of a CUDA graph apart. So some launches of a graph become launches of its nodes one
// by one (graph_unroller.h), and the launch itself does nothing. Where that can't be, the kernels get the counts of
// launches outside the graph with the same name, grid, block and arguments, if the instructions of those launches sum
// up to what the whole graph executed.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "perfcounters/cupti/injection/argument_hash.h"
#include "perfcounters/cupti/injection/counted_context.h"
#include "perfcounters/cupti/injection/graph_unroller.h"
#include "perfcounters/cupti/injection/launches.h"
#include "perfcounters/cupti/injection/session.h"
#include "perfcounters/sources/gpu_profiler.h"

namespace gable::cupti {

/// Sums over counted launches.
struct Counts {
  std::int64_t planned = 0;  ///< launches that were chosen to be counted
  std::int64_t calls = 0;    ///< of those, the ones whose counts came
  std::map<std::string, double> sums{};
  double least_instructions = 0, most_instructions = 0;  ///< of one call; 0: not counted
};

/// What has been counted of one kernel with one shape and the same arguments from one region.
struct CountedKernel {
  int gpu = 0;
  std::string gpu_name{};
  KernelShape shape{};
  std::string region{};
  std::int64_t most_calls = 0;  ///< that are counted
  Counts traffic{}, work{};     ///< as CountedContext::arm() parts them
  std::string reason{};         ///< why nothing was counted
};

class KernelCounter {
 public:
  KernelCounter(SessionFile& file, std::vector<std::string> metrics, int calls);
  ~KernelCounter();

  void context_created(CUcontext context);
  void context_ends(CUcontext context);
  /// Around each of known_calls(). From before() of a counted launch to its after() no other thread can launch.
  void before(CUpti_CallbackId call, const CUpti_CallbackData& data);
  void after(CUpti_CallbackId call, const CUpti_CallbackData& data);
  /// `done`: the process is about to end.
  void finish(bool done);

 private:
  struct Key {
    int gpu;
    KernelShape shape;
    std::string region;
    auto operator<=>(const Key&) const = default;
  };
  struct GraphKey {
    int gpu;
    std::string gpu_name, region;
    std::vector<KernelShape> kernels;
    auto operator<=>(const GraphKey&) const = default;
  };
  struct CountedGraph {
    Counts whole{};         ///< launches of the graph as it is
    bool unrolls = false;   ///< its launches can become launches of its nodes
    int launches = 0;       ///< that did
    std::string refusal{};  ///< why it does not unroll
  };
  /// The counts of a graph's kernel, unrolled or outside of it; null where there are none.
  const CountedKernel* outside(const GraphKey& graph, const KernelShape& shape) const;
  /// Why the counts outside the graph can't stand for those inside; empty if they can.
  std::string refusal(const GraphKey& key, const CountedGraph& graph) const;
  void append_graphs(std::vector<perf::KernelRecord>& records) const;

  void give_up(CountedContext& context, const perf::GpuProfilerError& error);
  void refuse_graphs(CountedContext& context, const perf::GpuProfilerError& error);
  void refuse_launch(const CountedContext& context, CUpti_CallbackId call, const CUpti_CallbackData& data);
  void before_launch(CountedContext& context, CUpti_CallbackId call, const CUpti_CallbackData& data);
  void before_graph(CountedContext& context, CUpti_CallbackId call, const CUpti_CallbackData& data);
  /// Counts the graph's kernels one by one if that is wanted and possible; the launch then does nothing.
  bool unroll(CountedContext& context, CUpti_CallbackId call, const CUpti_CallbackData& data,
              const std::vector<KernelShape>& kernels, CountedGraph& graph);
  CountedKernel& kernel_of(const CountedContext& context, KernelShape shape);
  bool wanted(const CountedContext& context, const CountedKernel& kernel, CountedContext::Armed what) const;
  /// What is to be counted of it now, traffic first.
  CountedContext::Armed wanted_of(const CountedContext& context, const CountedKernel& kernel) const;
  /// What is to be counted in a graph's next launch. One kind at a time: to change over takes longer than most kernels.
  CountedContext::Armed wanted_of(const CountedContext& context, const std::vector<KernelShape>& kernels);
  void disarm(CountedContext& context);
  void disarm_all();
  CountedContext* context_of(CUcontext context);
  void write(bool done);

  SessionFile& file_;
  const std::vector<std::string> metrics_;
  const std::int64_t calls_;
  std::recursive_mutex mutex_;
  std::map<CUcontext, std::unique_ptr<CountedContext>> contexts_;
  std::map<Key, CountedKernel> kernels_;
  FirstArguments<KernelShape> first_arguments_;
  std::map<GraphKey, CountedGraph> counted_graphs_;
  Counts* armed_graph_ = nullptr;
  Graphs graphs_;
  GraphUnroller unroller_;
  bool unrolls_ = false;                                ///< launches come from a graph that is being unrolled
  std::optional<CountedContext::Armed> unrolls_for_{};  ///< the only thing that is counted of them
  int captures_ = 0;  ///< streams that are being captured; the driver then forbids the calls that arm the profiler
};

}  // namespace gable::cupti
