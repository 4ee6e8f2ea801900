// Packed weights: plans whose packings are equal make the same bytes and can share them. Plans of one layer that differ
// only in batch, image, epilogue or threads have equal packings, unless their kernel cuts weights by the image.
#include <doctest/doctest.h>

#include <random>
#include <string>
#include <utility>
#include <vector>

#include "cpu/depthwise/depthwise.h"
#include "cpu/depthwise/depthwise_planes.h"
#include "cpu/depthwise/depthwise_staged.h"
#include "cpu/direct/conv2d.h"
#include "cpu/few_channels/few_channels.h"
#include "cpu/few_outputs/few_outputs.h"
#include "cpu/narrow_groups/narrow_groups.h"
#include "cpu/planes/planes.h"
#include "cpu/pointwise/pointwise.h"
#include "tests/cpu/oracle.h"

namespace gable::cpu::test {
namespace {

struct Packed {
  Packing packing;
  std::vector<unsigned char> bytes;
  std::string of;
};

/// A layer's weights.
Elements random_weights(const Conv2dProblem& p) {
  std::mt19937 random(31);
  return random_elements(p.dtype, p.k * p.group_c() * p.r * p.s, random);
}

/// Weights that are all different, so that their order shows.
Elements numbered_weights(const Conv2dProblem& p) {
  Elements weights(p.dtype, static_cast<std::size_t>(p.k * p.group_c() * p.r * p.s));
  for (std::size_t i = 0; i < weights.size(); ++i) weights.set(i, static_cast<float>(i + 1));
  return weights;
}

template <class Plan>
Packed packed_by(const Conv2dProblem& p, const Elements& weights, const Target& target, int threads) {
  const Plan plan(p, target, threads);
  Packed packed{plan.packing(), std::vector<unsigned char>(plan.packed_bytes(), 0x5a), ""};
  plan.pack(weights.data(), dense_strides(p), packed.bytes.data());
  packed.of = plan.description().kernel + " of " + describe(p) + " on " + std::string(target.name) + " with " +
              std::to_string(threads) + " threads";
  return packed;
}

/// Same-padded problems of one layer.
std::vector<Conv2dProblem> variants_of(const Conv2dProblem& layer) {
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

/// Packs a layer for all its variants on all targets; those of one target have equal packings.
template <class Plan>
void pack_variants(const Conv2dProblem& layer, const Elements& weights, std::vector<Packed>& all) {
  for (const Target* target : supported_targets()) {
    const std::size_t first = all.size();
    for (const Conv2dProblem& p : variants_of(layer)) {
      for (const int threads : {1, 3}) {
        all.push_back(packed_by<Plan>(p, weights, *target, threads));
        INFO(all.back().of);
        CHECK(all.back().packing == all[first].packing);
      }
    }
  }
}

/// The layer with other batches, images, layouts, epilogues, threads and targets, wherever Plan takes it.
template <class Plan>
std::vector<Packed> packed_everywhere(Conv2dProblem p, std::string (*refusal)(const Conv2dProblem&, const Target&)) {
  const Elements weights = numbered_weights(p);
  std::vector<Packed> all;
  for (const Target* target : supported_targets()) {
    for (const std::int64_t batch : {1, 5}) {
      for (const std::int64_t size : {7, 12, 40, 100}) {
        for (const bool nhwc : {true, false}) {
          for (const int threads : {1, 3}) {
            p.n = batch;
            p.h = p.w = size;
            p.nhwc = nhwc;
            p.bias = threads > 1;
            p.activation = threads > 1 ? Activation::relu : Activation::none;
            p = sized(p, 0, 0);
            if (refusal(p, *target).empty()) all.push_back(packed_by<Plan>(p, weights, *target, threads));
          }
        }
      }
    }
  }
  return all;
}

struct Pairs {
  int equal = 0, different = 0;  // packings
};

/// Equal packings are equal bytes. With `only_then`, different packings are different bytes too.
Pairs check_pairs(const std::vector<Packed>& all, bool only_then) {
  Pairs pairs;
  for (std::size_t i = 0; i < all.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      const bool equal = all[i].packing == all[j].packing;
      ++(equal ? pairs.equal : pairs.different);
      if (!equal && !only_then) continue;
      if (equal != (all[i].bytes == all[j].bytes)) {
        FAIL_CHECK(all[i].of << " and " << all[j].of << ": equal packings: " << equal << ", equal bytes: " << !equal);
      }
    }
  }
  return pairs;
}

/// Layers of several shapes: some share a packing, others do not.
void check_layers(const std::vector<Packed>& all) {
  const Pairs pairs = check_pairs(all, false);
  CHECK(pairs.equal > 0);
  CHECK(pairs.different > 0);
}

}  // namespace

TEST_CASE("packing: direct plans of one layer pack alike, and equal packings are equal bytes") {
  std::vector<Packed> all;
  for (const DType type : {DType::f32, DType::bf16}) {
    // One chunk or several, tails of panels and of input lanes, groups, a single tap.
    for (Conv2dProblem layer : {Conv2dProblem{.c = 20, .h = 9, .w = 9, .k = 40, .r = 3, .s = 3},
                                Conv2dProblem{.c = 700, .h = 9, .w = 9, .k = 33, .r = 5, .s = 5},
                                Conv2dProblem{.c = 12, .h = 9, .w = 9, .k = 36, .r = 3, .s = 3, .groups = 2},
                                Conv2dProblem{.c = 64, .h = 9, .w = 9, .k = 36}}) {
      layer.dtype = type;
      pack_variants<Conv2dPlan>(layer, random_weights(layer), all);
    }
  }
  check_layers(all);
}

TEST_CASE("packing: depthwise plans of one layer pack alike, and equal packings are equal bytes") {
  std::vector<Packed> all;
  for (const DType type : {DType::f32, DType::f16, DType::bf16}) {
    for (const std::int64_t channels : {16, 33, 130}) {
      Conv2dProblem layer{.c = channels, .h = 9, .w = 9, .k = channels, .r = 3, .s = 3, .groups = channels};
      layer.dtype = type;
      const Elements weights = random_weights(layer);
      pack_variants<DepthwiseStagedPlan>(layer, weights, all);
      pack_variants<DepthwisePlan>(layer, weights, all);
      layer.nhwc = false;
      pack_variants<DepthwisePlanesPlan>(layer, weights, all);
    }
  }
  check_layers(all);
}

TEST_CASE("packing: few_channels plans of a layer share weights exactly where the bytes are the same") {
  for (const std::int64_t k : {1, 4, 5, 6, 7, 8, 16, 20, 40}) {
    for (const std::int64_t c : {1, 3}) {
      for (const std::int64_t s : {1, 3, 4}) {
        const Conv2dProblem p{.c = c, .k = k, .r = 3, .s = s};
        CHECK(check_pairs(packed_everywhere<FewChannelsPlan>(p, few_channels_refusal), true).equal > 0);
      }
    }
  }
}

TEST_CASE("packing: few_channels plans of another batch, image, epilogue and number of threads share weights") {
  Conv2dProblem p = sized({.c = 3, .h = 40, .w = 40, .k = 64, .r = 7, .s = 7, .stride_h = 2, .stride_w = 2}, 0, 0);
  for (const Target* target : supported_targets()) {
    const Packed small = packed_by<FewChannelsPlan>(p, numbered_weights(p), *target, 1);
    Conv2dProblem other = p;
    other.n = 9;
    other.h = other.w = 77;
    other.bias = true;
    other.activation = Activation::tanh;
    other.pool = {2, 2, 2, 2};
    const Packed large = packed_by<FewChannelsPlan>(sized(other, 0, 0), numbered_weights(other), *target, 4);
    CHECK(small.packing == large.packing);
    CHECK(small.bytes == large.bytes);
    other = p;
    other.dtype = DType::f16;
    CHECK(small.packing != packed_by<FewChannelsPlan>(other, numbered_weights(other), *target, 1).packing);
  }
}

TEST_CASE("packing: pointwise plans of a layer share weights exactly where the bytes are the same") {
  for (const std::int64_t k : {1, 8, 16, 17, 40, 64, 200}) {
    for (const std::int64_t c : {2, 20, 512}) {
      CHECK(check_pairs(packed_everywhere<PointwisePlan>({.c = c, .k = k}, pointwise_refusal), true).equal > 0);
    }
  }
  // On one target the packing depends on the layer alone.
  for (const Target* target : supported_targets()) {
    const Conv2dProblem small = sized({.c = 64, .w = 30, .k = 256}, 0, 0);
    const Conv2dProblem large =
        sized({.n = 7, .c = 64, .h = 56, .w = 56, .k = 256, .stride_h = 2, .stride_w = 2, .bias = true}, 0, 0);
    CHECK(PointwisePlan(small, *target, 1).packing() == PointwisePlan(large, *target, 3).packing());
  }
}

TEST_CASE("packing: narrow_groups plans of another image, epilogue and number of threads share weights") {
  std::vector<Packed> all;
  for (const std::int64_t group_k : {3, 4, 8}) {
    for (const std::int64_t group_c : {4, 8, 12}) {  // spread, and by quads with AVX-512
      const Conv2dProblem p{.c = 3 * group_c, .k = 3 * group_k, .r = 3, .s = 3, .groups = 3};
      for (Packed& packed : packed_everywhere<NarrowGroupsPlan>(p, narrow_groups_refusal))
        all.push_back(std::move(packed));
    }
  }
  check_layers(all);
}

TEST_CASE("packing: few_outputs and planes plans of another image, epilogue and number of threads share weights") {
  for (const std::int64_t c : {64, 200}) {
    CHECK(check_pairs(packed_everywhere<FewOutputsPlan>({.c = c, .k = 3}, few_outputs_refusal), false).equal > 0);
  }
  const auto refusal = [](const Conv2dProblem& p, const Target& target) {
    return planes_refusal(p, 0, planes::vector_unit(target));
  };
  for (const std::int64_t k : {8, 40}) {
    const Conv2dProblem p{.c = 20, .k = k, .r = 3, .s = 3};
    CHECK(check_pairs(packed_everywhere<PlanesPlan>(p, refusal), false).equal > 0);
  }
}

}  // namespace gable::cpu::test
