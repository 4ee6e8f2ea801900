// Plans of equal packings share packed weights: the bytes must then be equal, and plans of one layer that differ only
// in batch, image, epilogue or threads must have equal packings.
#include <doctest/doctest.h>

#include <cstring>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "cpu/depthwise/depthwise.h"
#include "cpu/depthwise/depthwise_planes.h"
#include "cpu/depthwise/depthwise_staged.h"
#include "cpu/direct/conv2d.h"
#include "tests/cpu/oracle.h"

namespace gable::cpu::test {
namespace {

bool equal(const Packing& a, const Packing& b) {
  return std::strcmp(a.order, b.order) == 0 && a.dtype == b.dtype && a.k == b.k && a.group_c == b.group_c &&
         a.r == b.r && a.s == b.s && a.groups == b.groups && a.cut == b.cut;
}

/// Same-padded problems of one layer.
std::vector<Conv2dProblem> variants_of(Conv2dProblem layer) {
  std::vector<Conv2dProblem> variants;
  for (const std::int64_t n : {1, 2, 9}) {
    for (const std::int64_t side : {5, 7, 64}) {
      Conv2dProblem p = layer;
      p.n = n;
      p.h = side;
      p.w = side + 3;
      variants.push_back(same_padded(p));
    }
  }
  Conv2dProblem p = same_padded(layer);
  p.bias = true;
  p.activation = Activation::relu;
  variants.push_back(p);
  return variants;
}

template <class Plan>
std::vector<unsigned char> pack(const Plan& plan, const Conv2dProblem& p, const Elements& weights) {
  std::vector<unsigned char> packed(plan.packed_bytes(), 0x5a);
  plan.pack(weights.data(), dense_strides(p), packed.data());
  return packed;
}

using Packed = std::pair<Packing, std::vector<unsigned char>>;

/// Packs a layer for all its variants on all targets. `weights` are of the layer's type.
template <class Plan>
void pack_variants(const Conv2dProblem& layer, const Elements& weights, std::vector<Packed>& all) {
  for (const Target* target : supported_targets()) {
    const std::size_t first = all.size();
    for (const Conv2dProblem& p : variants_of(layer)) {
      for (const int threads : {1, 3}) {
        const Plan plan(p, *target, threads);
        all.emplace_back(plan.packing(), pack(plan, p, weights));
        INFO(plan.description().kernel << " of " << describe(p) << " on " << target->name);
        CHECK(equal(all.back().first, all[first].first));
      }
    }
  }
}

void check_equal_packings(const std::vector<Packed>& all) {
  std::size_t shared = 0, different = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      if (equal(all[i].first, all[j].first)) {
        ++shared;
        CHECK(all[i].second == all[j].second);
      } else {
        ++different;
      }
    }
  }
  CHECK(shared > 0);
  CHECK(different > 0);
}

}  // namespace

TEST_CASE("direct: plans of one layer pack alike, and equal packings are equal bytes") {
  std::mt19937 random(31);
  std::vector<Packed> all;
  for (const DType type : {DType::f32, DType::bf16}) {
    // One chunk or several, tails of panels and of input lanes, groups, a single tap.
    for (Conv2dProblem layer : {Conv2dProblem{.c = 20, .h = 9, .w = 9, .k = 40, .r = 3, .s = 3},
                                Conv2dProblem{.c = 700, .h = 9, .w = 9, .k = 33, .r = 5, .s = 5},
                                Conv2dProblem{.c = 12, .h = 9, .w = 9, .k = 36, .r = 3, .s = 3, .groups = 2},
                                Conv2dProblem{.c = 64, .h = 9, .w = 9, .k = 36}}) {
      layer.dtype = type;
      pack_variants<Conv2dPlan>(layer, random_elements(type, layer.k * layer.group_c() * layer.r * layer.s, random),
                                all);
    }
  }
  check_equal_packings(all);
}

TEST_CASE("depthwise: plans of one layer pack alike, and equal packings are equal bytes") {
  std::mt19937 random(32);
  std::vector<Packed> all;
  for (const DType type : {DType::f32, DType::f16, DType::bf16}) {
    for (const std::int64_t channels : {16, 33, 130}) {
      Conv2dProblem layer{.c = channels, .h = 9, .w = 9, .k = channels, .r = 3, .s = 3, .groups = channels};
      layer.dtype = type;
      const Elements weights = random_elements(type, channels * 9, random);
      pack_variants<DepthwiseStagedPlan>(layer, weights, all);
      pack_variants<DepthwisePlan>(layer, weights, all);
      layer.nhwc = false;
      pack_variants<DepthwisePlanesPlan>(layer, weights, all);
    }
  }
  check_equal_packings(all);
}

}  // namespace gable::cpu::test
