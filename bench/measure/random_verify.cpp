// See random_verify.h.
#include "bench/measure/random_verify.h"

#include <gable/backend.h>
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "bench/measure/op_runner.h"
#include "bench/workloads/cases.h"

namespace gable::bench {
namespace {

constexpr double kGreatest = 0x1.FFFFFEp127;

bool is_one_of(const std::string& kernel, std::initializer_list<std::string_view> names) {
  return std::find(names.begin(), names.end(), kernel) != names.end();
}

/// Multiplies by zeros between groups (docs/devices.md): what is infinite or NaN in one makes NaN in others.
bool mixes_groups(const Plan& plan) {
  const auto* conv = std::get_if<Conv2d>(&plan.op());
  if (conv == nullptr || conv->groups == 1) return false;
  // amx or bf16_dot inside
  if (is_one_of(plan.kernel(), {"reordered", "cropped"})) return plan.arithmetic().dtype == "bf16";
  if (is_one_of(plan.kernel(), {"implicit_gemm", "few_channels_mma"})) {
    return plan.explain().find("groups as one") != std::string::npos;
  }
  return is_one_of(plan.kernel(), {"amx", "bf16_dot", "wgmma", "grouped_mma", "pointwise_planes"});
}

/// Multiplies parts of numbers, and infinity has none.
bool multiplies_parts(const Plan& plan) {
  const bool amx = is_one_of(plan.kernel(), {"amx", "planes_amx"}) && dtype_of(plan.op()) == DType::f16;
  return amx || plan.arithmetic().products > 1;
}

/// Computes tanh by exponentials whose quotient is NaN for +infinity (cuDNN 9.19).
bool loses_tanh_of_infinity(const Plan& plan) {
  if (!plan.device_uri().starts_with("cudnn")) return false;
  if (const auto* conv = std::get_if<Conv2d>(&plan.op())) return conv->epilogue.activation == Activation::tanh;
  const auto* matmul = std::get_if<Matmul>(&plan.op());
  return matmul != nullptr && matmul->activation == Activation::tanh;
}

/// Sets inputs that the plan's arithmetic rounds to infinity to infinity; false where there are none.
bool round_to_infinity(const Tensor& x, double least) {
  bool any = false;
  if (x.data() == nullptr || x.dtype() != DType::f32) return false;
  for (std::int64_t i = 0; i < x.shape().elements(); ++i) {
    float& value = x.as<float>()[i];
    if (!std::isfinite(value) || std::abs(value) < least) continue;
    value = std::copysign(std::numeric_limits<float>::infinity(), value);
    any = true;
  }
  return any;
}

double value_at(const ConstTensorView& y, std::int64_t i) {
  if (y.dtype == DType::f32) return static_cast<const float*>(y.data)[i];
  const std::uint16_t bits = static_cast<const std::uint16_t*>(y.data)[i];
  return y.dtype == DType::f16 ? float_from_f16(bits) : float_from_bf16(bits);
}

}  // namespace

double least_rounded_to_infinity(const Arithmetic& arithmetic) {
  if (arithmetic.dtype == "bf16" && arithmetic.products > 1) return 0x1.FFp127;
  if (arithmetic.dtype == "tf32") return 0x1.FFEp127;
  return std::numeric_limits<double>::infinity();
}

Comparison compare_special(const ConstTensorView& y, const OracleResult& expected, const Plan& plan, Values values) {
  OracleResult claimed = expected;
  // Products of rounded parts sum up to a little more than those of the numbers themselves.
  const Arithmetic arithmetic = plan.arithmetic();
  const double margin = arithmetic.products > 1 ? 0x1p-7 : arithmetic.dtype == "tf32" ? 0x1p-9 : 0;
  const bool any_nan_allowed = are_non_finite(values) && (mixes_groups(plan) || multiplies_parts(plan));
  const bool tanh_may_be_nan = are_non_finite(values) && loses_tanh_of_infinity(plan);
  for (std::int64_t i = 0; i < y.shape.elements(); ++i) {
    const auto at = static_cast<std::size_t>(i);
    const double got = value_at(y, i);
    const bool overflows = std::isfinite(claimed.magnitude[at]) && claimed.magnitude[at] >= (1 - margin) * kGreatest;
    const bool nan_allowed = any_nan_allowed || (tanh_may_be_nan && claimed.exact[at] == 1);
    if (overflows || (nan_allowed && std::isnan(got))) claimed.exact[at] = got;
  }
  return compare(y, claimed, plan.error_bound());
}

std::vector<std::string> own_devices() {
  std::vector<std::string> uris;
  for (const DeviceInfo& info : devices()) {
    if (info.available && (info.backend == "cuda" || info.uri.starts_with("cpu:"))) uris.push_back(info.uri);
  }
  return uris;
}

/// The problems are so small that the oracle's threads would wait for each other. Kernels have threads of their own.
RandomVerifier::RandomVerifier(std::vector<std::string> devices) : devices_(std::move(devices)) {
  omp_set_num_threads(1);
}

const Device& RandomVerifier::opened(const std::string& uri) {
  const auto found = open_.find(uri);
  return found != open_.end() ? found->second : open_.emplace(uri, open(uri)).first->second;
}

bool RandomVerifier::takes_kernel(DeviceUri uri, const std::string& kernel) {
  const auto [known, is_new] = takes_kernel_.try_emplace(to_string(uri), true);
  if (!is_new) return known->second;
  uri.options["kernel"] = kernel;
  try {
    opened(to_string(uri));
  } catch (const Error& error) {
    if (error.code() != ErrorCode::invalid_argument) throw;
    known->second = false;
  }
  return known->second;
}

RandomResult RandomVerifier::run(std::uint64_t seed) {
  RandomResult result{.seed = seed, .problem = random_problem(seed), .device = {}, .kernel = {}, .comparison = {}};
  std::uint64_t choice = (seed + 1) * 0x9e3779b97f4a7c15U;
  const auto any = [&choice](std::size_t count) {
    choice = choice * 6364136223846793005U + 1442695040888963407U;
    return static_cast<std::size_t>(choice >> 33) % count;
  };
  result.device = devices_[any(devices_.size())];
  std::vector<std::string> kernels;
  for (const KernelSupport& answer : opened(result.device).query(result.problem.op)) {
    if (answer.supported) kernels.push_back(answer.kernel);
  }
  if (kernels.empty()) return result;
  result.kernel = kernels[any(kernels.size())];
  DeviceUri uri = parse_device_uri(result.device);
  if (takes_kernel(uri, result.kernel)) uri.options["kernel"] = result.kernel;
  if (uri.backend == "cpu" || uri.backend == "onednn") uri.options["threads"] = std::to_string(1 + any(2));
  result.device = to_string(uri);

  OpenDevice device{opened(result.device), result.device};
  device.kind = kind_of(device.device.info().memory);
  const OpData data = data_of(result.problem, seed);
  OpRunner runner(device, result.problem.op);
  runner.prepare(data);
  runner.run();
  OracleResult expected = oracle(result.problem.op, data.inputs());
  Values values = result.problem.values;
  if (round_to_infinity(data.x, least_rounded_to_infinity(runner.plan().arithmetic()))) {
    const OracleResult rounded = oracle(result.problem.op, data.inputs());
    for (std::size_t i = 0; i < rounded.magnitude.size(); ++i) {
      if (!std::isfinite(rounded.magnitude[i])) expected.magnitude[i] = kGreatest;
    }
    values = Values::infinite;
  }
  result.comparison = compare_special(runner.result(), expected, runner.plan(), values);
  return result;
}

}  // namespace gable::bench
