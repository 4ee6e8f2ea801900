// The device "onednn": Intel's oneDNN on this CPU, the peer that gable's own kernels are measured against.
//
// onednn[?threads=N][&kernel=K][&isa=I]. oneDNN lets a process limit the instruction set once, before its first use. A
// later ?isa= is refused with that reason.
#include "onednn_shape_fits.h"
#include "onednn_shape_fits_3.h"
#include "onednn_shape_fits_amx.h"
#include "onednn_shape_fits_wide.h"
#include "onednn_shape_fits_wide_3.h"
#include "primitive_plan.h"
#include "recipe.h"
#include "shared_lines.h"
#include "version.h"

#include "backends/threads.h"
#include "common/bf16_units.h"

#include <gable/backend.h>
#include <gable/error.h>

#include <omp.h>

#include <dnnl_debug.h>
#include <algorithm>
#include <compare>
#include <fstream>
#include <mutex>
#include <optional>
#include <set>

namespace gable::onednn {
namespace {

std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("model name")) return line.substr(std::min(line.size(), line.find(':') + 2));
  }
  return "CPU";
}

std::string library_version() {
  const dnnl_version_t* version = dnnl_version();
  return "oneDNN " + std::to_string(version->major) + "." + std::to_string(version->minor) + "." +
         std::to_string(version->patch);
}

std::string instruction_set_name(dnnl::cpu_isa value) {
  for (const InstructionSet& set : instruction_sets()) {
    if (set.value == value) return set.name;
  }
  return dnnl_cpu_isa2str(static_cast<dnnl_cpu_isa_t>(value));
}

std::string effective_instruction_set() { return instruction_set_name(dnnl::get_effective_cpu_isa()); }

