// See check.h.
#include "cpu/common/check.h"
#include <gable/problem.h>

#include <stdexcept>
#include <string>

namespace gable::cpu {
namespace {

void at_least(const char* name, std::int64_t value, std::int64_t least) {
  check_at_least("conv2d", name, value, least);
}

void divisible(const char* name, std::int64_t value, std::int64_t groups) {
  if (value % groups == 0) return;
  throw std::invalid_argument(std::string("conv2d: ") + name + " is " + std::to_string(value) +
                              ", must be a multiple of groups (" + std::to_string(groups) + ")");
}

}  // namespace

void check_at_least(const char* op, const char* name, std::int64_t value, std::int64_t least) {
  if (value >= least) return;
  throw std::invalid_argument(std::string(op) + ": " + name + " is " + std::to_string(value) + ", must be at least " +
                              std::to_string(least));
}

void check(const Conv2dProblem& p) {
  at_least("n", p.n, 1);
  at_least("c", p.c, 1);
  at_least("h", p.h, 1);
  at_least("w", p.w, 1);
  at_least("k", p.k, 1);
  at_least("r", p.r, 1);
  at_least("s", p.s, 1);
  at_least("ho", p.ho, 1);
  at_least("wo", p.wo, 1);
  at_least("stride_h", p.stride_h, 1);
  at_least("stride_w", p.stride_w, 1);
  at_least("pad_top", p.pad_top, 0);
  at_least("pad_left", p.pad_left, 0);
  at_least("dilation_h", p.dilation_h, 1);
  at_least("dilation_w", p.dilation_w, 1);
  at_least("groups", p.groups, 1);
  divisible("c", p.c, p.groups);
  divisible("k", p.k, p.groups);
  at_least("pool.h", p.pool.h, 1);
  at_least("pool.w", p.pool.w, 1);
  at_least("pool.stride_h", p.pool.stride_h, 1);
  at_least("pool.stride_w", p.pool.stride_w, 1);
  at_least("ho under the pool's window", p.ho, p.pool.h);
  at_least("wo under the pool's window", p.wo, p.pool.w);
}

const Conv2dProblem& checked(const char* kernel, const Conv2dProblem& problem, const Target& target, int threads) {
  check(problem);
  check_at_least(kernel, "threads", threads, 1);
  if (!target.supported) {
    throw std::invalid_argument(std::string(kernel) + ": target " + std::string(target.name) +
                                " is not supported by this CPU");
  }
  return problem;
}

}  // namespace gable::cpu
