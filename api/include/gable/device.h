// Devices: what is there, what each can run, and how to open one at run time.
#pragma once

#include <gable/batch_plan.h>
#include <gable/event.h>
#include <gable/export.h>
#include <gable/ops.h>
#include <gable/plan.h>
#include <gable/tensor.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace gable {

class DeviceImpl;
struct Candidate;
/// A device as devices() lists it, whether it can be opened or not.
struct DeviceInfo {
  std::string uri{};                   ///< what open() takes: "cpu", "cpu:avx2", "onednn", "cuda:0"
  std::string backend{};               ///< "cpu", "onednn", "cuda", ...
  std::string name{};                  ///< the hardware and what drives it: "AMD EPYC ... (avx512)"
  bool available = false;              ///< open() would succeed
  std::string reason{};                ///< why not, in the loader's or the driver's own words
  Memory memory{};                     ///< where the device's tensors lie
  std::string library{};               ///< file of the plugin; empty for the backends inside libgable
  std::vector<std::string> kernels{};  ///< values of ?kernel=
};

/// One kernel's answer to one op, as query() shows it.
struct KernelSupport {
  std::string kernel{};
  bool supported = false;
  std::string reason{};  ///< why not
};

/// A cheap handle; copies share the device. Memory loops, PageRank and ceilings are in gable/study.h.
class GABLE_API Device {
 public:
  explicit Device(std::shared_ptr<DeviceImpl> impl) : impl_(std::move(impl)) {}  ///< open()'s

  const DeviceInfo& info() const;  ///< as devices() lists it
  /// All kernels that the device considers for `op`, best first; kernels that can't run it have the reason. Throws
  /// Error(invalid_argument) for an op that validate() refuses.
  std::vector<KernelSupport> query(const Op& op) const;
  /// The plan of the first kernel that can run `op`. Throws Error(invalid_argument), Error(out_of_memory) if there is
  /// no memory for the workspace, or Error(unsupported), whose message names the attribute at fault or has the
  /// reasons of query().
  Plan plan(const Op& op) const;
  /// The plan on the device of a candidate that choose() gave for this op, or for this op with another batch. Nothing
  /// is predicted again. The kernel is the candidate's if it was measured, otherwise the device's own choice. If it
  /// can't run the op, the result is that of plan(op).
  Plan plan(const Op& op, const Candidate& like) const;
  /// Plans of `op` for every batch of the range, which is the first dimension of its input, or m of a Matmul. A
  /// Transpose has no batch. See gable/batch_plan.h.
  BatchPlan plan(const Op& op, BatchRange range) const;

  /// Uninitialised memory of the device. `shape` has 1 to 4 dimensions of at least 1 element. Throws
  /// Error(invalid_argument), Error(out_of_memory).
  Tensor tensor(DType dtype, const Shape& shape, Layout layout = Layout::nchw) const;
  /// Copies between tensors of equal shape, dtype and memory order, from any memory that this device reaches to any
  /// other. Asynchronous on a stream where the device is. Throws Error(invalid_argument), also for tensors that overlap
  /// and are not the same.
  void copy(const ConstTensorView& from, const TensorView& to, const Stream& stream = {}) const;
  /// A new order of execution; on host devices the default one. Throws Error(device_failure).
  Stream stream() const;
  /// An event that is not recorded yet. Throws Error(unsupported) where the backend has none.
  Event event() const;
  /// Waits on the host until everything on the stream has finished. Throws Error(device_failure), also for a failure of
  /// earlier asynchronous work.
  void synchronize(const Stream& stream = {}) const;

  /// The backend's side, for gable's own code.
  const DeviceImpl& impl() const { return *impl_; }

 private:
  std::shared_ptr<DeviceImpl> impl_;
};

/// Every device of every backend, best first, the unavailable ones with the reason. Loads all plugins on the first
/// call.
GABLE_API std::vector<DeviceInfo> devices();

/// `uri` is backend[:selector][?option=value[&option=value]], e.g. "cpu:avx2?threads=2", or "auto": for each op the
/// device that is predicted to be the fastest, or was measured to be (gable/choose.h); GABLE_DEVICE, if set, stands in
/// for it. Only the plugin that is named gets loaded. Throws Error(unavailable) with the reason, or
/// Error(invalid_argument) naming the part of the URI that is wrong.
GABLE_API Device open(std::string_view uri);

}  // namespace gable
