// The suites as tables. A row has a name, benchdnn's descriptor and an epilogue; each row is repeated for the dtypes
// and pools of its suite. `primitives` has other ops too.
#include "bench/workloads/suites.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gable/error.h>

#include "bench/workloads/problem.h"
#include "bench/workloads/random_layers.h"

namespace gable::bench {
namespace {

enum class Pool { none, always, both };

struct Row {
  std::string_view name;
  std::string_view problem;
  bool bias;
  Activation activation;
  Pool pool;
  std::vector<DType> dtypes;
};

struct Layer {
  std::string_view name;
  std::string_view problem;  ///< without its batch
};

constexpr std::int64_t kCpuBatch = 16;
constexpr std::int64_t kGpuBatch = 64;

void add(std::vector<Case>& cases, std::string_view suite, const Row& row) {
  for (const DType dtype : row.dtypes) {
    for (const bool pooled : {false, true}) {
      if (row.pool != Pool::both && pooled != (row.pool == Pool::always)) continue;
      Conv2d conv = parse_problem(row.problem).conv;
      conv.dtype = dtype;
      conv.layout = Layout::nhwc;
      conv.epilogue.bias = row.bias;
      conv.epilogue.activation = row.activation;
      if (pooled) conv.epilogue.max_pool = {2, 2};
      const std::string name(row.name);
      cases.push_back({std::string(suite), pooled && row.pool == Pool::both ? name + "+pool" : name, conv});
    }
  }
}

std::vector<Case> study() {
  const std::vector<DType> all{DType::f32, DType::bf16, DType::f16};
  const std::vector<DType> lenet{DType::f32, DType::f16};
  const std::vector<DType> f32{DType::f32};
  using enum Activation;
  const std::vector<Row> rows{
      {"lenet1", "mb10000ic1ih48oc6oh44kh5", false, tanh, Pool::always, lenet},
      {"lenet2", "mb10000ic6ih22oc16oh18kh5", false, tanh, Pool::always, lenet},
      {"vgg_b1", "mb1ic64ih224oc64oh224kh3ph1", true, relu, Pool::both, all},
      {"vgg_b16", "mb16ic64ih224oc64oh224kh3ph1", true, relu, Pool::both, all},
      {"vggdeep_b1", "mb1ic512ih14oc512oh14kh3ph1", true, relu, Pool::both, all},
      {"vggdeep_b16", "mb16ic512ih14oc512oh14kh3ph1", true, relu, Pool::both, all},
      {"fused256", "mb1ic256ih224oc256oh222kh3", true, none, Pool::both, all},
      {"fused128", "mb4ic128ih224oc128oh222kh3", true, relu, Pool::both, all},
      {"fused_small_128_128", "mb4ic128ih32iw16oc128oh30ow14kh3", true, none, Pool::always, f32},
      {"fused_small_128_256", "mb4ic128ih32iw16oc256oh30ow14kh3", true, none, Pool::always, f32},
      {"fused_small_256_128", "mb4ic256ih32iw16oc128oh30ow14kh3", true, none, Pool::always, f32},
      {"fused_small_256_256", "mb4ic256ih32iw16oc256oh30ow14kh3", true, none, Pool::always, f32},
  };
  std::vector<Case> cases;
  for (const Row& row : rows) add(cases, "study", row);
  return cases;
}

/// The layers of a network, with bias and relu, in every dtype, without pool.
std::vector<Case> network(std::string_view name, const std::vector<Layer>& layers, bool gpu) {
  std::vector<Case> cases;
  for (const Layer& layer : layers) {
    const std::string problem = fmt::format("mb{}{}", gpu ? kGpuBatch : kCpuBatch, layer.problem);
    add(cases, name, {layer.name, problem, true, Activation::relu, Pool::none, {DType::f32, DType::bf16, DType::f16}});
  }
  return cases;
}

/// Each distinct shape once, named after its first block. ResNet v1.5: the 3x3 has the stride, not the 1x1.
std::vector<Case> resnet50(bool gpu) {
  return network("resnet50",
                 {
                     {"conv1", "ic3ih224oc64oh112kh7sh2ph3"},        {"res2a_branch2a", "ic64ih56oc64oh56kh1"},
                     {"res2a_branch2b", "ic64ih56oc64oh56kh3ph1"},   {"res2a_branch2c", "ic64ih56oc256oh56kh1"},
                     {"res2b_branch2a", "ic256ih56oc64oh56kh1"},     {"res3a_branch1", "ic256ih56oc512oh28kh1sh2"},
                     {"res3a_branch2a", "ic256ih56oc128oh56kh1"},    {"res3a_branch2b", "ic128ih56oc128oh28kh3sh2ph1"},
                     {"res3a_branch2c", "ic128ih28oc512oh28kh1"},    {"res3b_branch2a", "ic512ih28oc128oh28kh1"},
                     {"res3b_branch2b", "ic128ih28oc128oh28kh3ph1"}, {"res4a_branch1", "ic512ih28oc1024oh14kh1sh2"},
                     {"res4a_branch2a", "ic512ih28oc256oh28kh1"},    {"res4a_branch2b", "ic256ih28oc256oh14kh3sh2ph1"},
                     {"res4a_branch2c", "ic256ih14oc1024oh14kh1"},   {"res4b_branch2a", "ic1024ih14oc256oh14kh1"},
                     {"res4b_branch2b", "ic256ih14oc256oh14kh3ph1"}, {"res5a_branch1", "ic1024ih14oc2048oh7kh1sh2"},
                     {"res5a_branch2a", "ic1024ih14oc512oh14kh1"},   {"res5a_branch2b", "ic512ih14oc512oh7kh3sh2ph1"},
                     {"res5a_branch2c", "ic512ih7oc2048oh7kh1"},     {"res5b_branch2a", "ic2048ih7oc512oh7kh1"},
                     {"res5b_branch2b", "ic512ih7oc512oh7kh3ph1"},
                 },
                 gpu);
}

std::vector<Case> mobilenet(bool gpu) {
  return network("mobilenet",
                 {
                     {"conv2_1_dw", "g32ic32ih112oc32oh112kh3ph1"},
                     {"conv2_1_pw", "ic32ih112oc64oh112kh1"},
                     {"conv2_2_dw", "g64ic64ih112oc64oh56kh3sh2ph1"},
                     {"conv2_2_pw", "ic64ih56oc128oh56kh1"},
                     {"conv3_1_dw", "g128ic128ih56oc128oh56kh3ph1"},
                     {"conv3_1_pw", "ic128ih56oc128oh56kh1"},
                     {"conv3_2_dw", "g128ic128ih56oc128oh28kh3sh2ph1"},
                     {"conv3_2_pw", "ic128ih28oc256oh28kh1"},
                     {"conv4_1_dw", "g256ic256ih28oc256oh28kh3ph1"},
                     {"conv4_1_pw", "ic256ih28oc256oh28kh1"},
                     {"conv4_2_dw", "g256ic256ih28oc256oh14kh3sh2ph1"},
                     {"conv4_2_pw", "ic256ih14oc512oh14kh1"},
                     {"conv5_1_dw", "g512ic512ih14oc512oh14kh3ph1"},
                     {"conv5_1_pw", "ic512ih14oc512oh14kh1"},
                     {"conv5_6_dw", "g512ic512ih14oc512oh7kh3sh2ph1"},
                     {"conv5_6_pw", "ic512ih7oc1024oh7kh1"},
                     {"conv6_dw", "g1024ic1024ih7oc1024oh7kh3ph1"},
                     {"conv6_pw", "ic1024ih7oc1024oh7kh1"},
                 },
                 gpu);
}

constexpr std::string_view kRandom = "random";

/// Random layers, as `gable cliffs` draws them, each in every dtype: for checking results and the choice of kernels on
/// shapes that were not considered in their development.
std::vector<Case> random_layers(bool gpu) {
  constexpr int kLayers = 300;
  const LayerLimits limits = gpu ? LayerLimits{.gflop = 8, .megabytes = 64, .batch = kGpuBatch} : LayerLimits{};
  RandomLayers layers(2026, limits);
  std::vector<Case> cases;
  for (int i = 1; i <= kLayers; ++i) {
    Conv2d conv = layers.next();
    conv.layout = Layout::nhwc;
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      conv.dtype = dtype;
      cases.push_back({std::string(kRandom), fmt::format("random:{}", i), conv});
    }
  }
  return cases;
}

constexpr std::string_view kPrimitives = "primitives";

void add_primitive(std::vector<Case>& cases, std::string name, Op op) {
  cases.push_back({std::string(kPrimitives), std::move(name), std::move(op)});
}

/// One vector of f32, whole and in tiles.
void add_vector_adds(std::vector<Case>& cases, const std::string& name, std::int64_t elements,
                     const std::vector<Tile>& tiles) {
  add_primitive(cases, name, Add{.shape = {elements}});
  for (const Tile& tile : tiles) {
    add_primitive(cases, fmt::format("{}_{}x{}", name, tile.row_chunk, tile.free_dim),
                  Add{.shape = {elements}, .tile = tile});
  }
}

/// The Trainium study: tile shapes of an addition, the bandwidth of a transpose, matrix products and the fused
/// convolution.
std::vector<Case> primitives() {
  std::vector<Case> cases;
  // First tiles one element long with more and more lanes, then longer and longer tiles that use every lane.
  add_vector_adds(cases, "vector_add_25600", 25600,
                  {{1, 1},
                   {2, 1},
                   {4, 1},
                   {8, 1},
                   {16, 1},
                   {32, 1},
                   {64, 1},
                   {128, 1},
                   {128, 2},
                   {128, 5},
                   {128, 10},
                   {128, 20},
                   {128, 50},
                   {128, 100},
                   {128, 200},
                   {128, 1000},
                   {128, 2000}});
  add_vector_adds(cases, "vector_add_256Mi", std::int64_t{1} << 28,
                  {{1, 2000}, {16, 2000}, {128, 2}, {128, 20}, {128, 200}, {128, 1000}, {128, 2000}});
  for (const std::int64_t side : {1024, 4096, 8192, 32768}) {
    add_primitive(cases, fmt::format("transpose_{}", side), Transpose{.rows = side, .columns = side});
  }
  const std::vector<DType> dtypes{DType::f32, DType::bf16};
  for (const DType dtype : dtypes) {
    add_primitive(cases, "matmul_100k", Matmul{.m = 4096, .n = 100000, .k = 700, .dtype = dtype});
    add_primitive(cases, "matmul_400k", Matmul{.m = 4096, .n = 400000, .k = 700, .dtype = dtype});
    add_primitive(cases, "matmul_8192", Matmul{.m = 8192, .n = 8192, .k = 8192, .dtype = dtype});
  }
  using enum Activation;
  add(cases, kPrimitives, {"fused256", "mb1ic256ih224oc256oh222kh3", true, none, Pool::both, dtypes});
  add(cases, kPrimitives, {"fused128", "mb4ic128ih224oc128oh222kh3", true, relu, Pool::both, dtypes});
  return cases;
}

std::string size_name(std::int64_t bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB"};
  int unit = 0;
  for (; bytes >= 1024; bytes /= 1024) ++unit;
  return fmt::format("{}{}", bytes, kUnits[unit]);
}

void add_bandwidth(std::vector<BandwidthCase>& cases, Movement movement, std::int64_t bytes, bool one_thread = false) {
  const std::string name =
      fmt::format("bandwidth_{}{}_{}", to_string(movement), one_thread ? "_1t" : "", size_name(bytes));
  cases.push_back({std::string(kPrimitives), name, movement, bytes, one_thread});
}

std::vector<std::int64_t> working_sets() {
  std::vector<std::int64_t> sizes;
  for (std::int64_t bytes = 4 << 10; bytes <= std::int64_t{4} << 30; bytes *= 4) sizes.push_back(bytes);
  sizes.push_back(std::int64_t{8} << 30);
  return sizes;
}

/// Every level of a GPU's memory, and copies from and to the host.
std::vector<BandwidthCase> gpu_bandwidths() {
  std::vector<BandwidthCase> cases;
  for (const Movement movement : {Movement::read, Movement::copy, Movement::triad, Movement::to_shared}) {
    for (const std::int64_t bytes : working_sets()) add_bandwidth(cases, movement, bytes);
  }
  for (const Movement movement : {Movement::pinned_to_device, Movement::device_to_pinned, Movement::pageable_to_device,
                                  Movement::device_to_pageable}) {
    for (const std::int64_t bytes : {4 << 10, 256 << 10, 16 << 20, 1 << 30}) add_bandwidth(cases, movement, bytes);
  }
  return cases;
}

/// Every level of the memory, and files.
std::vector<BandwidthCase> primitive_bandwidths() {
  const std::vector<std::int64_t> sizes = working_sets();
  std::vector<BandwidthCase> cases;
  for (const bool one_thread : {true, false}) {
    for (const Movement movement : {Movement::read, Movement::copy, Movement::triad}) {
      for (const std::int64_t bytes : sizes) add_bandwidth(cases, movement, bytes, one_thread);
    }
  }
  for (const Movement movement :
       {Movement::file_read, Movement::file_write, Movement::file_read_direct, Movement::file_write_direct}) {
    for (const std::int64_t bytes : {1 << 20, 256 << 20}) add_bandwidth(cases, movement, bytes);
  }
  return cases;
}

}  // namespace

