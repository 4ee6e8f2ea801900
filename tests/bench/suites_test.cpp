// The suites are the workloads that studies share: their shapes, work and variants are pinned here.
#include "bench/workloads/suites.h"
#include "bench/workloads/spread.h"

#include <doctest/doctest.h>
#include <gable/error.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <string>

#include "bench/workloads/graph.h"
#include "bench/workloads/problem.h"
#include "bench/workloads/spread.h"

using namespace gable;
using namespace gable::bench;

namespace {

const Case& find(const std::vector<Case>& cases, const std::string& name, DType dtype) {
  const auto at = std::find_if(cases.begin(), cases.end(),
                               [&](const Case& c) { return c.name == name && dtype_of(c.op) == dtype; });
  REQUIRE_MESSAGE(at != cases.end(), name);
  return *at;
}

const Conv2d& conv_of(const Case& one) { return std::get<Conv2d>(one.op); }

double gflop(const Case& one) { return work(one.op).flop / 1e9; }

}  // namespace

TEST_CASE("every case of every suite is valid and distinct") {
  for (const std::string& name : suite_names()) {
    for (const bool gpu : {false, true}) {
      std::set<std::string> seen;
      for (const Case& one : suite(name, gpu)) {
        CAPTURE(one.name);
        CHECK_NOTHROW(validate(one.op));
        CHECK(one.suite == name);
        if (const auto* conv = std::get_if<Conv2d>(&one.op)) CHECK(conv->layout == Layout::nhwc);
        CHECK(seen.insert(one.name + std::string(to_string(dtype_of(one.op)))).second);
      }
    }
  }
}

TEST_CASE("the study has the work that its layers are known for") {
  const auto cases = suite("study");
  CHECK(cases.size() == 44);
  CHECK(gflop(find(cases, "lenet1", DType::f32)) == doctest::Approx(5.808));
  CHECK(gflop(find(cases, "lenet2", DType::f16)) == doctest::Approx(15.552));
  CHECK(gflop(find(cases, "vgg_b1", DType::f32)) == doctest::Approx(3.699).epsilon(1e-3));
  CHECK(gflop(find(cases, "vgg_b16+pool", DType::bf16)) == doctest::Approx(59.19).epsilon(1e-3));
  CHECK(gflop(find(cases, "vggdeep_b16", DType::f16)) == doctest::Approx(14.80).epsilon(1e-3));
  CHECK(gflop(find(cases, "fused256+pool", DType::f32)) == doctest::Approx(58.14).epsilon(1e-3));
  CHECK(gflop(find(cases, "fused128", DType::bf16)) == doctest::Approx(58.14).epsilon(1e-3));
}

TEST_CASE("the study's epilogues are the table's") {
  const auto cases = suite("study");
  const Epilogue lenet = conv_of(find(cases, "lenet1", DType::f32)).epilogue;
  CHECK_FALSE(lenet.bias);
  CHECK(lenet.activation == Activation::tanh);
  CHECK(lenet.max_pool == PoolWindow(2, 2));
  CHECK(conv_of(find(cases, "vgg_b1", DType::f32)).epilogue.activation == Activation::relu);
  CHECK_FALSE(conv_of(find(cases, "vgg_b1", DType::f32)).epilogue.max_pool);
  CHECK(conv_of(find(cases, "fused256+pool", DType::f16)).epilogue.activation == Activation::none);
  CHECK(conv_of(find(cases, "fused_small_128_256", DType::f32)).epilogue.max_pool == PoolWindow(2, 2));
  CHECK(output_shape(find(cases, "fused_small_128_256", DType::f32).op) == Shape{4, 256, 15, 7});
}

TEST_CASE("networks have their batch for CPUs and GPUs") {
  CHECK(suite("resnet50", false).size() == 23 * 3);
  CHECK(conv_of(suite("resnet50", false).front()).input[0] == 16);
  CHECK(conv_of(suite("resnet50", true).front()).input[0] == 64);
  CHECK(suite("mobilenet").size() == 18 * 3);
  CHECK(output_shape(find(suite("resnet50"), "res3a_branch2b", DType::f32).op) == Shape{16, 128, 28, 28});
}

TEST_CASE("random layers are the same in every run, 300 of them in each dtype") {
  const auto cases = suite("random");
  CHECK(cases.size() == 300 * 3);
  CHECK(std::equal(cases.begin(), cases.end(), suite("random").begin(),
                   [](const Case& a, const Case& b) { return a.op == b.op; }));
  CHECK(conv_of(cases[0]).input == conv_of(cases[2]).input);
}

