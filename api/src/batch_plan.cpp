// See gable/batch_plan.h.
#include <gable/backend.h>
#include <gable/batch_plan.h>
#include <gable/error.h>

#include <algorithm>
#include <array>
#include <list>
#include <mutex>
#include <utility>

#include "common/runs_of_equal.h"
#include "common/there.h"

namespace gable {
namespace {

constexpr std::size_t kMaxPlans = 64;
constexpr const char* kBatchPlan = "this plan for a range of batches";

/// The extents of the op that are its batch: one, or one of each input.
std::array<std::int64_t*, 2> batch_of(Op& op) {
  if (auto* conv = std::get_if<Conv2d>(&op)) return {&conv->input[0]};
  if (auto* matmul = std::get_if<Matmul>(&op)) return {&matmul->m};
  if (auto* pool = std::get_if<MaxPool>(&op)) return {&pool->input[0]};
  if (auto* add = std::get_if<Add>(&op)) return {&add->shape[0]};
  if (auto* reorder = std::get_if<Reorder>(&op)) return {&reorder->shape[0]};
  if (auto* activate = std::get_if<Activate>(&op)) return {&activate->shape[0]};
  if (auto* concat = std::get_if<Concat>(&op)) return {&concat->a[0], &concat->b[0]};
  if (auto* upsample = std::get_if<Upsample>(&op)) return {&upsample->input[0]};
  if (auto* multiply = std::get_if<Multiply>(&op)) return {&multiply->a[0], &multiply->b[0]};
  if (auto* softmax = std::get_if<Softmax>(&op)) return {&softmax->shape[0]};
  throw Error(ErrorCode::invalid_argument,
              "a transpose has no batch: a plan for a range of batches is one of any other op");
}

Op with_batch(Op op, std::int64_t batch) {
  for (std::int64_t* extent : batch_of(op)) {
    if (extent != nullptr) *extent = batch;
  }
  return op;
}

std::int64_t first_extent(const ConstTensorView& x) { return x.shape.rank() > 0 ? x.shape[0] : 0; }

void check(BatchRange range) {
  if (range.least >= 1 && range.least <= range.most) return;
  throw Error(ErrorCode::invalid_argument, "batches from " + std::to_string(range.least) + " to " +
                                               std::to_string(range.most) + ": it must be 1 <= least <= most");
}

}  // namespace

struct BatchWeights::State {
  ConstTensorView original{};
  std::mutex mutex{};
  std::vector<PackedWeights> packed{};

  PackedWeights of(const Plan& plan) {
    const std::lock_guard lock(mutex);
    const auto found = std::find_if(packed.begin(), packed.end(),
                                    [&](const PackedWeights& one) { return one.key() == plan.packing(); });
    if (found != packed.end()) return *found;
    packed.push_back(plan.pack(original));
    return packed.back();
  }
};

int BatchWeights::packings() const {
  if (!state_) return 0;
  const std::lock_guard lock(state_->mutex);
  return static_cast<int>(state_->packed.size());
}

struct BatchPlan::State {
  /// The choice for a batch. Choices by the model differ in the device alone, since each plan takes its device's kernel
  /// for the batch. Measured choices also differ in the kernel.
  struct Way {
    Candidate candidate{};
    bool operator==(const Way& other) const {
      const Candidate &a = candidate, &b = other.candidate;
      const bool by_kernel = a.measured || b.measured;
      return a.device == b.device && (!by_kernel || (a.measured && b.measured && a.kernel == b.kernel));
    }
  };
  using Made = std::pair<std::int64_t, std::shared_ptr<const Plan>>;

  Device device;
  Op op;
  BatchRange range;
  std::vector<EqualRun<Way>> ways{};
  std::mutex mutex{};
  std::list<Made> plans{};  ///< last used first

  const Way& way_of(std::int64_t batch) const {
    const auto behind = std::upper_bound(ways.begin(), ways.end(), batch,
                                         [](std::int64_t b, const auto& run) { return b < run.first; });
    return std::prev(behind)->value;
  }