std::vector<BandwidthCase> bandwidth_cases(std::string_view name, bool gpu) {
  suite(name, gpu);  // an unknown name
  if (name != kPrimitives) return {};
  return gpu ? gpu_bandwidths() : primitive_bandwidths();
}

std::vector<GraphCase> graph_cases(std::string_view name, bool gpu) {
  suite(name, gpu);  // an unknown name
  if (name != kPrimitives || !gpu) return {};
  constexpr std::int32_t vertices = 1 << 20;
  constexpr std::int64_t edges = 1 << 24;
  return {{std::string(name), "pagerank_uniform", false, vertices, edges},
          {std::string(name), "pagerank_power_law", true, vertices, edges}};
}

std::vector<std::string> suite_names() {
  return {"study", "resnet50", "mobilenet", std::string(kPrimitives), std::string(kRandom)};
}

std::vector<Case> suite(std::string_view name, bool gpu) {
  if (name == "study") return study();
  if (name == "resnet50") return resnet50(gpu);
  if (name == "mobilenet") return mobilenet(gpu);
  if (name == kPrimitives) return primitives();
  if (name == kRandom) return random_layers(gpu);
  throw Error(ErrorCode::invalid_argument,
              fmt::format("unknown suite '{}'; known are {}", name, fmt::join(suite_names(), ", ")));
}

}  // namespace gable::bench
