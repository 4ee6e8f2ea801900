// The times of this process's kernels: CUPTI's activity records, tied to the launches that they belong to and added up.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "perfcounters/cupti/injection/argument_hash.h"
#include "perfcounters/cupti/injection/launch_table.h"
#include "perfcounters/cupti/injection/launches.h"
#include "perfcounters/cupti/injection/reservoir.h"
#include "perfcounters/cupti/library.h"
#include "perfcounters/program/kernel_file.h"

namespace gable::cupti {

/// Gives each different text a small number.
class Names {
 public:
  int number_of(std::string_view text);
  const std::string& text_of(int number) const { return texts_[static_cast<std::size_t>(number)]; }

 private:
  std::unordered_map<std::string, int> numbers_;
  std::vector<std::string> texts_;
};

/// Thread-safe. CUPTI delivers records whenever it likes, so no call of CUPTI's or the driver's is made here.
class TimedKernels {
 public:
  /// `whole_graphs`: CUPTI records CUDA graphs as a whole.
  explicit TimedKernels(bool whole_graphs);

  /// A record of CUPTI's. Reads only those fields whose offsets are the same in every CUPTI since 12.6.
  void add(const CUpti_ActivityKernel9& record);
  void lose(std::size_t records);

  // What a launch's record will belong to, by its correlation number. `region` lives until the process ends.
  void note_launch(std::uint32_t correlation, const char* region, std::uint64_t arguments);
  /// Of a node of a graph that is unrolled. CUPTI gives them all the number of the graph's own launch.
  void note_unrolled_launch(std::uint32_t correlation, const char* region, KernelShape shape);
  void note_graph_launch(const CUpti_CallbackData& data, const char* region);

  /// A ReadGraph or a ClonedNode.
  template <typename Change>
  void note_change(Change change) {
    const std::lock_guard lock(mutex_);
    graphs_.keep(std::move(change));
  }
  void note_gpu(int gpu, const std::string& name);

  /// Graphs::number() and Graphs::launched() of a Call::graph_launch.
  std::uint64_t graph_number(const CUpti_CallbackData& data) const;
  Launched launched(const CUpti_CallbackData& data) const;

  std::vector<perf::KernelRecord> records() const;
  /// What is missing in them.
  std::vector<std::string> losses() const;

 private:
  /// Kernel, region, GPU, grid, block and arguments of a group of launches.
  struct Group {
    int kernel = 0, region = 0, gpu = 0;
    std::array<int, 3> grid{}, block{};
    std::uint64_t arguments = 0;
    auto operator<=>(const Group&) const = default;
  };
  struct Times {
    Reservoir all{};
    std::int64_t graph_calls = 0;  ///< launches of CUDA graphs
  };
  /// A launch of a graph, from the first kernel's begin to the last one's end.
  struct Span {
    std::uint64_t graph = 0, begin = 0, end = 0;
    int gpu = 0;
  };

  std::uint64_t arguments_of(const CUpti_ActivityKernel9& record, const Launch& launch);
  std::uint64_t take_unrolled(const CUpti_ActivityKernel9& record, std::vector<KernelShape>& shapes);
  void extend(const CUpti_ActivityKernel9& record, const Launch& launch);
  void append_graphs(std::vector<perf::KernelRecord>& records) const;
  perf::KernelRecord record_of(const Group& group, const Times& times) const;
  std::string gpu_name(int gpu) const;

  const bool whole_graphs_;
  mutable std::mutex mutex_;
  Names kernels_, regions_;
  std::map<Group, Times> times_;
  FirstArguments<Group> first_arguments_;
  LaunchTable launches_;
  std::map<std::uint32_t, Span> spans_;
  Graphs graphs_;
  std::map<std::uint32_t, std::vector<KernelShape>> unrolled_launches_;  ///< without a record so far
  std::map<int, std::string> gpus_;
  std::size_t lost_ = 0, untimed_ = 0;
};

}  // namespace gable::cupti
