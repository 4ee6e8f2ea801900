// `gable cliffs`: its random layers, its properties, and the search on times that are known.
#include "bench/measure/cliffs.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <set>

using namespace gable;
using namespace gable::bench;

namespace {

Conv2d layer_of(std::int64_t batch, std::int64_t in, std::int64_t out) {
  return {.input = {batch, in, 8, 8}, .weights = {out, in, 3, 3}, .padding = {1, 1}, .layout = Layout::nhwc};
}

const Property* find(const std::vector<Property>& all, const std::string& name) {
  const auto found = std::find_if(all.begin(), all.end(), [&](const Property& one) { return one.name == name; });
  return found == all.end() ? nullptr : &*found;
}

const Conv2d& other_of(const std::vector<Property>& all, const std::string& name) {
  const Property* property = find(all, name);
  REQUIRE_MESSAGE(property != nullptr, name);
  return std::get<Conv2d>(property->others.front());
}

/// Every op takes as long as `seconds_of` says.
TimeOps told(const std::function<double(const Op&)>& seconds_of) {
  return [seconds_of](const std::vector<Op>& ops, double) {
    std::vector<TimedOp> times;
    for (const Op& op : ops) times.push_back({seconds_of(op), "told"});
    return times;
  };
}

int broken(const CliffDocument& document, const std::string& property) {
  return static_cast<int>(std::count_if(document.broken.begin(), document.broken.end(),
                                        [&](const Cliff& cliff) { return cliff.property == property; }));
}

CliffDocument cliffs(const TimeOps& time_ops, int layers = 100) {
  return find_cliffs({.layers = layers}, time_ops, [](int) {});
}

}  // namespace

TEST_CASE("random layers are valid, within their limits, of every kind, and the same for the same seed") {
  const LayerLimits limits{.gflop = 0.5, .megabytes = 16, .batch = 4};
  RandomLayers layers(7, limits), again(7, limits), others(8, limits);
  int depthwise = 0, grouped = 0, dilated = 0, odd = 0, nchw = 0, different = 0;
  std::set<std::int64_t> batches;
  constexpr int kLayers = 1000;
  for (int i = 0; i < kLayers; ++i) {
    const Conv2d layer = layers.next();
    CHECK_NOTHROW(validate(layer));
    CHECK(layer == again.next());
    different += layer == others.next() ? 0 : 1;
    CHECK(work(layer).flop <= 0.5e9);
    CHECK(layer.input[0] <= 4);
    batches.insert(layer.input[0]);
    depthwise += layer.groups > 1 && layer.weights[1] == 1 ? 1 : 0;
    grouped += layer.groups > 1 && layer.weights[1] > 1 ? 1 : 0;
    dilated += layer.dilation.h > 1 ? 1 : 0;
    odd += layer.input[1] % 16 != 0 ? 1 : 0;
    nchw += layer.layout == Layout::nchw ? 1 : 0;
  }
  CHECK(different > kLayers / 2);
  CHECK(batches == std::set<std::int64_t>{1, 2, 3, 4});
  CHECK(depthwise > 100);
  CHECK(grouped > 50);
  CHECK(dilated > 10);
  CHECK(odd > 100);
  CHECK(nchw > 200);
}

TEST_CASE("a dense layer is compared with its dtypes, padded channels, single images and the other layout") {
  const auto all = properties_of(layer_of(3, 20, 33), 10);
  CHECK(std::get<Conv2d>(find(all, "bf16")->layer).dtype == DType::bf16);
  CHECK(other_of(all, "f16").dtype == DType::f32);
  CHECK(other_of(all, "input channels").input[1] == 32);
  CHECK(other_of(all, "input channels").weights == Shape{33, 32, 3, 3});
  CHECK(other_of(all, "output channels").weights == Shape{48, 20, 3, 3});
  CHECK(other_of(all, "batch").input[0] == 1);
  CHECK(find(all, "batch")->times == 3);
  CHECK(find(all, "groups") == nullptr);
  const Property& layout = *find(all, "layout");
  CHECK(std::get<Conv2d>(layout.layer).layout == Layout::nchw);
  REQUIRE(layout.others.size() == 3);
  CHECK(std::get<Reorder>(layout.others[1]).shape == Shape{3, 20, 8, 8});
  CHECK(std::get<Reorder>(layout.others[2]).shape == Shape{3, 33, 8, 8});
  for (const Property& property : all) {
    CHECK_NOTHROW(validate(property.layer));
    for (const Op& other : property.others) CHECK_NOTHROW(validate(other));
  }
}

