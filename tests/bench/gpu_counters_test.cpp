// GPU counters without a GPU: W and Q from counts, messages for failures, profiles from given spans.
#include <doctest/doctest.h>

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "bench/common/text.h"
#include "bench/record/profile_json.h"
#include "bench/report/profile.h"
#include "perfcounters/sources/cupti_source.h"
#include "perfcounters/sources/gpu_metrics.h"
#include "perfcounters/sources/gpu_profiler.h"

using namespace gable::perf;
using namespace gable::bench;
using nlohmann::json;

namespace {

std::string sass(const std::string& op) { return "smsp__sass_thread_inst_executed_op_" + op + "_pred_on.sum"; }

std::string output_of(const std::string& command) {
  std::string text;
  std::FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  REQUIRE(pipe != nullptr);
  char part[4096];
  while (const std::size_t got = std::fread(part, 1, sizeof part, pipe)) text.append(part, got);
  pclose(pipe);
  return text;
}

Span span(const std::string& group, const std::string& name, double start, double seconds, unsigned lane = 0) {
  return {.group = group,
          .name = name,
          .device = "cuda:0",
          .case_name = "one",
          .start = start,
          .seconds = seconds,
          .lane = lane};
}

const std::vector<Span>& some_spans() {
  static const std::vector<Span> spans{
      span(kApiCalls, "cudaLaunchKernel", 1.0, 0.002),     span(kGpuActivities, "kernel \"a\"", 1.5, 0.060, 7),
      span(kGpuActivities, "[memset]", 1.2, 0.005, 8),     span(kGpuActivities, "kernel \"a\"", 2.5, 0.020, 7),
      span(kGpuActivities, "[memcpy, up]", 1.1, 0.015, 7),
  };
  return spans;
}

}  // namespace

TEST_CASE("instruction roofline: instructions beside the transactions of each memory, from raw counts") {
  const GpuCounts counts{{"smsp__inst_executed.sum", 1000},
                         {"smsp__thread_inst_executed.sum", 30000},
                         {"smsp__thread_inst_executed_pred_on.sum", 24000},
                         {"smsp__inst_executed_op_global_ld.sum", 100},
                         {"smsp__inst_executed_op_global_st.sum", 20},
                         {"l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum", 3200},  // each thread a sector of its own
                         {"l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum", 80},    // unit stride
                         {"smsp__inst_executed_op_shared_ld.sum", 50},
                         {"l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum", 1600},  // 32-way conflicts
                         {"l1tex__t_bytes.sum", 3280 * 32},
                         {"lts__t_sectors_srcunit_tex.sum", 3000},
                         {"dram__bytes_read.sum", 6400},
                         {"dram__bytes_write.sum", 3200}};
  const auto found = gpu_instructions(counts);
  REQUIRE(found);
  CHECK(found->active_share() == 0.75);
  CHECK(found->levels.at("l1").transactions == 3280 + 1600 * 4);  // wavefronts are 128 B
  CHECK(found->levels.at("l2").transactions == 3000);
  CHECK(found->levels.at("dram").transactions == 300);
  CHECK(found->levels.at("dram").instructions == 1000);
  CHECK(found->levels.at("global").instructions == 120);
  CHECK(found->levels.at("global").transactions == 3280);
  CHECK(found->levels.at("shared").transactions / found->levels.at("shared").instructions == 32);
  CHECK_FALSE(gpu_instructions({{"dram__bytes_read.sum", 6400}}));
  GpuCounts resident = counts;
  resident["dram__bytes_read.sum"] = resident["dram__bytes_write.sum"] = 0;
  CHECK_FALSE(gpu_instructions(resident)->levels.contains("dram"));
}

TEST_CASE("W is the weighted sum of what was executed: FMA 2, matrix units 1, in f64 as in f32") {
  const GpuCounts counts{{sass("ffma"), 1000}, {sass("fadd"), 10},
                         {sass("fmul"), 5},    {sass("dfma"), 100},
                         {sass("dadd"), 3},    {"sm__ops_path_tensor_src_bf16_dst_fp32.sum", 65536},
                         {sass("hfma"), 0},    {"unrelated.sum", 1e9}};
  const gable::perf::Quantity work = gpu_work(counts);
  REQUIRE(work.value);
  CHECK(*work.value == 2 * 1000 + 10 + 5 + 2 * 100 + 3 + 65536);
  const auto parts = gpu_parts(gpu_work_terms(), counts);
  CHECK(parts.at("f32") == 2015);
  CHECK(parts.at("f64") == 203);
  CHECK(parts.at("tensor bf16") == 65536);
}

