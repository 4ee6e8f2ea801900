// The contract between gable and its backends. Applications don't include this header; plugins do.
//
// A plugin is a shared library named libgable_<backend>.so that exports gable_plugin(). The loader compares the version
// and the ABI number in the answer with its own before it calls anything else. A plugin must load, and its devices must
// be listed, on a machine without the driver.
#pragma once

#include <gable/abi.h>
#include <gable/choose.h>
#include <gable/device.h>
#include <gable/ops.h>
#include <gable/plan.h>
#include <gable/problem.h>
#include <gable/version.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace gable {

class StudyImpl;  // gable/study_backend.h

/// The parts of backend[:selector][?option=value...].
struct DeviceUri {
  std::string backend{};                         ///< "cpu"
  std::string selector{};                        ///< "avx2"; empty: the backend's own choice
  std::map<std::string, std::string> options{};  ///< {"threads", "2"}
};

/// Throws Error(invalid_argument) naming the part that is wrong.
GABLE_API DeviceUri parse_device_uri(std::string_view text);
/// The URI as text, which parse_device_uri() reads.
GABLE_API std::string to_string(const DeviceUri& uri);
/// Throws Error(invalid_argument) naming the first option that is not among `known`.
GABLE_API void check_options(const DeviceUri& uri, const std::vector<std::string>& known);
/// The option as a whole number in [low, high], or `missing` without it. Throws Error(invalid_argument).
GABLE_API int integer_option(const DeviceUri& uri, const std::string& option, int low, int high, int missing);

/// What a plan says about itself; it does not change after construction.
struct PlanDetails {
  std::string kernel{};
  std::string explanation{};  ///< target, tile, blocking, fusion, threads, in one paragraph
  bool fused = true;
  ErrorBound bound{};
  std::size_t workspace_bytes = 0;
  std::size_t packed_bytes = 0;   ///< 0 for ops without weights
  std::uint64_t packing_key = 0;  ///< packing_key()'s; equal for plans of one memory that can share packed weights
  Arithmetic arithmetic{};        ///< only if it is not what the op's dtype and math say
  std::string program{};          ///< what PlanSearch found, in the backend's own words; empty if nothing was searched
  int threads = 0;                ///< of the CPU, that a run uses: may be fewer than the device has; 0 on a GPU
};

/// The key of packed weights. `backend` ("cpu") keeps the orders of two backends apart. libgable mixes in the memory
/// that the plan's tensors lie in, so weights packed for another GPU are refused.
GABLE_API std::uint64_t packing_key(std::string_view backend, const Packing& packing);
/// For packings that no Packing describes, such as formats of a vendor's library: `description` must name everything
/// that the packed bytes depend on.
GABLE_API std::uint64_t packing_key(std::string_view description);

/// Checked pointers: their shapes, dtypes and memory are what the op says, and the output overlaps no input, except
/// that the output of an Add, Activate, Multiply or Softmax may be exactly an input of its shape.
struct RunArguments {
  const void* inputs[2] = {nullptr, nullptr};  ///< x, or a and b of an Add
  const void* weights = nullptr;               ///< packed; null for ops without
  const float* bias = nullptr;                 ///< one f32 for each channel of the output; null for ops without
  void* output = nullptr;
  void* stream = nullptr;
};
/// The backend's side of a Plan: one op bound to one kernel, with its workspace.
class GABLE_API PlanImpl {
 public:
  explicit PlanImpl(PlanDetails details) : details_(std::move(details)) {}  ///< allocates what run() needs
  virtual ~PlanImpl();
  const PlanDetails& details() const { return details_; }  ///< as given to the constructor
  /// Reorders dense row-major weights into `packed`, which has details().packed_bytes. Both lie in the device's memory.
  virtual void pack(const void* weights, void* packed);
  /// Computes. Allocates nothing.
  virtual void run(const RunArguments& arguments) = 0;

 private:
  PlanDetails details_;
};

/// The backend's side of an Event.
class GABLE_API EventImpl {
 public:
  virtual ~EventImpl();
  /// Puts the event on the stream; null is the device's default one.
  virtual void record(void* stream) = 0;
  /// `start` is of the same class. Throws Error(invalid_argument) where it is another device's, or was not recorded.
  virtual double seconds_since(const EventImpl& start) const = 0;
};

/// How to make a plan that is searched for among many programs, such as the engines of cuDNN.
struct PlanSearch {
  double seconds = std::numeric_limits<double>::infinity();  ///< about how long the search may take
  std::string program{};  ///< PlanDetails::program of an earlier plan of the op: taken without a search if it exists
};

/// One kernel's answer to one op, and how to make its plan. A device computes the answer once: query() shows it, plan()
/// follows it, explain() prints it.
struct KernelOffer {
  std::string kernel{};
  std::string refusal{};  ///< why the kernel can't run the op; empty: it can
  /// Makes the plan; set if `refusal` is empty. Called at most once, while the device lives. Throws Error(unsupported)
  /// if it only now turns out that the kernel can't run the op: see DeviceImpl::quick_offers().
  std::function<std::unique_ptr<PlanImpl>()> make{};
  /// The same, set if make() searches for the plan, which takes seconds.
  std::function<std::unique_ptr<PlanImpl>(const PlanSearch&)> search{};
  std::optional<double> seconds{};  ///< estimated time of a run, where the kernel has a model of it

  bool supported() const { return refusal.empty(); }  ///< the kernel can run the op
};