TEST_CASE("little time: the first cases have every layer, dtype and pool, and no case is lost") {
  const std::vector<Case> cases = suite("study"), ordered = spread(cases);
  REQUIRE(ordered.size() == cases.size());
  for (const Case& one : cases) {
    CHECK(std::count_if(ordered.begin(), ordered.end(),
                        [&](const Case& other) { return other.name == one.name && other.op == one.op; }) == 1);
  }
  // A GPU's half of --quick measured 20 cases with four devices when they ran in the list's order: no fused layer.
  std::set<std::string> layers, dtypes, pooled;
  for (std::size_t i = 0; i < 10; ++i) {
    const auto& conv = std::get<Conv2d>(ordered[i].op);
    layers.insert(ordered[i].name.substr(0, ordered[i].name.find_first_of("_+")));
    dtypes.insert(std::string(to_string(conv.dtype)));
    pooled.insert(conv.epilogue.max_pool ? "pool" : "no pool");
  }
  CHECK(layers == std::set<std::string>{"fused", "fused128", "fused256", "lenet1", "lenet2", "vgg", "vggdeep"});
  CHECK(dtypes.size() == 3);
  CHECK(pooled.size() == 2);
  const std::vector<Case> mobilenet = spread(suite("mobilenet"));
  CHECK(std::get<Conv2d>(mobilenet[0].op).groups != std::get<Conv2d>(mobilenet[1].op).groups);
}

TEST_CASE("little time: cases that differ only in their math stay neighbours") {
  std::vector<Case> cases;
  for (const Case& one : suite("study")) {
    if (dtype_of(one.op) != DType::f32) continue;
    for (const Math math : {Math::strict, Math::split3}) cases.push_back({one.suite, one.name, in_math(one.op, math)});
  }
  const std::vector<Case> ordered = spread(cases);
  for (std::size_t i = 0; i + 1 < ordered.size(); i += 2) CHECK(ordered[i].name == ordered[i + 1].name);
}

TEST_CASE("an unknown suite names the known ones") {
  CHECK_THROWS_WITH_AS(suite("vgg"), "unknown suite 'vgg'; known are study, resnet50, mobilenet, primitives, random",
                       Error);
}

TEST_CASE("capping the batch and dropping what became equal keeps each shape once") {
  auto cases = suite("study");
  cap_batch(cases, 1);
  CHECK(std::all_of(cases.begin(), cases.end(), [](const Case& c) { return conv_of(c).input[0] == 1; }));
  CHECK(cases.size() == 44);
  // vgg_b16 and vggdeep_b16 have become vgg_b1 and vggdeep_b1, in three dtypes.
  CHECK(drop_repeated(cases) == std::vector<std::string>{"vgg_b16", "vgg_b16+pool", "vggdeep_b16", "vggdeep_b16+pool"});
  CHECK(cases.size() == 32);
}

TEST_CASE("capping the work halves batches and leaves single images") {
  auto cases = suite("study");
  cap_work(cases, 8, 0.25);
  CHECK(conv_of(find(cases, "lenet1", DType::f32)).input[0] == 10000);
  CHECK(conv_of(find(cases, "lenet2", DType::f32)).input[0] == 5000);
  CHECK(conv_of(find(cases, "vgg_b16", DType::f32)).input[0] == 2);
  CHECK(conv_of(find(cases, "fused256", DType::f32)).input[0] == 1);
}

TEST_CASE("primitives sweep the tiles of an addition up to 128 lanes, and have products and fused convolutions") {
  const auto cases = suite("primitives");
  std::int64_t most_lanes = 0;
  for (const Case& one : cases) {
    if (const auto* add = std::get_if<Add>(&one.op)) most_lanes = std::max(most_lanes, add->tile.row_chunk);
  }
  CHECK(most_lanes == 128);
  CHECK(std::get<Add>(find(cases, "vector_add_25600_128x200", DType::f32).op) ==
        Add{.shape = {25600}, .tile = {128, 200}});
  CHECK(std::get<Add>(find(cases, "vector_add_256Mi", DType::f32).op) == Add{.shape = {1 << 28}});
  CHECK(gflop(find(cases, "matmul_100k", DType::bf16)) == doctest::Approx(573.44));
  CHECK(gflop(find(cases, "fused256+pool", DType::f32)) == doctest::Approx(58.14).epsilon(1e-3));
}