std::string join(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

InstructionSet parse_instruction_set(const DeviceUri& uri, const std::string& name) {
  std::vector<std::string> names;
  for (const InstructionSet& set : instruction_sets()) {
    if (set.name == name) return set;
    names.push_back(set.name);
  }
  throw Error(ErrorCode::invalid_argument,
              "device '" + to_string(uri) + "': isa is '" + name + "'; it must be one of " + join(names));
}

/// The first call that queries oneDNN's instruction set also fixes it.
void limit_instruction_set(const DeviceUri& uri, const InstructionSet& wanted) {
  static std::mutex mutex;
  static std::string limit;
  const std::lock_guard lock(mutex);
  if (limit != wanted.name) {
    if (dnnl::set_max_cpu_isa(wanted.value) != dnnl::status::success) {
      throw Error(ErrorCode::unavailable,
                  "device '" + to_string(uri) +
                      "': oneDNN takes a limit of its instruction set once, before its first use in a process, and "
                      "already runs with at most " +
                      effective_instruction_set() + ": ask for it in a new process");
    }
    limit = wanted.name;
  }
  const dnnl::cpu_isa effective = dnnl::get_effective_cpu_isa();
  if (effective != wanted.value) {
    throw Error(ErrorCode::unavailable, "device '" + to_string(uri) + "': " + library_version() + " reaches at most " +
                                            instruction_set_name(effective) + " on this CPU, not " + wanted.name);
  }
}

/// The kernels that ?kernel= allows: one, or all.
std::vector<std::string> allowed_kernels(const DeviceUri& uri) {
  const auto option = uri.options.find("kernel");
  if (option == uri.options.end() || option->second == "auto") return kernels();
  if (std::find(kernels().begin(), kernels().end(), option->second) == kernels().end()) {
    throw Error(ErrorCode::invalid_argument, "device '" + to_string(uri) + "': kernel is '" + option->second +
                                                 "'; it must be one of auto, " + join(kernels()));
  }
  return {option->second};
}

/// What decides whether oneDNN takes an op with weights.
struct Kind {
  std::size_t op = 0;
  DType dtype = DType::f32;
  Math math = Math::strict;
  Layout layout = Layout::nchw;
  Activation activation = Activation::none;
  bool bias = false, pool = false, groups = false, depthwise = false, dilated = false, without_brgemm = false;
  auto operator<=>(const Kind&) const = default;
};

/// Nothing for an op without weights.
std::optional<Kind> kind_of(const Op& op) {
  if (const auto* c = std::get_if<Conv2d>(&op)) {
    return Kind{op.index(),
                c->dtype,
                c->math,
                c->layout,
                c->epilogue.activation,
                c->epilogue.bias,
                static_cast<bool>(c->epilogue.max_pool),
                c->groups > 1,
                c->weights[1] == 1,
                c->dilation.h > 1 || c->dilation.w > 1,
                !brgemm_fault(*c).empty()};
  }
  if (const auto* m = std::get_if<Matmul>(&op)) {
    return Kind{.op = op.index(), .dtype = m->dtype, .math = m->math, .activation = m->activation, .bias = m->bias};
  }
  return std::nullopt;
}

/// Where brgemm is avoided, f32 and bf16 have jit kernels; f16 has gemm or plain loops, which take 0.3 to 1400 times
/// what the model says, in the middle 4 to 75 times by layout and class: 420 random layers on a Xeon with AMX
/// (regret-auto-random-3-f16), which then lose 1.055 instead of 1.095 in NHWC and 1.024 instead of 1.073 in NCHW.
constexpr double kPlainLoops = 30;

/// The jit kernels for f32 and bf16 refuse rows of outputs that are shorter than the padding before them, and in NCHW
/// groups whose channels are not in fours. oneDNN multiplies copied windows then, by a gemm for each image and group,
/// in 0.4 to 20 times what the model says and at least 1.3 times what `cpu` takes (61 records of 13 random layers on a
/// Xeon with AMX). The rule holds for 1395 of 1400 random layers without brgemm, by oneDNN 3.7.2.
constexpr double kGemm = 5;

bool is_left_to_gemm(const Conv2d& c) {
  const std::int64_t in = c.weights[1], out = c.weights[0] / c.groups;
  if (c.groups > 1 && in == 1) return false;
  const bool in_parts = c.groups > 1 && c.layout == Layout::nchw && (in % 4 != 0 || out % 4 != 0);
  return in_parts || c.padding.left > conv_output_shape(c)[3];
}

/// How many times as long as the model says oneDNN takes where brgemm is avoided.
double slowness_without_brgemm(const Op& op) {
  const auto* const c = std::get_if<Conv2d>(&op);
  if (c == nullptr || brgemm_fault(*c).empty()) return 1;
  if (c->dtype == DType::f16) return kPlainLoops;
  return is_left_to_gemm(*c) ? kGemm : 1;
}

/// In NCHW oneDNN writes a result in blocks of channels or NHWC and then reorders it. From 8 MB on, no cache of a core
/// holds it in between. On each of 191 such layers (networks and random ones, one to four threads of a Xeon with AMX
/// and a Zen 5) oneDNN took 1.08 to 15 times as long as `cpu`, where laws without this factor predict at least 0.95.
constexpr double kLargeReorder = 1.5;
constexpr double kLargeResult = 8e6;  // bytes

bool reorders_a_large_result(const Op& op) {
  const auto* const c = std::get_if<Conv2d>(&op);
  if (c == nullptr || c->layout != Layout::nchw) return false;
  return static_cast<double>(conv_output_shape(*c).elements()) * static_cast<double>(size_of(c->dtype)) >= kLargeResult;
}

/// Those of this library's version. On CPUs with AMX laws are of oneDNN 3.
HostFits shape_fits() {
  if (kMajorVersion < 3) return {kOnednnShapeFits, kOnednnShapeFitsWide, kOnednnShapeFitsAmx};
  return {kOnednnShapeFits3, kOnednnShapeFitsWide3, kOnednnShapeFitsAmx};
}

double lines_between_threads(const Op& op, int threads) {
  const auto* const c = std::get_if<Conv2d>(&op);
  return c == nullptr ? 0 : shared_line_seconds(*c, threads, amx_state() == AmxState::usable);
}

class OnednnDevice final : public DeviceImpl {
 public:
  OnednnDevice(DeviceInfo info, std::vector<std::string> allowed, int threads)
      : DeviceImpl(std::move(info)), allowed_(std::move(allowed)), threads_(threads) {}

  std::vector<KernelOffer> offers(const Op& op) const override {
    std::vector<KernelOffer> all;
    for (const std::string& kernel : considered(op)) all.push_back(offer(op, kernel));
    return all;
  }

  /// Asks oneDNN kernel by kernel until it takes one, and does not ask if it took the first kernel for another op of
  /// this kind: an answer takes up to 0.3 ms, and the refusal of winograd takes longest.
  std::vector<KernelOffer> quick_offers(const Op& op) const override {
    const std::optional<Kind> kind = kind_of(op);
    std::vector<KernelOffer> all;
    bool found = kind && takes(*kind);
    for (const std::string& kernel : considered(op)) {
      all.push_back(found ? unasked(op, kernel) : offer(op, kernel));
      found = found || all.back().supported();
    }
    if (kind && !all.empty() && all.front().supported()) remember(*kind);
    return all;
  }

  std::optional<double> predicted_seconds(const Op& op) const override {
    const double reorder = reorders_a_large_result(op) ? kLargeReorder : 1;
    return reorder * slowness_without_brgemm(op) * modelled_host_seconds(op, threads_, shape_fits()) +
           lines_between_threads(op, threads_);
  }

 private:
  bool takes(const Kind& kind) const {
    const std::lock_guard lock(mutex_);
    return taken_.contains(kind);
  }
  void remember(const Kind& kind) const {
    const std::lock_guard lock(mutex_);
    taken_.insert(kind);
  }

  /// With ?kernel=, that kernel answers every op, even if only with a refusal.
  std::vector<std::string> considered(const Op& op) const {
    if (allowed_.size() == 1) return allowed_;
    std::vector<std::string> names;
    std::copy_if(allowed_.begin(), allowed_.end(), std::back_inserter(names),
                 [&](const std::string& kernel) { return considers(kernel, op); });
    return names;
  }

  KernelOffer unasked(const Op& op, const std::string& kernel) const {
    return {kernel, "", [this, op, kernel]() -> std::unique_ptr<PlanImpl> {
              const KernelOffer asked = offer(op, kernel);
              if (!asked.supported()) throw Error(ErrorCode::unsupported, asked.refusal);
              return asked.make();
            }};
  }

  /// The plan is made from the recipe that the answer was found with.
  KernelOffer offer(const Op& op, const std::string& kernel) const {
    const ThreadScope scope(threads_);
    try {
      const auto recipe = std::make_shared<const Recipe>(make_recipe(engine_, op, kernel));
      return {kernel, "", [this, op, recipe] { return plan_with(op, *recipe); }};
    } catch (const dnnl::error& error) {
      const std::string what = std::string(to_string(dtype_of(op))) + " " + std::string(name(op));
      return {kernel,
              to_error(error, what + " in " + library_version() + " (" + effective_instruction_set() + ")").what(),
              {}};
    } catch (const Error& error) {
      return {kernel, error.what(), {}};
    }
  }

  std::unique_ptr<PlanImpl> plan_with(const Op& op, const Recipe& recipe) const {
    const ThreadScope scope(threads_);
    try {
      return std::make_unique<PrimitivePlan>(engine_, *this, op, recipe, threads_, info_.name);
    } catch (const dnnl::error& error) {
      throw to_error(error, describe(op));
    }
  }

  std::vector<std::string> allowed_;
  int threads_;
  dnnl::engine engine_{dnnl::engine::kind::cpu, 0};
  mutable std::mutex mutex_;
  mutable std::set<Kind> taken_;  ///< kinds of ops whose first kernel oneDNN took
};

class OnednnBackend final : public Backend {
 public:
  std::string name() const override { return "onednn"; }
  int priority() const override { return 110; }

  std::vector<std::string> options() const override { return {"threads", "kernel", "isa"}; }

  /// Does not name the instruction set: asking for it would fix it.
  std::vector<DeviceInfo> probe() const override {
    DeviceInfo info{
        .uri = "onednn", .backend = "onednn", .name = cpu_name() + " (" + library_version() + ")", .available = true};
    info.kernels = kernels();
    return {info};
  }

  std::shared_ptr<DeviceImpl> open(const DeviceUri& uri) const override {
    if (!uri.selector.empty()) {
      throw Error(ErrorCode::invalid_argument,
                  "device '" + to_string(uri) + "': onednn has no '" + uri.selector + "'; use 'onednn'");
    }
    std::vector<std::string> allowed = allowed_kernels(uri);
    const int threads = threads_option(uri);
    if (const auto isa = uri.options.find("isa"); isa != uri.options.end()) {
      limit_instruction_set(uri, parse_instruction_set(uri, isa->second));
    }
    DeviceInfo info = probe().front();
    info.uri = to_string(uri);
    if (!why_no_winograd().empty()) std::erase(info.kernels, kWinograd);
    info.name = cpu_name() + " (" + library_version() + ", " + effective_instruction_set() + ")";
    try {
      return std::make_shared<OnednnDevice>(std::move(info), std::move(allowed), threads);
    } catch (const dnnl::error& error) {
      throw to_error(error, "device '" + to_string(uri) + "'");
    }
  }
};

}  // namespace
}  // namespace gable::onednn

GABLE_PLUGIN(gable::onednn::OnednnBackend)
