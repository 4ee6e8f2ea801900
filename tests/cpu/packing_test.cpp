// Packed weights: plans whose packings are equal make the same bytes, so that they can share them, and other plans of
// the same layer do not.
#include <doctest/doctest.h>

#include <string_view>

#include "cpu/few_channels/few_channels.h"
#include "cpu/pointwise/pointwise.h"
#include "tests/cpu/oracle.h"

namespace gable::cpu::test {
namespace {

bool equal(const Packing& a, const Packing& b) {
  return std::string_view(a.order) == b.order && a.dtype == b.dtype && a.k == b.k && a.group_c == b.group_c &&
         a.r == b.r && a.s == b.s && a.groups == b.groups && a.cut == b.cut;
}

struct Packed {
  Packing packing;
  std::vector<float> floats;
  std::string of;
};

/// Weights that are all different, so that the order shows.
template <class Plan>
Packed packed_by(const Conv2dProblem& p, const Target& target, int threads) {
  Elements weights(p.dtype, static_cast<std::size_t>(p.k * p.group_c() * p.r * p.s));
  for (std::size_t i = 0; i < weights.size(); ++i) weights.set(i, static_cast<float>(i + 1));
  const Plan plan(p, target, threads);
  Packed packed{plan.packing(), std::vector<float>(plan.packed_bytes() / sizeof(float)), ""};
  plan.pack(weights.data(), dense_strides(p), packed.floats.data());
  packed.of = describe(p) + " on " + std::string(target.name) + " with " + std::to_string(threads) + " threads";
  return packed;
}

/// The layer with other batches, images, layouts, epilogues, threads and targets, wherever Plan takes it.
template <class Plan>
std::vector<Packed> packed_everywhere(Conv2dProblem p, std::string (*refusal)(const Conv2dProblem&, const Target&)) {
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
            if (refusal(p, *target).empty()) all.push_back(packed_by<Plan>(p, *target, threads));
          }
        }
      }
    }
  }
  return all;
}

/// The number of pairs with equal packings.
int check_pairs(const std::vector<Packed>& all) {
  int shared = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      const bool same_key = equal(all[i].packing, all[j].packing);
      if (same_key != (all[i].floats == all[j].floats)) {
        FAIL_CHECK(all[i].of << " and " << all[j].of << ": equal packings: " << same_key
                             << ", equal bytes: " << !same_key);
      }
      shared += same_key;
    }
  }
  return shared;
}

}  // namespace

TEST_CASE("packing: few_channels plans of a layer share weights exactly where the bytes are the same") {
  for (const std::int64_t k : {1, 4, 5, 6, 7, 8, 16, 20, 40}) {
    for (const std::int64_t c : {1, 3}) {
      for (const std::int64_t s : {1, 3, 4}) {
        const Conv2dProblem p{.c = c, .k = k, .r = 3, .s = s};
        CHECK(check_pairs(packed_everywhere<FewChannelsPlan>(p, few_channels_refusal)) > 0);
      }
    }
  }
}

TEST_CASE("packing: few_channels plans of another batch, image, epilogue and number of threads share weights") {
  Conv2dProblem p = sized({.c = 3, .h = 40, .w = 40, .k = 64, .r = 7, .s = 7, .stride_h = 2, .stride_w = 2}, 0, 0);
  for (const Target* target : supported_targets()) {
    const Packed small = packed_by<FewChannelsPlan>(p, *target, 1);
    Conv2dProblem other = p;
    other.n = 9;
    other.h = other.w = 77;
    other.bias = true;
    other.activation = Activation::tanh;
    other.pool = {2, 2, 2, 2};
    const Packed large = packed_by<FewChannelsPlan>(sized(other, 0, 0), *target, 4);
    CHECK(equal(small.packing, large.packing));
    CHECK(small.floats == large.floats);
    other = p;
    other.dtype = DType::f16;
    CHECK_FALSE(equal(small.packing, packed_by<FewChannelsPlan>(other, *target, 1).packing));
  }
}

TEST_CASE("packing: pointwise plans of a layer share weights exactly where the bytes are the same") {
  for (const std::int64_t k : {1, 8, 16, 17, 40, 64, 200}) {
    for (const std::int64_t c : {2, 20, 512}) {
      CHECK(check_pairs(packed_everywhere<PointwisePlan>({.c = c, .k = k}, pointwise_refusal)) > 0);
    }
  }
  // On one target the packing depends on the layer alone.
  for (const Target* target : supported_targets()) {
    const Packed small = packed_by<PointwisePlan>(sized({.c = 64, .w = 30, .k = 256}, 0, 0), *target, 1);
    const Packed large = packed_by<PointwisePlan>(
        sized({.n = 7, .c = 64, .h = 56, .w = 56, .k = 256, .stride_h = 2, .stride_w = 2, .bias = true}, 0, 0), *target,
        3);
    CHECK(equal(small.packing, large.packing));
  }
}

}  // namespace gable::cpu::test