class DeviceImpl;

/// The device that will run an op, with the answers of its kernels.
struct Choice {
  std::shared_ptr<const DeviceImpl> device{};  ///< null: the device on which choose() was called
  std::vector<KernelOffer> offers{};           ///< best first; the first supported one makes the plan
  std::string reasons{};  ///< why this device, one line each, for explain(); empty where the caller named it
  /// Gives the next choice if every offer refused when its plan was made. Its argument is these offers with their
  /// reasons. Null if there is no next choice. Called while the device lives.
  std::function<Choice(std::vector<KernelOffer>)> otherwise{};
};

/// An open device. Ops that reach it are validated.
class GABLE_API DeviceImpl {
 public:
  explicit DeviceImpl(DeviceInfo info) : info_(std::move(info)) {}  ///< `info` is as probe() gives it
  virtual ~DeviceImpl();
  const DeviceInfo& info() const { return info_; }                     ///< as given, with the library
  void set_library(const std::string& file) { info_.library = file; }  ///< the registry's: where the backend came from
  /// The answers of all kernels that the device considers for `op`, best first. `op` is valid.
  virtual std::vector<KernelOffer> offers(const Op& op) const = 0;
  /// What `auto` ranks by, within microseconds: a device whose library answers more slowly says what it knows without
  /// it. Such an offer may still refuse when its plan is made. The default calls offers().
  virtual std::vector<KernelOffer> quick_offers(const Op& op) const;
  /// Predicted seconds of a run of the kernel that plan() would take, with tensors in the device's memory. `auto`
  /// compares devices by it before it asks the fastest for its offers, so it must take microseconds and call no
  /// vendor's library. Empty without a model: `auto` then goes by the backend's priority().
  virtual std::optional<double> predicted_seconds(const Op& op) const;
  /// The choice from which plan() is made. A device that stands for several, such as `auto`, overrides this and the
  /// three functions below.
  virtual Choice choose(const Op& op) const;
  /// The same if the device is already known from the choice for the op with another batch.
  virtual Choice choose_like(const Op& op, const Candidate& like) const;
  /// The answers as gable::choose() shows them.
  virtual Ranking ranking(const Op& op) const;
  /// Measures the candidates. The default throws Error(invalid_argument), since there is only one device.
  virtual Ranking tune(const Op& op, double seconds) const;

  // Memory, streams and events. The defaults are those of the host.
  /// Throws Error(out_of_memory).
  virtual std::shared_ptr<void> allocate(std::size_t bytes) const;
  /// The tensors are checked: equal shape, dtype and order; apart, or the same. Throws Error(invalid_argument) for
  /// memory that the device does not reach.
  virtual void copy(const ConstTensorView& from, const TensorView& to, void* stream) const;
  virtual Stream stream() const;  ///< a new one, as Device::stream(); without an override the default one
  /// Waits until the work on the stream has finished. Throws Error(device_failure), also for earlier failures of it.
  virtual void synchronize(void* stream) const;
  /// Throws Error(unsupported) if there are no events.
  virtual std::shared_ptr<EventImpl> event() const;

  /// Loops and ceilings for studies; null where the device has none. The device owns it.
  virtual const StudyImpl* studies() const { return nullptr; }

 protected:
  DeviceInfo info_;
};

/// Why a device whose offers all refuse can't run the op, a line for each: for a device with several kernels one line
/// if another value of one attribute would do, "cpu: math tf32: it takes strict, split6", else one for each kernel. The
/// kernels of an `auto` are named "device/kernel". Device::query() has every kernel's reason. What would do is known
/// from quick_offers(): making that plan may still fail.
GABLE_API std::string why_refused(const DeviceImpl& device, const Op& op, const std::vector<KernelOffer>& offers);
/// What a plugin adds to gable: it lists its devices and opens them.
class GABLE_API Backend {
 public:
  virtual ~Backend();
  /// As in libgable_<name>.so and in device URIs.
  virtual std::string name() const = 0;
  /// Greater is tried first by `auto`. reference 0, onednn 110, cpu 120, cudnn 200, cuda 210.
  virtual int priority() const = 0;
  /// Every device, also those that can't be used, with the reason. Never throws for a missing driver.
  virtual std::vector<DeviceInfo> probe() const = 0;
  /// The options that open() takes: "threads", "kernel". libgable refuses a URI with any other before it calls open().
  virtual std::vector<std::string> options() const = 0;
  /// Throws Error(unavailable) or Error(invalid_argument).
  virtual std::shared_ptr<DeviceImpl> open(const DeviceUri& uri) const = 0;
};

/// What a plugin's entry returns. The loader reads `version` first, then `abi`. If one differs, it reads nothing else.
struct PluginEntry {
  const char* version;  ///< GABLE_VERSION_STRING
  std::uint64_t abi;    ///< GABLE_PLUGIN_ABI. 64 bits: entries without this member have the address of make() here.
  Backend* (*make)();   ///< called once; the registry owns the result and never unloads the plugin
};

}  // namespace gable

/// Defines the entry of a plugin for the class `BackendType`.
#define GABLE_PLUGIN(BackendType)                                                                     \
  extern "C" GABLE_API const gable::PluginEntry* gable_plugin() {                                     \
    static constexpr gable::PluginEntry entry{GABLE_VERSION_STRING, GABLE_PLUGIN_ABI,                 \
                                              []() -> gable::Backend* { return new BackendType(); }}; \
    return &entry;                                                                                    \
  }
