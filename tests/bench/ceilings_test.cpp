// How GPUs' measurements are held against their ceilings, and what the record says of both. The ceilings are made up;
// cuda_test measures real ones where there is a GPU.
#include <doctest/doctest.h>

#include <string>

#include "bench/measure/ceilings.h"
#include "bench/record/record.h"
#include "bench/record/schema.h"
#include "tests/tools/expect.h"

namespace gable::bench {
namespace {

using nlohmann::json;

Ceiling compute(const std::string& dtype, double flops) {
  return {.name = "unit " + dtype,
          .kind = Ceiling::Kind::compute,
          .unit = "unit",
          .dtype = dtype,
          .samples = {flops, flops * 0.9, flops * 1.1}};
}

Ceiling bandwidth(const std::string& level, double value, std::size_t bytes) {
  return {.name = level + " read",
          .kind = Ceiling::Kind::bandwidth,
          .level = level,
          .level_bytes = bytes,
          .samples = {value},
          .theoretical = 2 * value,
          .formula = "twice as much"};
}

/// f32 10, tf32 100, bf16 200 TFLOP/s; memory 2, L2 of 40 MB 5 TB/s; a launch that is waited for takes 10 us.
MachineCeilings one_gpu(int index = 0) {
  const std::string uri = "cuda:" + std::to_string(index);
  MachineCeilings ceilings;
  ceilings.gpus.push_back(
      gpu_ceilings({.uri = uri, .backend = "cuda", .available = true, .memory = {Memory::Kind::cuda, index}},
                   {compute("f32", 10e12),
                    compute("tf32", 100e12),
                    compute("bf16", 200e12),
                    bandwidth("dram", 2e12, 80'000'000'000),
                    bandwidth("l2", 5e12, 40'000'000),
                    {.name = "launch and wait", .unit = "s", .samples = {10e-6, 9e-6, 11e-6}},
                    {.name = "warp instructions", .unit = "instruction/s", .samples = {1e12}, .theoretical = 1.1e12}}));
  return ceilings;
}

json measurement(const std::string& device, double flop, double bytes, double seconds) {
  return {{"device", device},
          {"dtype", "f32"},
          {"cache", "warm"},
          {"threads", nullptr},
          {"T", {{"seconds", seconds}}},
          {"W", {{"flop", flop}}},
          {"Q", {{"dram", {{"source", "analytic"}, {"bytes", bytes}}}}}};
}

json judged(json one, const MachineCeilings& ceilings = one_gpu()) {
  json list = json::array({std::move(one)});
  judge_measurements(list, ceilings, perf::Machine{});
  return list[0];
}

TEST_CASE("a GPU's measurement is held against its own unit, or the memory that its tensors lie in") {
  const json busy = judged(measurement("cuda:0?kernel=naive", 5e9, 1e9, 1e-3));  // 0.5 ms of each
  CHECK(busy["percent_of_roof"].get<double>() == doctest::Approx(50));
  CHECK(judged(measurement("cuda:0", 6e9, 1e9, 1e-3))["bound"] == "compute");
  const json moving = judged(measurement("cudnn:0", 1e9, 1e9, 1e-3));
  CHECK(moving["bound"] == "memory:dram");
  CHECK(moving["roof"] == "dram read");
  json warm = measurement("cuda:0", 1e6, 39e6, 20e-6);
  CHECK(judged(warm)["bound"] == "memory:l2");
  warm["cache"] = "cold";
  CHECK(judged(warm)["bound"] == "memory:dram");
  json tf32 = measurement("cuda:0", 50e9, 1e6, 1e-3);
  tf32["math"] = "tf32";
  CHECK(judged(tf32)["percent_of_roof"].get<double>() == doctest::Approx(50));
}

TEST_CASE("f32 out of bf16 parts has the roof of bf16's products, a third or a sixth of it") {
  for (const auto& [math, products] : {std::pair{"split3", 3.0}, std::pair{"split6", 6.0}}) {
    CAPTURE(math);
    json split = measurement("cuda:0", 10e9, 1e6, 1e-3);
    split["math"] = math;
    const json verdict = judged(split);
    CHECK(verdict["percent_of_roof"].get<double>() == doctest::Approx(100 * 10e9 / (200e12 / products) / 1e-3));
    CHECK(contains(verdict["roof"].get<std::string>(), "unit bf16 / "));
    CHECK_FALSE(verdict.contains("flags"));
  }
}

TEST_CASE("f16 on AMX has the roof of its bf16 parts, other kernels that of f16's own unit") {
  const auto unit = [](const std::string& dtype, double value) {
    perf::Ceiling ceiling{.name = "unit " + dtype, .kind = "compute", .isa_or_level = "unit", .dtype = dtype};
    ceiling.threads = 1;
    ceiling.value = value;
    return ceiling;
  };
  const MachineCeilings cpu{.cpu = {unit("f16", 1e12), unit("bf16", 6e12)}, .gpus = {}};
  json one = measurement("cpu", 1e9, 1e3, 1e-3);
  one["dtype"] = "f16";
  one["threads"] = 1;
  one["kernel"] = "amx";
  CHECK(judged(one, cpu)["percent_of_roof"].get<double>() == doctest::Approx(50));
  one["kernel"] = "direct";
  CHECK(judged(one, cpu)["percent_of_roof"].get<double>() == doctest::Approx(100));
}

TEST_CASE("a short time far below the roof is a launch's cost; what is above a roof is flagged") {
  CHECK(judged(measurement("cuda:0", 1e6, 1e6, 9e-6))["bound"] == "overhead");
  CHECK(judged(measurement("cuda:0", 1e6, 1e6, 12e-6))["bound"] != "overhead");
  const json fast = judged(measurement("cuda:0", 20e9, 1e6, 1e-3));
  CHECK(fast["percent_of_roof"].get<double>() == doctest::Approx(200));
  REQUIRE(fast["flags"].size() == 1);
}

TEST_CASE("a GPU is held against its own ceilings alone") {
  const json other = judged(measurement("cuda:1", 6e9, 1e9, 1e-3));
  CHECK_FALSE(other.contains("bound"));
  CHECK(judged(measurement("cudnn:1", 6e9, 1e9, 1e-3), one_gpu(1))["bound"] == "compute");
  CHECK_FALSE(judged(measurement("cuda:0", 6e9, 1e9, 1e-3), one_gpu(1)).contains("bound"));
}

TEST_CASE("the record lists a GPU's roofs and rates, and follows its schema") {
  const json ceilings = ceilings_record(one_gpu());
  REQUIRE(ceilings.size() == 5);
  CHECK(ceilings[0]["device"] == "cuda:0");
  CHECK(ceilings[0]["isa"] == "unit");
  CHECK(ceilings[0]["value"] == 10e12);
  CHECK(ceilings[0]["q1"].get<double>() == doctest::Approx(9.5e12));
  CHECK(ceilings[0]["threads"].is_null());
  CHECK(ceilings[0]["theoretical"].is_null());
  CHECK(ceilings[3]["level"] == "dram");
  CHECK(ceilings[3]["theoretical"] == 4e12);
  const json rates = rates_record(one_gpu());
  REQUIRE(rates.size() == 2);
  CHECK(rates[0]["unit"] == "s");
  CHECK(rates[0]["value"] == 10e-6);

  json study = study_record(machine_record(perf::describe_machine(), "test"), one_gpu(), json::array(), {});
  CHECK(check_study(study).empty());
  CHECK(study["rates"] == rates);
  study["rates"][0]["unit"] = "";
  CHECK(check_study(study).size() == 1);
  const json of_cpu = study_record(machine_record(perf::describe_machine(), "test"), {}, json::array(), {});
  CHECK_FALSE(of_cpu.contains("rates"));
}

TEST_CASE("the ceilings of a study are those of what it runs on") {
  CHECK(scope_of({"cpu", "onednn"}).cpu);
  CHECK(scope_of({"cpu", "onednn"}).gpus.empty());
  const CeilingScope gpus = scope_of({"cuda:1?kernel=naive", "cudnn"});
  CHECK_FALSE(gpus.cpu);
  CHECK(gpus.gpus == std::vector<int>{1, 0});
}

}  // namespace
}  // namespace gable::bench
