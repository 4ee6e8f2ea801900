// The device "cpu": gable's own vectorised kernels. cpu is the best instruction set of this CPU, cpu:avx2 a forced one.
#include <gable/backend.h>
#include <gable/error.h>

#include <omp.h>

#include <algorithm>
#include <fstream>
#include <limits>

#include "backends/cpu/cpu_plans.h"
#include "backends/cpu/cpu_shape_fits.h"
#include "backends/cpu/cpu_shape_fits_amx.h"
#include "backends/cpu/cpu_shape_fits_wide.h"
#include "backends/cpu/cropped.h"
#include "backends/registry/builtin.h"
#include "backends/threads.h"
#include "cpu/common/estimate.h"
#include "cpu/common/target.h"

namespace gable {
namespace {

std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "this CPU";
}

DeviceInfo info_of(const cpu::Target& target, const std::string& uri) {
  DeviceInfo info{.uri = uri, .backend = "cpu", .name = cpu_name() + " (" + std::string(target.name) + ")"};
  info.available = target.supported;
  if (!target.supported) info.reason = "this CPU has no " + std::string(target.name);
  info.kernels = cpu_kernels().names(target);
  return info;
}

std::string known_targets() {
  std::string names;
  for (const cpu::Target& target : cpu::compiled_targets())
    names += (names.empty() ? "" : ", ") + std::string(target.name);
  return names;
}

class CpuDevice final : public DeviceImpl {
 public:
  /// `kernel` is empty, or the only one to use.
  CpuDevice(DeviceInfo info, const cpu::Target& target, int threads, std::string kernel)
      : DeviceImpl(std::move(info)), place_{target, threads}, alone_{target, 1}, kernel_(std::move(kernel)) {}

  std::vector<KernelOffer> offers(const Op& op) const override {
    std::vector<KernelOffer> all = cpu_kernels().offers(op, place_.target, place_, kernel_);
    if (kernel_.empty() && is_short(all)) {
      std::vector<KernelOffer> alone = cpu_kernels().offers(op, alone_.target, alone_, kernel_);
      if (seconds_of(alone) <= kClearly * seconds_of(all)) all = std::move(alone);
    }
    for (KernelOffer& offer : all) {
      if (offer.supported()) offer.make = [make = std::move(offer.make), op] { return made(op, make); };
    }
    return all;
  }

  std::optional<double> predicted_seconds(const Op& op) const override {
    const HostFits fits{kCpuShapeFits, kCpuShapeFitsWide, kCpuShapeFitsAmx};
    if (!has_weights(op)) return modelled_host_seconds(op, place_.threads, fits);
    return modelled_host_seconds(without_unread_taps(upright_problem(op)), place_.threads, fits);
  }

 private:
  /// Whether one thread may be faster: a run takes little more than several threads take to begin. A kernel that is
  /// asked for by its name keeps its threads.
  bool is_short(const std::vector<KernelOffer>& offers) const {
    return seconds_of(offers) < 2 * cpu::region_seconds(place_.threads);
  }
  static constexpr double kClearly = 0.85;  // around 2 us, estimates are not precise enough to tell
  static double seconds_of(const std::vector<KernelOffer>& offers) {
    return offers.front().seconds.value_or(std::numeric_limits<double>::infinity());
  }

  /// Makes the plan; turns the kernels' exceptions into gable::Error.
  static std::unique_ptr<PlanImpl> made(const Op& op, const std::function<std::unique_ptr<PlanImpl>()>& make) {
    try {
      return make();
    } catch (const std::invalid_argument& error) {
      throw Error(ErrorCode::invalid_argument, error.what());
    } catch (const std::bad_alloc&) {
      throw Error(ErrorCode::out_of_memory, "no host memory for the workspace of " + describe(op));
    }
  }

  CpuPlace place_, alone_;
  std::string kernel_;
};

class CpuBackend final : public Backend {
 public:
  std::string name() const override { return "cpu"; }
  int priority() const override { return 120; }

  std::vector<std::string> options() const override { return {"threads", "kernel"}; }

  std::vector<DeviceInfo> probe() const override {
    std::vector<DeviceInfo> all{info_of(cpu::best_target(), "cpu")};
    for (const cpu::Target& target : cpu::compiled_targets()) {
      all.push_back(info_of(target, "cpu:" + std::string(target.name)));
    }
    return all;
  }

  std::shared_ptr<DeviceImpl> open(const DeviceUri& uri) const override {
    const cpu::Target* target = uri.selector.empty() ? &cpu::best_target() : cpu::find_target(uri.selector);
    if (target == nullptr) {
      throw Error(ErrorCode::invalid_argument, "device '" + to_string(uri) + "': no target '" + uri.selector +
                                                   "'; this build has " + known_targets());
    }
    if (!target->supported) {
      throw Error(ErrorCode::unavailable, "device '" + to_string(uri) + "': " + info_of(*target, "").reason);
    }
    const int threads = threads_option(uri);
    return std::make_shared<CpuDevice>(info_of(*target, to_string(uri)), *target, threads,
                                       requested_kernel(uri, cpu_kernels().names()));
  }
};

}  // namespace

std::unique_ptr<Backend> make_cpu_backend() { return std::make_unique<CpuBackend>(); }

}  // namespace gable