TEST_CASE("half-precision instructions are work where they are most of it, and loaded constants where they are not") {
  CHECK(*gpu_work({{sass("ffma"), 1000}, {sass("hfma"), 17}}).value == 2000);
  CHECK(*gpu_work({{sass("ffma"), 10}, {sass("hfma"), 1000}, {sass("hadd"), 50}}).value == 20 + 4000 + 100);
}

TEST_CASE("the names that two chips have for one operation are never counted together") {
  // GH100 has the first alone, GB100 and GA100 the other two.
  std::set<std::string> names;
  for (const GpuTerm& term : gpu_work_terms()) CHECK(names.insert(term.metric).second);
  CHECK(*gpu_work({{"sm__ops_path_tensor_src_fp16.sum", 7}}).value == 7);
  CHECK(*gpu_work({{"sm__ops_path_tensor_src_fp16_dst_fp16.sum", 7}, {"sm__ops_path_tensor_src_fp16_dst_fp32.sum", 8}})
             .value == 15);
}

TEST_CASE("instrumented code that counted nothing, NaNs and missing metrics are refused") {
  const gable::perf::Quantity graph =
      gpu_work({{kHardwareInstructions, 5000}, {kInstrumentedInstructions, 0}, {sass("ffma"), 0}});
  CHECK_FALSE(graph.value);
  CHECK(graph.reason.find("graph") != std::string::npos);
  CHECK(gpu_work({{kHardwareInstructions, 5000}, {kInstrumentedInstructions, 4990}, {sass("ffma"), 1}}).value);
  CHECK_FALSE(gpu_work({{sass("ffma"), std::numeric_limits<double>::quiet_NaN()}}).value);
  CHECK_FALSE(gpu_work({{sass("ffma"), -1}}).value);
  CHECK_FALSE(gpu_work({}).value);
}

TEST_CASE("Q: sectors of 32 bytes in L2, wavefronts of 128 in shared memory, TMA and wgmma's operands in L1") {
  CHECK(*weighted_sum(gpu_traffic_terms(Metric::l2_bytes), {{"lts__t_sectors_srcunit_tex.sum", 3}}).value == 96);
  const GpuCounts dram{{"dram__bytes_read.sum", 1000}, {"dram__bytes_write.sum", 24}};
  CHECK(*weighted_sum(gpu_traffic_terms(Metric::dram_bytes), dram).value == 1024);
  const GpuCounts l1{{"l1tex__t_bytes.sum", 1},
                     {"l1tex__m_xbar2l1tex_read_bytes_mem_global_op_tma_ld.sum", 10},
                     {"l1tex__m_l1tex2xbar_write_bytes_mem_global_op_tma_st.sum", 100},
                     {"l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum", 1},
                     {"l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum", 2},
                     {"l1tex__data_pipe_lsu_wavefronts_mem_shared_op_gmma.sum", 4}};
  CHECK(*weighted_sum(gpu_traffic_terms(Metric::l1_bytes), l1).value == 111 + 7 * 128);
  CHECK(gpu_traffic_terms(Metric::l3_bytes).empty());
}

TEST_CASE("each failure that CUPTI knows has a reason and a cure of its own") {
  struct Failure {
    int code;
    const char* reason;
    const char* cure;
  };
  const Failure failures[] = {{26, "another profiler has", "end the other"},
                              {33, "virtual", "passthrough"},
                              {35, "administrators", "NVreg_RestrictProfilingToAdminUsers=0"},
                              {39, "another profiler listens", "without ncu"},
                              {40, "hypervisor", "administrator"},
                              {41, "confidential", "off"},
                              {43, "MIG", "MIG"},
                              {kNoDriver, "the call", "driver"},
                              {kNoCupti, "the call", "LD_LIBRARY_PATH"},
                              {kNoPlugin, "the call", "headers"},
                              {kNoGpu, "the call", "CUDA_VISIBLE_DEVICES"},
                              {12345, "the call", "cupti_result.h"}};
  std::set<std::string> cures;
  for (const Failure& failure : failures) {
    CAPTURE(failure.code);
    const GpuFailure words = explain_gpu_failure(failure.code, "the call: it failed");
    CHECK(words.reason.find(failure.reason) != std::string::npos);
    CHECK(words.reason.find("the call: it failed") != std::string::npos);
    CHECK(words.cure.find(failure.cure) != std::string::npos);
    CHECK(cures.insert(words.cure).second);
  }
}

