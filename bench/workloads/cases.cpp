// See cases.h.
#include "bench/workloads/cases.h"

#include <algorithm>

namespace gable::bench {

namespace {

/// Makes the op about half as much work in its first dimension; false where nothing is left to halve.
bool halve(Op& op) {
  const auto half = [](std::int64_t& extent) {
    if (extent <= 1) return false;
    extent /= 2;
    return true;
  };
  if (auto* conv = std::get_if<Conv2d>(&op)) return half(conv->input[0]);
  if (auto* matmul = std::get_if<Matmul>(&op)) return half(matmul->m);
  if (auto* add = std::get_if<Add>(&op)) return half(add->shape[0]);
  if (auto* transpose = std::get_if<Transpose>(&op)) return half(transpose->rows) && half(transpose->columns);
  return false;
}

}  // namespace

bool has_math(const Op& op) { return std::holds_alternative<Conv2d>(op) || std::holds_alternative<Matmul>(op); }

Math math_of(const Op& op) {
  if (const auto* conv = std::get_if<Conv2d>(&op)) return conv->math;
  if (const auto* matmul = std::get_if<Matmul>(&op)) return matmul->math;
  return Math::strict;
}

Op in_math(Op op, Math math) {
  if (auto* conv = std::get_if<Conv2d>(&op)) conv->math = math;
  if (auto* matmul = std::get_if<Matmul>(&op)) matmul->math = math;
  return op;
}

std::string problem_of(const GraphCase& one) {
  return std::to_string(one.vertices) + " vertices, " + std::to_string(one.edges) + " edges";
}

void cap_batch(std::vector<Case>& cases, std::int64_t max_batch) {
  for (Case& one : cases) {
    if (auto* conv = std::get_if<Conv2d>(&one.op)) conv->input[0] = std::min(conv->input[0], max_batch);
    if (auto* matmul = std::get_if<Matmul>(&one.op)) matmul->m = std::min(matmul->m, max_batch);
  }
}

void cap_work(std::vector<Case>& cases, double gflop, double gigabytes) {
  const auto exceeds = [&](const Op& op) {
    return work(op).flop > gflop * 1e9 || (!has_math(op) && work(op).bytes() > gigabytes * 1e9);
  };
  for (Case& one : cases) {
    while (exceeds(one.op) && halve(one.op)) {
    }
  }
}

std::vector<std::string> drop_repeated(std::vector<Case>& cases) {
  std::vector<Case> kept;
  std::vector<std::string> dropped;
  for (Case& one : cases) {
    const auto same = [&](const Case& other) { return other.op == one.op; };
    if (!one.count && std::any_of(kept.begin(), kept.end(), same)) {
      dropped.push_back(one.name);
    } else {
      kept.push_back(std::move(one));
    }
  }
  cases = std::move(kept);
  std::sort(dropped.begin(), dropped.end());
  dropped.erase(std::unique(dropped.begin(), dropped.end()), dropped.end());
  return dropped;
}

}  // namespace gable::bench
