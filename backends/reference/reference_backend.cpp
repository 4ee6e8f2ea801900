// The reference device: the oracle's arithmetic behind the API every other device has. Slow, and right.
#include "backends/problems.h"
#include "backends/reference/kernels.h"
#include "backends/registry/builtin.h"
#include "backends/threads.h"

#include <gable/backend.h>

namespace gable {
namespace {

constexpr const char* kKernel = "f64_loops";

void round_to(DType dtype, void* data, std::int64_t i, double exact) {
  const auto value = static_cast<float>(exact);
  switch (dtype) {
    case DType::f16:
      static_cast<std::uint16_t*>(data)[i] = f16_from_float(value);
      return;
    case DType::bf16:
      static_cast<std::uint16_t*>(data)[i] = bf16_from_float(value);
      return;
    case DType::f32:
      break;
  }
  static_cast<float*>(data)[i] = value;
}

std::size_t packed_bytes(const Op& op) {
  if (const auto* c = std::get_if<Conv2d>(&op)) return static_cast<std::size_t>(c->weights.elements()) * sizeof(double);
  if (const auto* m = std::get_if<Matmul>(&op)) return static_cast<std::size_t>(m->n * m->k) * sizeof(double);
  return 0;
}

/// The weights as doubles, row by row.
std::uint64_t packing(const Op& op) {
  if (!has_weights(op)) return 0;
  return packing_key("reference", packing_of(weighted_op(op).problem, "rows", {}));
}

std::size_t workspace_elements(const Op& op, int threads) {
  if (packed_bytes(op) == 0) return 0;
  return static_cast<std::size_t>(reference::scratch_elements(op) * threads);
}

PlanDetails details(const Op& op, int threads) {
  ErrorBound bound = f32_accumulation_bound(1, dtype_of(op), Activation::none);
  bound.accumulation = 0x1p-40;  // f64 sums, then two roundings: to f32 and to the dtype
  bound.rounding += 0x1p-24;
  return {.kernel = kKernel,
          .explanation = "reference: f64 accumulation in straight loops over gathered patches, epilogue per element, " +
                         std::to_string(threads) + " threads",
          .fused = true,
          .bound = bound,
          .workspace_bytes = workspace_elements(op, threads) * sizeof(double),
          .packed_bytes = packed_bytes(op),
          .packing_key = packing(op),
          .arithmetic = {.dtype = "f64", .products = 1},
          .threads = threads};
}

class ReferencePlan final : public PlanImpl {
 public:
  ReferencePlan(const Op& op, int threads)
      : PlanImpl(gable::details(op, threads)), op_(op), threads_(threads), scratch_(workspace_elements(op, threads)) {}

  void pack(const void* weights, void* packed) override {
    reference::widen_weights(op_, weights, static_cast<double*>(packed));
  }

  void run(const RunArguments& arguments) override {
    const DType dtype = dtype_of(op_);
    const auto store = [&](std::int64_t i, double exact, double) { round_to(dtype, arguments.output, i, exact); };
    const void* x = arguments.inputs[0];
    const reference::Operands operands{x, static_cast<const double*>(arguments.weights), arguments.bias};
    const reference::Workers workers{threads_, scratch_.data()};
    if (const auto* c = std::get_if<Conv2d>(&op_)) {
      reference::conv2d(*c, operands, workers, store);
    } else if (const auto* m = std::get_if<Matmul>(&op_)) {
      reference::matmul(*m, operands, workers, store);
    } else {
      reference::unweighted(op_, x, arguments.inputs[1], store);
    }
  }

 private:
  Op op_;
  int threads_;
  std::vector<double> scratch_;
};

std::string refusal(const Op& op) {
  Math math = Math::strict;
  if (const auto* c = std::get_if<Conv2d>(&op)) math = c->math;
  if (const auto* m = std::get_if<Matmul>(&op)) math = m->math;
  if (math == Math::strict) return "";
  return "math " + std::string(to_string(math)) + ": the reference knows only strict";
}

class ReferenceDevice final : public DeviceImpl {
 public:
  ReferenceDevice(DeviceInfo info, int threads) : DeviceImpl(std::move(info)), threads_(threads) {}

  std::vector<KernelOffer> offers(const Op& op) const override {
    return {{kKernel, refusal(op), [op, threads = threads_] { return std::make_unique<ReferencePlan>(op, threads); }}};
  }

  std::optional<double> predicted_seconds(const Op& op) const override {
    // Not measured: the call's time is so long that even the smallest op goes to a device that was made for speed.
    constexpr double kCall = 1e-3, kSeconds = 1e-9;  // of a call; of a FLOP or a byte at best
    const Work least = work(op);
    return kCall + kSeconds * std::max(least.flop, least.bytes());
  }

 private:
  int threads_;
};

class ReferenceBackend final : public Backend {
 public:
  std::string name() const override { return "reference"; }
  int priority() const override { return 0; }

  std::vector<std::string> options() const override { return {"threads", "kernel"}; }

  std::vector<DeviceInfo> probe() const override {
    return {{.uri = "reference",
             .backend = "reference",
             .name = "straight loops in f64, the oracle",
             .available = true,
             .kernels = {kKernel}}};
  }

  std::shared_ptr<DeviceImpl> open(const DeviceUri& uri) const override {
    if (!uri.selector.empty()) {
      throw Error(ErrorCode::invalid_argument,
                  "device '" + to_string(uri) + "': the reference has no '" + uri.selector + "'; use 'reference'");
    }
    if (const auto kernel = uri.options.find("kernel"); kernel != uri.options.end() && kernel->second != kKernel) {
      throw Error(ErrorCode::invalid_argument,
                  "device '" + to_string(uri) + "': kernel is '" + kernel->second + "'; the reference has " + kKernel);
    }
    DeviceInfo info = probe().front();
    info.uri = to_string(uri);
    return std::make_shared<ReferenceDevice>(std::move(info), threads_option(uri));
  }
};

}  // namespace

std::unique_ptr<Backend> make_reference_backend() { return std::make_unique<ReferenceBackend>(); }

}  // namespace gable
