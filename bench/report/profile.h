// What a run was made of: spans of time on a GPU, in the CUDA API or in phases on the CPU, as a table like nvprof's, as
// CSV, JSON and a trace for Chrome and Perfetto.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace gable::bench {

inline constexpr const char* kGpuActivities = "GPU activities";
inline constexpr const char* kApiCalls = "API calls";
inline constexpr const char* kCpuPhases = "CPU phases";

struct Span {
  std::string group;   ///< one of the three above: a table of its own
  std::string name;    ///< kernel, call or phase
  std::string device;  ///< the device's URI
  std::string case_name;
  double start = 0;  ///< seconds of one clock; only differences mean something
  double seconds = 0;
  unsigned lane = 0;                                  ///< stream or thread
  nlohmann::json details = nlohmann::json::object();  ///< grid, bytes, registers, ...
};

/// All spans of one name in one group on one device.
struct ProfileRow {
  std::string device;
  std::string group;
  std::string name;
  double percent = 0;  ///< of the time of its group on its device
  double total = 0;    ///< seconds, like the three below
  int calls = 0;
  double average = 0, least = 0, greatest = 0;
};

/// Devices in the order of their first span; groups in the order of the constants above; the most time first.
std::vector<ProfileRow> profile_rows(const std::vector<Span>& spans);

/// The fewest kernels (or phases) of a group that together make up `percent` of the time of all of them: copies and
/// fills, whose names stand in brackets, are left out, and `percent` of a row is what it is of the rest.
std::vector<ProfileRow> hottest(const std::vector<ProfileRow>& rows, const std::string& device,
                                const std::string& group, double percent = 90);

/// "void gable::cuda::(anonymous namespace)::naive_kernel<float>(float const*, ...)" ->
/// "gable::cuda::naive_kernel<float>".
std::string short_kernel_name(const std::string& demangled);

/// nvprof's columns: Time(%), Total, Calls, Avg, Min, Max, Name.
std::string profile_table(const std::vector<ProfileRow>& rows);
std::string profile_csv(const std::vector<ProfileRow>& rows);
nlohmann::json profile_json(const std::vector<ProfileRow>& rows);

/// Trace Event Format: complete events in microseconds since the first span, a process for each device and group, a
/// thread for each stream.
nlohmann::json chrome_trace(const std::vector<Span>& spans);

}  // namespace gable::bench