TEST_CASE("a grouped layer is compared with the dense one, a depthwise one with more channels") {
  Conv2d grouped = layer_of(1, 32, 32);
  grouped.weights = {32, 8, 3, 3};
  grouped.groups = 4;
  CHECK(other_of(properties_of(grouped, 10), "groups").weights == Shape{32, 32, 3, 3});
  CHECK(find(properties_of(grouped, 1e-6), "groups") == nullptr);
  Conv2d depthwise = layer_of(1, 20, 40);
  depthwise.weights = {40, 1, 3, 3};
  depthwise.groups = 20;
  const Conv2d padded = other_of(properties_of(depthwise, 10), "channels");
  CHECK(padded.groups == 32);
  CHECK(padded.input[1] == 32);
  CHECK(padded.weights == Shape{64, 1, 3, 3});
}

TEST_CASE("multiples of 16 and single images have nothing to be compared with") {
  const auto all = properties_of(layer_of(1, 32, 64), 10);
  for (const char* name : {"input channels", "output channels", "channels", "batch"}) CHECK(find(all, name) == nullptr);
}

TEST_CASE("where every op takes a time in proportion to its work, nothing is broken") {
  const auto document = cliffs(told([](const Op& op) { return work(op).flop * 1e-9 + work(op).bytes() * 1e-10; }));
  CHECK(document.layers == 100);
  CHECK(document.broken.empty());
  for (const PropertyCount& count : document.properties) CHECK(count.checked > 0);
}

TEST_CASE("a slow dtype breaks its property in every layer, worst first") {
  const auto document = cliffs(
      told([](const Op& op) { return dtype_of(op) == DType::bf16 ? 3.0 * work(op).flop : work(op).flop + 1e-30; }));
  CHECK(broken(document, "bf16") == 100);
  CHECK(broken(document, "f16") == 0);
  CHECK(document.broken.front().ratio == doctest::Approx(3));
  CHECK(document.broken.front().limit == doctest::Approx(1.1));
}

TEST_CASE("what a second measurement does not confirm is no cliff, and that measurement is longer") {
  std::map<double, int> calls;
  const TimeOps noisy = [&](const std::vector<Op>& ops, double seconds) {
    const bool first = calls.empty() || seconds <= calls.begin()->first;
    ++calls[seconds];
    std::vector<TimedOp> times;
    for (const Op& op : ops) times.push_back({first && dtype_of(op) == DType::bf16 ? 9.0 : 1.0, "noisy"});
    return times;
  };
  const auto document = cliffs(noisy, 20);
  CHECK(broken(document, "bf16") == 0);
  REQUIRE(calls.size() == 2);
  CHECK(calls.begin()->second == 20);
  CHECK(calls.rbegin()->second >= 20);
  const auto& counts = document.properties;
  const auto found = std::find_if(counts.begin(), counts.end(), [](const auto& one) { return one.property == "bf16"; });
  REQUIRE(found != counts.end());
  CHECK(found->worst == doctest::Approx(1));
}

TEST_CASE("properties with an op that the device can't run are not checked") {
  const auto document = cliffs(told([](const Op& op) { return dtype_of(op) == DType::f16 ? 0.0 : 1.0; }));
  for (const PropertyCount& count : document.properties) CHECK(count.property != "f16");
}

TEST_CASE("no layer is begun after the time is over") {
  CHECK(find_cliffs({.layers = 10, .seconds = 0}, told([](const Op&) { return 1.0; }), [](int) {}).layers == 0);
}
