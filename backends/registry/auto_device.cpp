// See auto_device.h.
#include "backends/registry/auto_device.h"

#include <algorithm>

namespace gable {
namespace {

DeviceInfo auto_info(const DeviceInfo& first) {
  DeviceInfo info = first;
  info.uri = "auto";
  return info;
}

bool any_supported(const std::vector<KernelSupport>& answers) {
  return std::any_of(answers.begin(), answers.end(), [](const auto& answer) { return answer.supported; });
}

class AutoDevice final : public DeviceImpl {
 public:
  AutoDevice(std::vector<std::shared_ptr<DeviceImpl>> candidates, std::string refused)
      : DeviceImpl(auto_info(candidates.front()->info())),
        candidates_(std::move(candidates)),
        refused_(std::move(refused)) {}

  std::vector<KernelSupport> query(const Op& op) const override {
    std::vector<KernelSupport> all;
    for (const auto& candidate : candidates_) {
      for (KernelSupport answer : candidate->query(op)) {
        answer.kernel = candidate->info().uri + "/" + answer.kernel;
        all.push_back(std::move(answer));
      }
    }
    return all;
  }

  std::unique_ptr<PlanImpl> plan(const Op& op) const override {
    std::string passed_over = refused_;
    for (const auto& candidate : candidates_) {
      const std::vector<KernelSupport> answers = candidate->query(op);
      if (!any_supported(answers)) {
        passed_over += "passed over " + candidate->info().uri;
        for (const KernelSupport& answer : answers) passed_over += "; " + answer.kernel + ": " + answer.reason;
        passed_over += "\n";
        continue;
      }
      std::unique_ptr<PlanImpl> plan = candidate->plan(op);
      plan->prepend_explanation("auto chose " + candidate->info().uri +
                                ", the first in order of preference that runs this op\n" + passed_over);
      return plan;
    }
    throw Error(ErrorCode::unsupported, "auto: no device can run " + describe(op) + "\n" + passed_over);
  }

  std::shared_ptr<void> allocate(std::size_t bytes) const override { return candidates_.front()->allocate(bytes); }
  void copy(const ConstTensorView& from, const TensorView& to, void* stream) const override {
    candidates_.front()->copy(from, to, stream);
  }
  Stream stream() const override { return candidates_.front()->stream(); }
  void synchronize(void* stream) const override { candidates_.front()->synchronize(stream); }

 private:
  std::vector<std::shared_ptr<DeviceImpl>> candidates_;
  std::string refused_;
};

}  // namespace

std::shared_ptr<DeviceImpl> make_auto_device(std::vector<std::shared_ptr<DeviceImpl>> candidates, std::string refused) {
  return std::make_shared<AutoDevice>(std::move(candidates), std::move(refused));
}

}  // namespace gable