TEST_CASE("cupti's status names what it gives; without a GPU every quantity has the reason and a measurement too") {
  CuptiSource source;
  const SourceStatus status = source.status();
  CHECK(status.abilities.size() == 4);
  if (status.available) return;  // cupti_test covers this case
  CHECK_FALSE(status.reason.empty());
  CHECK_FALSE(status.cure.empty());
  Workload workload;
  workload.run = [] { FAIL("nothing may run where nothing can be counted"); };
  CHECK_THROWS_AS(source.measure(workload, {}), std::invalid_argument);
  workload.gpu = 0;
  const Reading reading = source.measure(workload, {});
  for (const Metric metric : CountOptions{}.metrics) {
    CHECK_FALSE(reading.at(metric).value);
    CHECK_FALSE(reading.at(metric).reason.empty());
  }
  CHECK(source.known_work().empty());
}

TEST_CASE("a plugin of another version is refused by name; for an absent one the message lists the searched folders") {
  const std::string wrong = output_of("GABLE_BACKEND_PATH='" GABLE_TEST_OLD_PLUGINS "' '" GABLE_COMMAND "' info");
  CHECK(wrong.find("built for gable 0.0.1; this is gable") != std::string::npos);
}

TEST_CASE("a profile has a table for each group, the most time first, with nvprof's numbers") {
  const std::vector<ProfileRow> rows = profile_rows(some_spans());
  REQUIRE(rows.size() == 4);
  CHECK(rows[0].name == "kernel \"a\"");
  CHECK(rows[0].group == kGpuActivities);
  CHECK(rows[0].calls == 2);
  CHECK(rows[0].total == doctest::Approx(0.080));
  CHECK(rows[0].average == doctest::Approx(0.040));
  CHECK(rows[0].least == doctest::Approx(0.020));
  CHECK(rows[0].greatest == doctest::Approx(0.060));
  CHECK(rows[0].percent == doctest::Approx(80));
  CHECK(rows[1].name == "[memcpy, up]");
  CHECK(rows[3].group == kApiCalls);
  CHECK(rows[3].percent == doctest::Approx(100));
  const std::string table = profile_table(rows);
  CHECK(table.find("GPU activities on cuda:0") < table.find("API calls on cuda:0"));
  for (const char* column : {"Time(%)", "Total", "Calls", "Avg", "Min", "Median", "Max", "Name"}) {
    CHECK(table.find(column) != std::string::npos);
  }
}

TEST_CASE("a row whose calls of one case spread is marked; the first call and cases of other sizes are no spread") {
  std::vector<Span> spans;
  const auto add = [&](const char* name, const char* one, std::initializer_list<double> seconds) {
    for (const double s : seconds) {
      spans.push_back(span(kCpuPhases, name, 0, s));
      spans.back().case_name = one;
    }
  };
  add("kernel quiet", "small", {9.0, 1.0, 1.01, 1.02, 1.0, 1.03});
  add("kernel quiet", "large", {50.0, 50.0, 51.0, 50.0, 50.5, 50.0});
  add("kernel busy", "small", {1.0, 1.0, 15.9, 1.0, 8.0, 1.1});
  add("kernel seldom", "small", {1.0, 20.0, 3.0});  // too few to say
  const std::vector<ProfileRow> rows = profile_rows(spans);
  const auto row = [&](std::string_view name) {
    return *std::find_if(rows.begin(), rows.end(), [&](const ProfileRow& one) { return one.name == name; });
  };
  CHECK(row("kernel quiet").slow_percent < 1);
  CHECK(row("kernel seldom").slow_percent == 0);
  CHECK(row("kernel busy").slow_percent == doctest::Approx(100 * (14.9 + 7 + 0.1) / 28));
  CHECK(row("kernel busy").median == doctest::Approx(1.0));
  const std::string table = profile_table(rows);
  CHECK(table.find("! kernel busy\n") != std::string::npos);
  CHECK(table.find("! kernel busy on cuda:0: 79 % of its time is what slow calls") != std::string::npos);
  CHECK(table.find("! kernel quiet") == std::string::npos);
}

