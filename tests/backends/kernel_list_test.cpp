// Which kernel of a list makes the plan.
#include "backends/kernel_list.h"

#include <gable/ops.h>

#include <doctest/doctest.h>

using namespace gable;

namespace {

struct Machine {};
struct Place {};
using Kernels = KernelList<Machine, Place>;

std::string takes(const WeightedOp&, const Machine&) { return ""; }
std::string refuses(const WeightedOp&, const Machine&) { return "it never does"; }
std::unique_ptr<PlanImpl> make(const WeightedOp&, const Place&) { return nullptr; }
double slow(const WeightedOp&, const Place&) { return 2e-3; }
double fast(const WeightedOp&, const Place&) { return 1e-3; }

constexpr Kernels::Kernel kernel(const char* name, decltype(&takes) refusal, decltype(&slow) seconds) {
  return {name, nothing_missing<Machine>, refusal, make, seconds};
}

std::vector<std::string> order_of(std::span<const Kernels::Kernel> kernels) {
  const Kernels list(kernels, nullptr);
  const Conv2d conv{.input = {1, 2, 3, 3}, .weights = {2, 2, 1, 1}};
  const Place place;
  std::vector<std::string> names;
  for (const KernelOffer& offer : list.offers(conv, Machine{}, place, "")) names.push_back(offer.kernel);
  return names;
}

}  // namespace

TEST_CASE("the kernel with the least estimated time comes first, then those without an estimate in their order") {
  constexpr Kernels::Kernel kernels[] = {
      kernel("refusing", refuses, fast),   kernel("unknown a", takes, nullptr), kernel("slow", takes, slow),
      kernel("unknown b", takes, nullptr), kernel("fast", takes, fast),
  };
  CHECK(order_of(kernels) == std::vector<std::string>{"fast", "slow", "refusing", "unknown a", "unknown b"});
}

TEST_CASE("equal estimates keep the order of the list") {
  constexpr Kernels::Kernel kernels[] = {kernel("b", takes, slow), kernel("a", takes, slow)};
  CHECK(order_of(kernels) == std::vector<std::string>{"b", "a"});
}

TEST_CASE("images of one column are images of one row to the kernels") {
  const Conv2d column{.input = {2, 3, 40, 1},
                      .weights = {4, 3, 5, 1},
                      .stride = {2, 3},
                      .padding = {1, 0, 2, 1},
                      .dilation = {3, 1},
                      .layout = Layout::nhwc,
                      .epilogue = {.max_pool = {{2, 1}, {1, 3}}}};
  CHECK(upright_problem(column).h == 40);
  const Conv2dProblem row = weighted_op(column).problem;
  CHECK(row.pool.h == 1);
  CHECK(row.pool.w == 2);
  CHECK(row.pool.stride_h == 3);
  CHECK(row.pool.stride_w == 1);
  CHECK(row.h == 1);
  CHECK(row.w == 40);
  CHECK(row.r == 1);
  CHECK(row.s == 5);
  CHECK(row.ho == 1);
  CHECK(row.wo == problem_of(column).ho);
  CHECK(row.stride_w == 2);
  CHECK(row.pad_left == 1);
  CHECK(row.pad_top == 0);
  CHECK(row.dilation_w == 3);
  Conv2d padded = column;
  padded.padding = {1, 1, 2, 0};  // an output of padding alone
  CHECK(weighted_op(padded).problem.h == 40);
}

TEST_CASE("images whose bytes are the same in both layouts are nhwc to the kernels") {
  Conv2d conv{.input = {2, 3, 1, 1}, .weights = {4, 3, 1, 1}};
  CHECK(weighted_op(conv).problem.nhwc);
  conv.input = {2, 3, 1, 2};
  CHECK(!weighted_op(conv).problem.nhwc);
  CHECK(weighted_op(Conv2d{.input = {2, 1, 5, 5}, .weights = {1, 1, 3, 3}}).problem.nhwc);
  CHECK(!weighted_op(Conv2d{.input = {2, 1, 5, 5}, .weights = {2, 1, 3, 3}}).problem.nhwc);
}