TEST_CASE("primitives have bandwidths of every level of a GPU and of copies to it, and graphs") {
  const auto cases = bandwidth_cases("primitives", true);
  for (const char* name : {"bandwidth_read_4KiB", "bandwidth_to_shared_8GiB", "bandwidth_pinned_to_device_1GiB",
                           "bandwidth_device_to_pageable_4KiB"}) {
    CAPTURE(name);
    CHECK(std::any_of(cases.begin(), cases.end(), [&](const BandwidthCase& one) { return one.name == name; }));
  }
  for (const BandwidthCase& one : cases) CHECK_FALSE(between_files(one.movement));
  const auto graphs = graph_cases("primitives", true);
  REQUIRE(graphs.size() == 2);
  CHECK_FALSE(graphs[0].power_law);
  CHECK(graphs[1].power_law);
  CHECK(graph_cases("study", true).empty());
}

TEST_CASE("a generated graph is complete, its degrees follow a power law, and its ranks are a distribution") {
  for (const bool power_law : {false, true}) {
    CAPTURE(power_law);
    const GraphCase one{.suite = "", .name = "", .power_law = power_law, .vertices = 1000, .edges = 20000};
    const Graph graph = make_graph(one);
    REQUIRE(graph.offsets.size() == 1001);
    CHECK(graph.offsets.front() == 0);
    CHECK(graph.offsets.back() == 20000);
    CHECK(graph.sources.size() == 20000);
    CHECK(std::is_sorted(graph.offsets.begin(), graph.offsets.end()));
    std::vector<std::int32_t> degrees(1000);
    for (const std::int32_t from : graph.sources) ++degrees.at(static_cast<std::size_t>(from));
    CHECK(degrees == graph.out_degrees);
    const std::int64_t first = graph.offsets[1];  // in-edges: 20 if even, 20000 ln 2 / ln 1000 = 2007 else
    CHECK(first > (power_law ? 1800 : 5));
    CHECK(first < (power_law ? 2200 : 50));
    const std::vector<double> ranks = pagerank_on_host(graph, 20, 0.85);
    CHECK(std::accumulate(ranks.begin(), ranks.end(), 0.0) == doctest::Approx(1));
    const std::vector<double> settled = pagerank_on_host(graph, 200, 0.85);
    const std::vector<double> again = pagerank_on_host(graph, 201, 0.85);
    CHECK(std::equal(settled.begin(), settled.end(), again.begin(),
                     [](double a, double b) { return std::abs(a - b) < 1e-12; }));
  }
}

TEST_CASE("primitives have bandwidths from 4 KiB to 8 GiB and of files, on CPUs") {
  const auto cases = bandwidth_cases("primitives");
  std::set<std::string> names;
  std::int64_t least = cases.front().bytes, most = 0;
  for (const BandwidthCase& one : cases) {
    CAPTURE(one.name);
    CHECK(one.suite == "primitives");
    CHECK(one.name.starts_with("bandwidth_"));
    CHECK(names.insert(one.name).second);
    least = std::min(least, one.bytes);
    most = std::max(most, one.bytes);
  }
  CHECK(least == 4096);
  CHECK(most == std::int64_t{8} << 30);
  for (const char* name : {"bandwidth_read_1t_4KiB", "bandwidth_copy_64MiB", "bandwidth_triad_8GiB",
                           "bandwidth_file_read_256MiB", "bandwidth_file_write_direct_1MiB"}) {
    CHECK_MESSAGE(names.contains(name), name);
  }
  CHECK(bandwidth_cases("study").empty());
  CHECK(graph_cases("primitives").empty());
  CHECK_THROWS_AS(bandwidth_cases("vgg"), Error);
}

TEST_CASE("capping the work halves the rows of products and the sides of ops that only move") {
  auto cases = suite("primitives");
  cap_work(cases, 8, 0.25);
  CHECK(std::get<Matmul>(find(cases, "matmul_100k", DType::f32).op).m == 32);
  CHECK(std::get<Add>(find(cases, "vector_add_256Mi", DType::f32).op).shape == Shape{1 << 24});
  CHECK(std::get<Transpose>(find(cases, "transpose_32768", DType::f32).op).rows == 4096);
  CHECK(std::get<Add>(find(cases, "vector_add_25600_1x1", DType::f32).op).shape == Shape{25600});
  cap_batch(cases, 16);
  CHECK(std::get<Matmul>(find(cases, "matmul_8192", DType::f32).op).m == 16);
}

TEST_CASE("ops other than convolutions have benchdnn's descriptors") {
  CHECK(descriptor(Matmul{.m = 4096, .n = 1000, .k = 700}) == "4096x700:700x1000");
  CHECK(descriptor(Add{.shape = {25600}}) == "25600:25600");
  CHECK(descriptor(Transpose{.rows = 3, .columns = 5}) == "3x5");
}