TEST_CASE("the hottest rows are the fewest kernels that reach nine tenths of the kernels' time") {
  std::vector<Span> spans = some_spans();  // one kernel of 80 ms, beside copies and fills
  spans.push_back(span(kGpuActivities, "kernel b", 3, 0.015));
  spans.push_back(span(kGpuActivities, "kernel c", 4, 0.005));
  const std::vector<ProfileRow> rows = profile_rows(spans);
  const std::vector<ProfileRow> hot = hottest(rows, "cuda:0", kGpuActivities);
  REQUIRE(hot.size() == 2);
  CHECK(hot[0].percent == doctest::Approx(80));
  CHECK(hot[1].name == "kernel b");
  CHECK(hottest(rows, "cuda:0", kGpuActivities, 80).size() == 1);
  CHECK(hottest(rows, "cpu", kGpuActivities).empty());
}

TEST_CASE("CSV quotes what has commas and quotes, and has no formulas") {
  std::vector<Span> spans = some_spans();
  spans.push_back(span(kGpuActivities, "=cmd|' /C calc'!A0", 3, 0.015));
  const std::string csv = profile_csv(profile_rows(spans));
  CHECK(csv.find("\"'=cmd|' /C calc'!A0\"") != std::string::npos);
  CHECK(csv.find("\"kernel \"\"a\"\"\"") != std::string::npos);
  CHECK(csv.find("\"[memcpy, up]\"") != std::string::npos);
}

TEST_CASE("the trace is valid JSON with complete events in microseconds since the first, and names for its lanes") {
  const json trace = json::parse(chrome_trace(some_spans()).dump());
  std::size_t complete = 0, names = 0;
  double first = 1e9;
  for (const json& event : trace.at("traceEvents")) {
    CHECK(event.at("pid").is_number_integer());
    CHECK(event.at("tid").is_number_integer());
    if (event.at("ph") == "M") {
      ++names;
      continue;
    }
    CHECK(event.at("ph") == "X");
    CHECK(event.at("dur").get<double>() > 0);
    CHECK(event.at("args").at("case") == "one");
    first = std::min(first, event.at("ts").get<double>());
    ++complete;
  }
  CHECK(complete == some_spans().size());
  CHECK(names == 2 + 3);  // two processes; two streams and a thread
  CHECK(first == 0);
  CHECK(trace["traceEvents"].back()["ts"].get<double>() == doctest::Approx(0.1e6));
  CHECK(trace["traceEvents"].back()["dur"].get<double>() == doctest::Approx(15e3));
}

TEST_CASE("kernel names lose their parameters and their anonymous namespaces, and keep their template arguments") {
  CHECK(short_kernel_name("void gable::cuda::(anonymous namespace)::tile_kernel<128, 64, (gable::cuda::Act)1>(int, "
                          "float const*)") == "gable::cuda::tile_kernel<128, 64, (gable::cuda::Act)1>");
  CHECK(short_kernel_name("copy") == "copy");
}

TEST_CASE("gable profile on a CPU writes the phases as a table, CSV, JSON and a trace") {
  namespace fs = std::filesystem;
  const fs::path folder = fs::temp_directory_path() / ("gable_profile_test_" + std::to_string(::getpid()));
  fs::create_directories(folder);
  const std::string stem = (folder / "p").string();
  const std::string table =
      output_of("'" GABLE_COMMAND "' profile --problem mb1ic8ih12oc8oh12kh3ph1 --device cpu --runs 3 --csv '" + stem +
                ".csv' --trace '" + stem + ".trace' --json '" + stem + ".json'");
  CHECK(table.find("CPU phases on cpu") != std::string::npos);
  CHECK(table.find("pack weights") != std::string::npos);
  const json record = json::parse(std::ifstream(stem + ".json"));
  double percent = 0;
  int kernel_calls = 0;
  for (const json& row : record.at("profile")) {
    percent += row.at("percent").get<double>();
    if (row.at("name").get<std::string>().starts_with("kernel ")) kernel_calls += row.at("calls").get<int>();
  }
  CHECK(percent == doctest::Approx(100));
  CHECK(kernel_calls == 3);
  CHECK_FALSE(record.at("hottest").empty());
  CHECK(json::parse(std::ifstream(stem + ".trace")).at("traceEvents").size() == 2 + 1 + 1 + 3);
  std::ifstream csv(stem + ".csv");
  std::string header;
  std::getline(csv, header);
  CHECK(header ==
        "device,group,time_percent,total_seconds,calls,avg_seconds,min_seconds,max_seconds,name,"
        "median_seconds,slow_percent");
  fs::remove_all(folder);
}
