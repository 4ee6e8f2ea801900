// The plan: checks, workspace and threads. See conv2d.h.
#include <hwy/cache_control.h>

#include <stdexcept>
#include <string>

#include "cpu/bf16/conv2d.h"
#include "cpu/bf16/description.h"
#include "cpu/bf16/in_rows.h"
#include "cpu/bf16/pack.h"
#include "cpu/bf16/work_unit.h"
#include "cpu/common/cache.h"
#include "cpu/common/coverage.h"
#include "cpu/common/parallel.h"

namespace gable::cpu {
namespace {

bool takes(DType type, int products) {
  if (type == DType::bf16) return products == 1;
  return products == 3 || products == (type == DType::f16 ? 4 : 6);
}

const Conv2dProblem& checked(const Conv2dProblem& p, int products, const Bf16Unit& unit, const Target& target,
                             int threads) {
  checked("conv2d", p, target, threads);
  if (!takes(p.dtype, products)) {
    throw std::invalid_argument("conv2d: products a term are " + std::to_string(products) + ", must be " +
                                (p.dtype == DType::bf16  ? "1 for bf16"
                                 : p.dtype == DType::f16 ? "3 or 4 for f16"
                                                         : "3 or 6 for f32"));
  }
  if (const std::string refusal = unit.refusal(); !refusal.empty()) throw std::invalid_argument("conv2d: " + refusal);
  if (unit.tile(products) == nullptr) {
    throw std::invalid_argument("conv2d: products is " + std::to_string(products) + ", must be 1 on " + unit.name);
  }
  return p;
}

/// Whether every pixel has whole groups of 32 lanes, and the output is better written with non-temporal stores.
bool stores_non_temporal(const Conv2dProblem& p, const bf16::Geometry& g, OutputStores stores) {
  if (g.group_k % bf16::kLanes != 0 || p.k % bf16::kLanes != 0) return false;
  return stores == OutputStores::non_temporal ||
         beyond_last_level(p.y_elements() * static_cast<std::int64_t>(size_of(p.dtype)));
}

}  // namespace

Bf16Conv2dPlan::Bf16Conv2dPlan(const Conv2dProblem& problem, int products, const Bf16Unit& unit, const Target& target,
                               int threads, OutputStores stores)
    : problem_(checked(problem, products, unit, target, threads)),
      unit_(&unit),
      target_(&target),
      kernels_(&bf16_kernels(target)),
      threads_(threads),
      blocking_(bf16::blocking_of(problem, products, unit, threads)),
      non_temporal_(stores_non_temporal(problem, blocking_.geometry, stores)),
      workspace_(static_cast<std::size_t>(threads) * blocking_.thread_bytes / sizeof(float)) {
  bf16::lay_out_border(blocking_);
  for (int thread = 0; thread < threads; ++thread) {
    *reinterpret_cast<bf16::StagedInput*>(thread_workspace(thread) + bf16::staged_input_offset(unit)) = {};
  }
}

float* Bf16Conv2dPlan::thread_workspace(int thread) {
  return workspace_.data() + static_cast<std::size_t>(thread) * (blocking_.thread_bytes / sizeof(float));
}

std::size_t Bf16Conv2dPlan::packed_bytes() const {
  return static_cast<std::size_t>(bf16::packed_elements(blocking_.geometry, blocking_.terms)) * sizeof(std::uint16_t);
}

Packing Bf16Conv2dPlan::packing() const { return bf16::packing_key(problem_, blocking_.geometry, blocking_.terms); }

void Bf16Conv2dPlan::pack(const void* weights, const WeightStrides& strides, void* packed) const {
  bf16::pack_weights(problem_, blocking_.geometry, blocking_.terms, {weights, strides},
                     static_cast<std::uint16_t*>(packed));
}

void Bf16Conv2dPlan::run(const void* x, const void* packed, const float* bias, void* y) {
  const bf16::Run run{problem_,
                      *unit_,
                      *kernels_,
                      *target_,
                      blocking_,
                      x,
                      static_cast<const std::uint16_t*>(packed),
                      problem_.bias ? bias : nullptr,
                      y,
                      non_temporal_ && reinterpret_cast<std::uintptr_t>(y) % 64 == 0,
                      threads_,
                      ++runs_};
  if (run.non_temporal) note_path(Path::bf16_non_temporal, *target_, unit_->coverage);
  parallel_units(threads_, blocking_.work.count, run_times_, [&](std::int64_t index, int thread) {
    unit_->begin(blocking_.positions, blocking_.terms.last_pairs, blocking_.panel_weights());
    bf16::compute_work_unit(run, index, thread_workspace(thread));
    unit_->end();
    if (run.non_temporal) hwy::FlushStream();
  });
}

Conv2dDescription Bf16Conv2dPlan::description() const {
  return {.kernel = unit_->name,
          .target = std::string(target_->name),
          .tile = bf16::tile_text(blocking_),
          .blocking = bf16::blocking_text(blocking_, *unit_),
          .fusion = bf16::fusion_text(problem_, blocking_, *unit_) + (non_temporal_ ? ", non-temporal stores" : ""),
          .threads = threads_};
}

}  // namespace gable::cpu
