// Judges GPU measurements under ceilings and checks both in the record. The ceilings are made up; cuda_test measures
// real ones if there is a GPU.
#include <doctest/doctest.h>

#include <gable/device.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "bench/measure/ceiling_rounds.h"
#include "bench/measure/ceilings.h"
#include "bench/measure/judge.h"
#include "bench/measure/recorded_ceilings.h"
#include "bench/record/headroom.h"
#include "bench/record/row_json.h"
#include "bench/record/schema.h"
#include "bench/record/study_json.h"
#include "perfcounters/ceilings/ladder.h"
#include "perfcounters/interrupt.h"
#include "tests/tools/expect.h"

namespace gable::bench {
namespace {

using nlohmann::json;

/// Before anything looks for devices: tests/bench/double.cpp, a GPU's double.
const int double_in_reach = ::setenv("GABLE_BACKEND_PATH", GABLE_TEST_DOUBLE, 1);

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

/// f32 10, tf32 100, bf16 200 TFLOP/s; memory 2 TB/s, L2 of 40 MB 5 TB/s; a launch and its wait take 10 us.
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

Row gpu_row(int index, double flop, double bytes, double seconds) {
  Row row;
  row.identity.dtype = "f32";
  row.place.device = "cuda:" + std::to_string(index);
  row.place.kind = DeviceKind::gpu;
  row.place.gpu = index;
  row.place.arithmetic = {.dtype = "f32", .products = 1};
  row.time.seconds = seconds;
  row.work.value = flop;
  row.traffic["dram"].value = bytes;
  return row;
}

Row cpu_row(double flop, const std::string& dtype, const ArithmeticFields& arithmetic) {
  Row row = gpu_row(0, flop, 1e3, 1e-3);
  row.identity.dtype = dtype;
  row.place = {.device = "cpu", .threads = 1, .arithmetic = arithmetic};
  return row;
}

Verdict judged(const Row& one, const MachineCeilings& ceilings = one_gpu()) {
  std::vector<Row> rows{one};
  judge_rows(rows, ceilings, perf::Machine{});
  return rows[0].verdict;
}

MachineCeilings one_cpu(const std::vector<std::pair<const char*, double>>& flops) {
  MachineCeilings ceilings;
  for (const auto& [dtype, value] : flops) {
    perf::Ceiling ceiling{
        .name = std::string("unit ") + dtype, .kind = "compute", .isa_or_level = "unit", .dtype = dtype};
    ceiling.threads = 1;
    ceiling.limit.value = value;
    ceilings.cpu.push_back(ceiling);
  }
  return ceilings;
}

TEST_CASE("a GPU's measurement is judged by its own unit, or by the memory that its tensors lie in") {
  const Verdict busy = judged(gpu_row(0, 5e9, 1e9, 1e-3));  // 0.5 ms of each
  CHECK(busy.percent_of_roof.value() == doctest::Approx(50));
  CHECK(judged(gpu_row(0, 6e9, 1e9, 1e-3)).bound == "compute");
  const Verdict moving = judged(gpu_row(0, 1e9, 1e9, 1e-3));
  CHECK(moving.bound == "memory:dram");
  CHECK(moving.roof == "dram read");
  Row warm = gpu_row(0, 1e6, 39e6, 20e-6);
  CHECK(judged(warm).bound == "memory:l2");
  warm.place.cache = "cold";
  CHECK(judged(warm).bound == "memory:dram");
  Row tf32 = gpu_row(0, 50e9, 1e6, 1e-3);
  tf32.place.arithmetic = {.dtype = "tf32", .products = 1};
  CHECK(judged(tf32).percent_of_roof.value() == doctest::Approx(50));
}

TEST_CASE("a run that uses fewer threads than its device has is judged by their roof, and the record says how many") {
  Row row = cpu_row(1e9, "f32", {.dtype = "f32", .products = 1});
  MachineCeilings ceilings = one_cpu({{"f32", 2e12}});
  ceilings.cpu.push_back(ceilings.cpu.front());
  ceilings.cpu.back().threads = 12;
  ceilings.cpu.back().limit.value = 10e12;
  row.place.threads = 12;
  CHECK(judged(row, ceilings).percent_of_roof.value() == doctest::Approx(10));
  CHECK_FALSE(to_json(row).contains("used_threads"));
  row.place.used_threads = 1;
  CHECK(judged(row, ceilings).percent_of_roof.value() == doctest::Approx(50));
  const auto entry = to_json(row);
  CHECK(entry["threads"] == 12);
  CHECK(row_from_json(entry).place.used_threads == 1);
}

TEST_CASE("f32 as bf16 parts has a third or a sixth of bf16's roof") {
  for (const int products : {3, 6}) {
    CAPTURE(products);
    Row split = gpu_row(0, 10e9, 1e6, 1e-3);
    split.place.arithmetic = {.dtype = "bf16", .products = products};
    const Verdict verdict = judged(split);
    CHECK(verdict.percent_of_roof.value() == doctest::Approx(100 * 10e9 / (200e12 / products) / 1e-3));
    CHECK(contains(verdict.roof, "unit bf16 / "));
    CHECK(verdict.flags.empty());
  }
}

TEST_CASE(
    "f16 as bf16 parts has bf16's roof divided by its number of products; other kernels have the roof of f16's own "
    "unit") {
  const MachineCeilings cpu = one_cpu({{"f16", 1e12}, {"bf16", 6e12}});
  CHECK(judged(cpu_row(1e9, "f16", {"bf16", 3}), cpu).percent_of_roof.value() == doctest::Approx(50));
  CHECK(judged(cpu_row(1e9, "f16", {"bf16", 4}), cpu).percent_of_roof.value() == doctest::Approx(100 * 1 / 1.5));
  CHECK(judged(cpu_row(1e9, "f16", {"f16", 1}), cpu).percent_of_roof.value() == doctest::Approx(100));
}

TEST_CASE("f64 has a roof of its own or half of f32's, never f32's") {
  const Row row = cpu_row(1e8, "f32", {"f64", 1});
  const Verdict half = judged(row, one_cpu({{"f32", 1e12}}));
  CHECK(half.percent_of_roof.value() == doctest::Approx(20));
  CHECK(half.roof == "unit f32 / 2 for f64");
  const Verdict own = judged(row, one_cpu({{"f32", 1e12}, {"f64", 4e11}}));
  CHECK(own.percent_of_roof.value() == doctest::Approx(25));
  CHECK(own.roof == "unit f64");
}

TEST_CASE("rows in f64 and i8 are judged by their own units, on a GPU too; a mix by each part's") {
  CHECK(judged(cpu_row(1e8, "f64", {"f64", 1}), one_cpu({{"f32", 1e12}, {"f64", 4e11}})).roof == "unit f64");
  CHECK(judged(cpu_row(1e8, "f64", {}), one_cpu({{"f32", 1e12}, {"f64", 4e11}})).roof == "unit f64");
  CHECK(judged(cpu_row(1e8, "i8", {"i8", 1}), one_cpu({{"f32", 1e12}, {"i8", 4e12}})).roof == "unit i8");
  MachineCeilings gpu = one_gpu();
  gpu.gpus[0].roofs.push_back(gpu_ceilings({}, {compute("f64", 5e12)}).roofs[0]);
  Row row = gpu_row(0, 4e9, 1e3, 1e-3);
  row.identity.dtype = "f64";
  row.place.arithmetic = {.dtype = "f64"};
  CHECK(judged(row, gpu).percent_of_roof.value() == doctest::Approx(80));
  row.place.arithmetic.flop = {{"f64", 2e9}, {"f32", 2e9}};
  CHECK(judged(row, gpu).percent_of_roof.value() == doctest::Approx(60));
  CHECK(judged(row, gpu).roof == "50 % unit f32, 50 % unit f64");
}

TEST_CASE("a plan states its arithmetic") {
  Conv2d conv{.input = {1, 32, 8, 8}, .weights = {32, 32, 3, 3}, .layout = Layout::nhwc};
  const Arithmetic reference = open("reference").plan(conv).arithmetic();
  CHECK(reference.dtype == "f64");
  CHECK(reference.products == 1);
  const Arithmetic direct = open("cpu?kernel=direct").plan(conv).arithmetic();
  CHECK(direct.dtype == "f32");
  CHECK(direct.products == 1);
}

TEST_CASE("f16 on AMX states the number of products of its kernel: four for few terms, three for many") {
  const Device amx = open("cpu?kernel=amx");
  const auto conv_of = [](std::int64_t channels, std::int64_t window) {
    return Conv2d{.input = {1, channels, 16, 16},
                  .weights = {64, channels, window, window},
                  .dtype = DType::f16,
                  .layout = Layout::nhwc};
  };
  const Conv2d few = conv_of(64, 1), many = conv_of(512, 3);
  const std::vector<KernelSupport> answers = amx.query(few);
  const auto supports = [](const KernelSupport& answer) { return answer.supported; };
  if (std::none_of(answers.begin(), answers.end(), supports)) {
    for (const KernelSupport& answer : answers) {
      MESSAGE("skipped: ", answer.reason);
      CHECK((contains(answer.reason, "AMX") || contains(answer.reason, "avx512")));
    }
    return;
  }
  for (const auto& [conv, products] : {std::pair{few, 4}, std::pair{many, 3}}) {
    const Arithmetic arithmetic = amx.plan(conv).arithmetic();
    CHECK(arithmetic.dtype == "bf16");
    CHECK(arithmetic.products == products);
  }
}

TEST_CASE("a short time far below the roof is bound by the launch; a row above a roof is flagged") {
  CHECK(judged(gpu_row(0, 1e6, 1e6, 9e-6)).bound == "overhead");
  CHECK(judged(gpu_row(0, 1e6, 1e6, 12e-6)).bound != "overhead");
  const Verdict fast = judged(gpu_row(0, 20e9, 1e6, 1e-3));
  CHECK(fast.percent_of_roof.value() == doctest::Approx(200));
  REQUIRE(fast.flags.size() == 1);
}

perf::Ceiling loop(const std::string& isa, bool fma, double value, int threads = 1) {
  perf::Ceiling ceiling{
      .name = isa + (fma ? " fma f32" : " f32"), .kind = "compute", .isa_or_level = isa, .dtype = "f32"};
  ceiling.threads = threads;
  ceiling.limit.value = ceiling.limit.q1 = ceiling.limit.q3 = value;
  return ceiling;
}

perf::Ceiling level_read(const std::string& level, double value, int threads = 1) {
  perf::Ceiling ceiling{.name = level + " read", .kind = "bandwidth", .isa_or_level = level, .dtype = "f32"};
  ceiling.threads = threads;
  ceiling.limit.value = ceiling.limit.q1 = ceiling.limit.q3 = value;
  return ceiling;
}

TEST_CASE("a ladder of ceilings that contradicts itself is marked: by width, fusion, threads and memory level") {
  std::vector<perf::Ceiling> ladder{
      loop("scalar", false, 8e9),     loop("sse4", false, 30e9), loop("avx2", true, 110e9), loop("avx512", true, 100e9),
      loop("avx512", true, 190e9, 2), level_read("l1", 300e9),   level_read("l2", 100e9),   level_read("dram", 10e9)};
  CHECK(perf::contradictions(ladder).empty());  // a lower clock for wide vectors is no contradiction
  ladder[3].limit.value = 28e9;                 // below SSE4
  ladder[4].limit.value = 20e9;                 // two threads below one
  ladder[5].limit.value = 90e9;                 // L1 below L2
  perf::set_doubts(ladder);
  CHECK(contains(ladder[3].limit.doubt, "avx2 fma f32"));
  CHECK(contains(ladder[4].limit.doubt, "avx512 fma f32, 1 thread"));
  CHECK(contains(ladder[5].limit.doubt, "l2 read"));
  CHECK(ladder[2].limit.doubt.empty());
  const auto again = perf::worth_repeating(ladder);
  for (const auto& [name, threads] : {std::pair{"avx2 fma f32", 1}, {"avx512 fma f32", 1}, {"l1 read", 1}})
    CHECK(again.contains({name, threads}));
  CHECK_FALSE(again.contains({"scalar f32", 1}));
}

TEST_CASE("ceilings are measured before, between and after the rows; the best round counts, and the drift is kept") {
  double clock = 0;
  int rounds = 0;
  const std::vector<double> values{100e9, 80e9, 120e9, 110e9, 110e9, 110e9};
  const auto measure = [&](const CeilingRound& round) {
    CHECK((round.known == nullptr) == (rounds == 0));
    clock += 2;
    return MachineCeilings{.cpu = {loop("avx2", true, values.at(static_cast<std::size_t>(rounds++)))}};
  };
  CeilingRounds ceilings({measure, [&] { return clock; }}, {.cpu = true, .gpus = {}});
  clock += 10;
  ceilings.between(DeviceKind::cpu);  // rounds may take a tenth of the time: too early
  CHECK(rounds == 1);
  clock += 11;
  ceilings.between(DeviceKind::cpu);
  CHECK(rounds == 2);
  std::vector<Row> rows{cpu_row(60e6, "f32", {"f32", 1})};
  const perf::Ceiling best = ceilings.judge(rows, perf::Machine{}).cpu.at(0);
  CHECK(rounds == 3);
  CHECK(best.limit.value == 120e9);
  CHECK(best.limit.rounds == 3);
  CHECK(best.limit.low == 80e9);
  CHECK(best.limit.high == 120e9);
  CHECK(*rows[0].verdict.percent_of_roof == doctest::Approx(50));
  const CeilingEntry entry = ceiling_entries({.cpu = {best}}).at(0);
  CHECK(entry.limit.low == 80e9);
  CHECK(entry.limit.rounds == 3);
}

TEST_CASE("a row that stays above its roof after two more rounds has a flag that says why") {
  int rounds = 0;
  const auto measure = [&](const CeilingRound&) {
    ++rounds;
    return MachineCeilings{.cpu = {loop("avx2", true, rounds == 1 ? 50e9 : 90e9)}};
  };
  CeilingRounds ceilings({measure, [] { return 0.0; }}, {.cpu = true, .gpus = {}});
  std::vector<Row> rows{cpu_row(100e6, "f32", {"f32", 1})};
  ceilings.judge(rows, perf::Machine{});
  CHECK(rounds == 4);
  REQUIRE(rows[0].verdict.flags.size() == 1);
  CHECK(contains(rows[0].verdict.flags[0], "is above the peak of 9e+10 FLOP/s (avx2 fma f32): it drifted by 44 %"));
}

TEST_CASE("above a roof, the share of W in the padding is named: of 3x3 at 4x4 with padding 1, 44 of 144 taps") {
  const MachineCeilings ceilings = one_cpu({{"f32", 90e9}});
  Row row = cpu_row(100e6, "f32", {"f32", 1});
  row.identity.op = "conv2d";
  row.identity.problem = "mb1ic64ih4oc64kh3ph1";
  REQUIRE(judged(row, ceilings).flags.size() == 1);
  CHECK(contains(judged(row, ceilings).flags[0], "31 % of W are taps in the padding"));
  row.identity.problem = "mb1ic64ih4iw6oc64oh2ow2kh3kw2sh2sw3ph1pw0";  // 5 of 6 rows, all columns
  CHECK(contains(judged(row, ceilings).flags[0], "17 % of W are taps in the padding"));
  for (const char* problem : {"mb1ic64ih4oc64kh1", "mb1ic64ih6oc64kh3", "no problem"}) {
    row.identity.problem = problem;
    REQUIRE(judged(row, ceilings).flags.size() == 1);
    CHECK_FALSE(contains(judged(row, ceilings).flags[0], "padding"));
  }
}

TEST_CASE("only the ceilings of hardware whose rows are above them are measured again") {
  std::vector<CeilingScope> rounds;
  const auto measure = [&](const CeilingRound& round) {
    rounds.push_back(round.scope);
    MachineCeilings ceilings;
    if (round.scope.cpu) ceilings.cpu = {loop("avx2", true, 100e9)};
    if (!round.scope.gpus.empty()) ceilings.gpus = one_gpu().gpus;
    return ceilings;
  };
  CeilingRounds ceilings({measure, [] { return 0.0; }}, {.cpu = true, .gpus = {0}});
  std::vector<Row> rows{cpu_row(50e6, "f32", {"f32", 1}), gpu_row(0, 1e12, 1e9, 1e-3)};  // 100 times the f32 peak
  ceilings.judge(rows, perf::Machine{});
  REQUIRE(rounds.size() == 4);  // before, after, and two more
  CHECK((rounds[1].cpu && rounds[1].gpus.size() == 1));
  for (const std::size_t more : {2, 3}) {
    CHECK_FALSE(rounds[more].cpu);
    CHECK(rounds[more].gpus == std::vector<int>{0});
  }
}

TEST_CASE("a verdict has all limits, lowest first, and its regime comes with advice") {
  Row row = gpu_row(0, 5e9, 1e9, 1e-3);
  row.verdict = judged(row);
  REQUIRE(row.verdict.limits.size() == 2);
  CHECK(headroom_text(row.verdict) ==
        "50 % of " + row.verdict.roof + "; the next limit is " + row.verdict.limits[1].roof + " (50 %)");
  const auto regime_of = [](const Row& one) {
    std::vector<Row> rows{one};
    judge_rows(rows, one_gpu(), perf::Machine{});
    return rows[0].regime.value();
  };
  CHECK(regime_of(gpu_row(0, 9e9, 1e9, 1e-3)).name == "compute");
  CHECK(regime_of(gpu_row(0, 1e9, 1e9, 0.6e-3)).name == "memory:dram");
  CHECK(regime_of(gpu_row(0, 1e6, 1e6, 9e-6)).name == "overhead");
  CHECK(regime_of(gpu_row(0, 1e9, 1e8, 1e-3)).name == "below");
  CHECK(regime_of(gpu_row(0, 9e9, 1e9, 1e-3)).advice.size() == 2);
}

TEST_CASE("whether T grows with the work is measured at twice the batch, and decides over what a launch costs") {
  const auto judged_row = [](double seconds, double bytes, double time) {
    Row row = gpu_row(0, 1e6, 1e6, seconds);
    row.scaling = Scaling{.work = 2, .bytes = bytes, .time = time};
    std::vector<Row> rows{row};
    judge_rows(rows, one_gpu(), perf::Machine{});
    return rows[0];
  };
  CHECK(judged_row(9e-6, 2, 1.05).regime->name == "overhead");
  CHECK(contains(judged_row(9e-6, 2, 1.05).regime->evidence, "twice the batch takes 1.05 times as long"));
  CHECK(judged_row(9e-6, 2, 1.9).regime->name == "below");  // short, and yet it grows
  CHECK(judged_row(9e-6, 2, 1.9).verdict.bound != "overhead");
  const Row idle = judged_row(90e-6, 1.9, 1.1);  // a launch takes 10 us
  CHECK(idle.verdict.bound == "overhead");
  CHECK(idle.regime->name == "latency");
  CHECK(contains(idle.regime->evidence, "multiprocessors are idle"));
  CHECK(judged_row(90e-6, 1.1, 1.1).verdict.bound != "overhead");  // weights: nothing much should grow
  Row near = gpu_row(0, 9e9, 1e9, 1e-3);
  near.scaling = Scaling{.work = 2, .bytes = 2, .time = 1.1};
  CHECK(judged(near).bound == "compute");

  const Scaling half{.work = 2, .bytes = 1.8, .time = 1.4};
  CHECK(*half.fixed_share() == doctest::Approx(0.5));
  CHECK_FALSE(Scaling{.work = 2, .bytes = 1.2, .time = 1}.fixed_share().has_value());
  CHECK(*Scaling{.work = 2, .bytes = 2, .time = 0.9}.fixed_share() == 1);
  const Row read = row_from_json(to_json(judged_row(9e-6, 2, 1.05)));
  REQUIRE(read.scaling.has_value());
  CHECK(read.scaling->time == 1.05);
}

TEST_CASE("fused pools say what they save, and the naive model stands beside the measurement") {
  Row plain = gpu_row(0, 5e9, 0, 1e-3);  // 100 MB of output, pooled 2x2: 25 MB
  plain.identity.op = "conv2d";
  plain.identity.epilogue = EpilogueFields{.bias = true};
  plain.traffic["dram"] = {.value = 300e6, .analytic = 300e6};
  plain.naive = {.bytes = 20e9, .seconds = {}};
  Row fused = plain;
  fused.place.fused = true;
  fused.identity.epilogue->max_pool = {{2, 2}};
  fused.traffic["dram"] = {.value = 225e6, .analytic = 225e6};
  std::vector<Row> rows{plain, fused};
  judge_rows(rows, one_gpu(), perf::Machine{});
  CHECK(!rows[0].fusion);
  REQUIRE(rows[1].fusion);
  CHECK(rows[1].fusion->bytes_saved == doctest::Approx(200e6));
  CHECK(*rows[1].fusion->seconds_saved == doctest::Approx(125e6 / 2e12));
  CHECK(*rows[0].naive->seconds == doctest::Approx(20e9 / 2e12));
}

TEST_CASE("a GPU is judged only by its own ceilings") {
  CHECK(judged(gpu_row(1, 6e9, 1e9, 1e-3)).bound.empty());
  CHECK(judged(gpu_row(1, 6e9, 1e9, 1e-3), one_gpu(1)).bound == "compute");
  CHECK(judged(gpu_row(0, 6e9, 1e9, 1e-3), one_gpu(1)).bound.empty());
}

TEST_CASE("the record lists a GPU's roofs and rates, and follows its schema") {
  Study study{.ceilings = ceiling_entries(one_gpu()), .rates = rate_entries(one_gpu())};
  const RunEntry run{.machine = perf::describe_machine(), .command = "test"};
  json document = to_json(study, run);
  const json& ceilings = document["ceilings"];
  REQUIRE(ceilings.size() == 5);
  CHECK(ceilings[0]["device"] == "cuda:0");
  CHECK(ceilings[0]["device_kind"] == "gpu");
  CHECK(ceilings[0]["isa"] == "unit");
  CHECK(ceilings[0]["value"] == 10e12);
  CHECK(ceilings[0]["q1"].get<double>() == doctest::Approx(9.5e12));
  CHECK(ceilings[0]["threads"].is_null());
  CHECK(ceilings[0]["theoretical"].is_null());
  CHECK(ceilings[3]["level"] == "dram");
  CHECK(ceilings[3]["theoretical"] == 4e12);
  const json& rates = document["rates"];
  REQUIRE(rates.size() == 2);
  CHECK(rates[0]["unit"] == "s");
  CHECK(rates[0]["value"] == 10e-6);
  CHECK(check_study(document).empty());
  document["rates"][0]["unit"] = "";
  CHECK(check_study(document).size() == 1);
  CHECK_FALSE(to_json(Study{}, run).contains("rates"));
}

TEST_CASE("rows are judged under the ceilings of a record as under those that were just measured") {
  const MachineCeilings measured = one_gpu();
  const MachineCeilings recorded = ceilings_of(ceiling_entries(measured), rate_entries(measured));
  Row row = gpu_row(0, 5e9, 1e9, 0.7e-3);
  row.place.cache = "cold";  // a record has no size of the L2
  CHECK(judged(row, recorded).percent_of_roof == judged(row, measured).percent_of_roof);
  CHECK(judged(row, recorded).roof == judged(row, measured).roof);
  CHECK(judged(gpu_row(0, 1e6, 1e6, 9e-6), recorded).bound == "overhead");
  MachineCeilings cpu{.cpu = {loop("avx2", true, 100e9), loop("avx2", true, 180e9, 2), level_read("dram", 1e10)}};
  cpu.team_starts[2] = {.seconds = 2e-6, .q1 = 1e-6, .q3 = 3e-6, .fastest = 1e-6, .runs = 7, .samples = {}};
  const MachineCeilings same = ceilings_of(ceiling_entries(cpu), rate_entries(cpu));
  CHECK(same.team_starts.at(2).q3 == 3e-6);  // a resumed study writes them again
  CHECK(same.team_starts.at(2).runs == 7);
  REQUIRE(same.cpu.size() == 3);
  CHECK(same.cpu[1].name == "avx2 fma f32");
  CHECK(same.cpu[1].threads == 2);
  CHECK(same.cpu[1].isa_or_level == "avx2");
  const perf::Machine machine = machine_of({.cores = 4, .threads = 8, .caches = {{"l1d", 32768}, {"l3", 1 << 24}}});
  CHECK(machine.caches.l1d.bytes == 32768);
  CHECK(machine.caches.l2.bytes == 0);
  CHECK(machine.threads.cores == 4);
  CHECK(machine.caches.l3.instances == 1);  // an old record does not say
  CHECK(machine_of({.caches = {{"l3", 1 << 24}}, .cache_instances = {{"l3", 8}}}).caches.l3.instances == 8);
  CHECK(recorded.of_gpu(0)->l2_bytes == 40'000'000);
}

TEST_CASE("what an interrupted first round lacks is kept from the earlier run of a resumed study, with its rates") {
  MachineCeilings before = one_gpu();
  before.cpu = {loop("avx2", true, 100e9), loop("avx2", true, 150e9, 2), level_read("dram", 1e10)};
  before.cpu[1].limit.formula = "a formula";
  before.cpu[1].limit.theoretical = 2e11;
  before.cpu[2].limit.note = "a note";
  before.cpu[2].working_set_bytes = 4096;
  before.team_starts[2].seconds = 2e-6;
  const MachineCeilings recorded = ceilings_of(ceiling_entries(before), rate_entries(before));
  CeilingRounds rounds(
      {[](const CeilingRound&) { return MachineCeilings{.cpu = {loop("avx2", true, 90e9)}}; }, [] { return 0.0; }},
      {.cpu = true, .gpus = {0}});
  rounds.add_recorded(recorded);
  const MachineCeilings& all = rounds.so_far();
  REQUIRE(all.cpu.size() == 3);
  CHECK(all.cpu[0].limit.value == 100e9);
  CHECK(all.cpu[0].limit.rounds == 2);
  CHECK(all.cpu[1].limit.formula == "a formula");
  CHECK(all.cpu[1].limit.theoretical == 2e11);
  CHECK(all.cpu[2].limit.note == "a note");
  CHECK(all.cpu[2].working_set_bytes == 4096);
  CHECK(all.team_starts.at(2).seconds == 2e-6);
  REQUIRE(all.of_gpu(0) != nullptr);
  CHECK(all.of_gpu(0)->roofs.size() == 5);
  CHECK(rate_entries(all).size() == rate_entries(before).size());
}

TEST_CASE("each roof of a GPU is held for its energy, in the first round alone, and none without a counter") {
  CeilingCallbacks callbacks{[](std::size_t, std::size_t, const std::string&) {}, [](const std::string&) {}};
  const auto of_double = [&](const MachineCeilings* known) {
    const MachineCeilings all = measure_ceilings(perf::Machine{}, {.cpu = false, .gpus = {0}}, true, callbacks, known);
    REQUIRE(all.gpus.size() == 1);
    return all;
  };
  int held = 0;
  callbacks.per_joule = [&](std::optional<int> gpu) -> CeilingCallbacks::PerJoule {
    CHECK(gpu == 0);
    return [&](const std::function<double()>& work) {
      ++held;
      return std::optional(work() / 2);
    };
  };
  const MachineCeilings first = of_double(nullptr);
  CHECK(held == static_cast<int>(first.gpus[0].roofs.size()));
  for (const perf::Ceiling& roof : first.gpus[0].roofs) CHECK(roof.limit.per_joule.value_or(0) > 0);
  of_double(&first);
  callbacks.per_joule = [](std::optional<int>) { return CeilingCallbacks::PerJoule(); };
  CHECK_FALSE(of_double(nullptr).gpus[0].roofs[0].limit.per_joule);
  CHECK(held == static_cast<int>(first.gpus[0].roofs.size()));
}

TEST_CASE("without a counter of energy the roofs of the CPU are measured once") {
  int begun = 0;
  CeilingCallbacks callbacks{[&](std::size_t, std::size_t, const std::string&) {
                               if (++begun > 1) throw perf::Interrupted();
                             },
                             [](const std::string&) {}};
  callbacks.per_joule = [](std::optional<int>) { return CeilingCallbacks::PerJoule(); };
  CHECK(measure_ceilings(perf::describe_machine(), {.cpu = true, .gpus = {}}, true, callbacks).cpu.size() == 1);
  CHECK(begun == 2);
}

TEST_CASE("a study has the ceilings of the hardware that it runs on") {
  const Memory host{};
  CHECK(scope_of({host, host}).cpu);
  CHECK(scope_of({host, host}).gpus.empty());
  const CeilingScope gpus = scope_of({Memory{Memory::Kind::cuda, 1}, Memory{Memory::Kind::cuda, 0}});
  CHECK_FALSE(gpus.cpu);
  CHECK(gpus.gpus == std::vector<int>{1, 0});
}

}  // namespace
}  // namespace gable::bench