  std::shared_ptr<const Plan> known(std::int64_t batch) {
    const auto found = std::find_if(plans.begin(), plans.end(), [&](const Made& one) { return one.first == batch; });
    if (found == plans.end()) return nullptr;
    plans.splice(plans.begin(), plans, found);
    return plans.front().second;
  }
};

BatchPlan::BatchPlan(const Device& device, const Op& op, BatchRange range) {
  check(range);
  validate(with_batch(op, range.most));
  state_.reset(new State{.device = device, .op = op, .range = range});
  state_->ways = runs_of_equal(range.least, range.most, [&](std::int64_t batch) {
    const Ranking ranking = choose(device, with_batch(op, batch));
    return ranking.first() == nullptr ? State::Way{} : State::Way{*ranking.first()};
  });
}

BatchPlan::BatchPlan(BatchPlan&&) noexcept = default;
BatchPlan& BatchPlan::operator=(BatchPlan&&) noexcept = default;
BatchPlan::~BatchPlan() = default;

BatchRange BatchPlan::range() const { return there(state_, kBatchPlan).range; }

std::string BatchPlan::explain() const {
  const State& s = there(state_, kBatchPlan);
  const auto taker = [&](std::size_t i) {
    const Candidate& one = s.ways[i].value.candidate;
    return one.device.empty() ? "nothing takes them" : one.device + "/" + one.kernel;
  };
  std::string text;
  for (std::size_t i = 0; i < s.ways.size();) {
    std::size_t next = i + 1;  // measured and predicted choices of one kernel are different ways
    while (next < s.ways.size() && taker(next) == taker(i)) ++next;
    const std::int64_t first = s.ways[i].first, last = next < s.ways.size() ? s.ways[next].first - 1 : s.range.most;
    text += first == last ? "batch " + std::to_string(first)
                          : "batches " + std::to_string(first) + " to " + std::to_string(last);
    text += ": " + taker(i) + "\n";
    i = next;
  }
  return text;
}

std::shared_ptr<const Plan> BatchPlan::at(std::int64_t batch) const {
  State& s = there(state_, kBatchPlan);
  if (batch < s.range.least || batch > s.range.most) {
    throw Error(ErrorCode::invalid_argument, std::string(name(s.op)) + ": a batch of " + std::to_string(batch) +
                                                 "; this plan takes " + std::to_string(s.range.least) + " to " +
                                                 std::to_string(s.range.most));
  }
  const std::lock_guard lock(s.mutex);
  if (std::shared_ptr<const Plan> plan = s.known(batch)) return plan;
  auto plan = std::make_shared<const Plan>(s.device.plan(with_batch(s.op, batch), s.way_of(batch).candidate));
  s.plans.emplace_front(batch, plan);
  if (s.plans.size() > kMaxPlans) s.plans.pop_back();
  return plan;
}

BatchWeights BatchPlan::pack(const ConstTensorView& weights) const {
  BatchWeights all;
  all.state_ = std::make_shared<BatchWeights::State>();
  all.state_->original = weights;
  for (const EqualRun<State::Way>& run : there(state_, kBatchPlan).ways) all.state_->of(*at(run.first));
  return all;
}

void BatchPlan::run(const ConstTensorView& x, const BatchWeights& weights, const TensorView& y,
                    const Stream& stream) const {
  run(x, weights, ConstTensorView{}, y, stream);
}

void BatchPlan::run(const ConstTensorView& x, const BatchWeights& weights, const ConstTensorView& bias,
                    const TensorView& y, const Stream& stream) const {
  const State& s = there(state_, kBatchPlan);
  if (!weights.state_) {
    throw Error(ErrorCode::invalid_argument,
                std::string(name(s.op)) + ": the packed weights are empty: make them with this plan's pack()");
  }
  const std::shared_ptr<const Plan> plan = at(first_extent(x));
  plan->run(x, weights.state_->of(*plan), bias, y, stream);
}

void BatchPlan::run(const ConstTensorView& x, const TensorView& y, const Stream& stream) const {
  at(first_extent(x))->run(x, y, stream);
}

void BatchPlan::run(const ConstTensorView& a, const ConstTensorView& b, const TensorView& y,
                    const Stream& stream) const {
  at(first_extent(a))->run(a, b, y, stream);
}

}  // namespace gable
