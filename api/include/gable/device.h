// Devices: what is there, what each can run, and how to open one at run time.
#pragma once

#include <gable/ceilings.h>
#include <gable/event.h>
#include <gable/export.h>
#include <gable/loops.h>
#include <gable/ops.h>
#include <gable/plan.h>
#include <gable/tensor.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace gable {

class DeviceImpl;

struct DeviceInfo {
  std::string uri{};      ///< what open() takes: "cpu", "cpu:avx2", "onednn", "cuda:0"
  std::string backend{};  ///< "cpu", "onednn", "cuda", ...
  std::string name{};     ///< the hardware and what drives it: "AMD EPYC ... (avx512)"
  bool available = false;
  std::string reason{};  ///< why not, in the loader's or the driver's own words
  Memory memory{};
  std::string library{};               ///< file of the plugin; empty for what libgable holds
  std::vector<std::string> kernels{};  ///< values of ?kernel=
};

/// One kernel's answer to one op.
struct KernelSupport {
  std::string kernel{};
  bool supported = false;
  std::string reason{};  ///< why not
};

/// A cheap handle; copies share the device.
class GABLE_API Device {
 public:
  explicit Device(std::shared_ptr<DeviceImpl> impl) : impl_(std::move(impl)) {}

  const DeviceInfo& info() const;
  /// Every kernel the device considers for `op`, best first, each with its reason if it can't. Throws only on an op
  /// that is invalid everywhere.
  std::vector<KernelSupport> query(const Op& op) const;
  /// Throws Error(invalid_argument), or Error(unsupported) with the reasons of query().
  Plan plan(const Op& op) const;

  Tensor tensor(DType dtype, const Shape& shape, Layout layout = Layout::nchw) const;
  /// Between tensors of equal shape, dtype and layout, from any memory this device can reach to any other.
  void copy(const ConstTensorView& from, const TensorView& to, const Stream& stream = {}) const;
  Stream stream() const;
  Event event() const;
  void synchronize(const Stream& stream = {}) const;
  /// Places the loop's memory. Throws Error(unsupported) where the device has no such loop.
  Loop loop(const MemoryLoop& loop) const;
  Loop loop(const PagerankLoop& loop) const;
  /// Measures the device's limits, in seconds rather than minutes. Empty where its backend has no loops for that.
  std::vector<Ceiling> ceilings(const CeilingRequest& request = {}) const;

 private:
  std::shared_ptr<DeviceImpl> impl_;
};

/// Every device of every backend, best first, the unavailable ones with the reason. Loads all plugins on the first
/// call.
GABLE_API std::vector<DeviceInfo> devices();

/// `uri` is backend[:selector][?option=value[&option=value]], e.g. "cpu:avx2?threads=2", or "auto": the first available
/// device (GABLE_DEVICE, if set, says which). Only the plugin that is named gets loaded. Throws Error(unavailable) with
/// the reason, or Error(invalid_argument) naming the part of the URI that is wrong.
GABLE_API Device open(std::string_view uri);

}  // namespace gable
