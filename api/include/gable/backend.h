// The contract between gable and its backends. Applications don't include this; plugins do.
//
// A plugin is a shared library named libgable_<backend>.so that exports gable_plugin(). The loader compares the version
// in the answer with its own before it calls anything else. Nothing in a plugin may need a driver to be loaded or
// probed.
#pragma once

#include <gable/device.h>
#include <gable/ops.h>
#include <gable/plan.h>
#include <gable/version.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace gable {

/// backend[:selector][?option=value...], cut into its parts.
struct DeviceUri {
  std::string backend{};
  std::string selector{};
  std::map<std::string, std::string> options{};
};

GABLE_API DeviceUri parse_device_uri(std::string_view text);
GABLE_API std::string to_string(const DeviceUri& uri);
/// Throws Error(invalid_argument) naming the first option that is not among `known`.
GABLE_API void check_options(const DeviceUri& uri, const std::vector<std::string>& known);
/// The option as a whole number in [low, high], or `missing` without it. Throws Error(invalid_argument).
GABLE_API int integer_option(const DeviceUri& uri, const std::string& option, int low, int high, int missing);

/// What a plan tells about itself; fixed once it is made.
struct PlanDetails {
  std::string kernel{};
  std::string explanation{};  ///< target, tile, blocking, fusion, threads, in one paragraph
  bool fused = true;
  ErrorBound bound{};
  std::size_t workspace_bytes = 0;
  std::size_t packed_bytes = 0;   ///< 0 for ops without weights
  std::uint64_t packing_key = 0;  ///< equal for plans that can share packed weights; packing_key() makes one
};

GABLE_API std::uint64_t packing_key(std::string_view description);

/// Checked pointers: their shapes, dtypes and memory are what the op says.
struct RunArguments {
  const void* inputs[2] = {nullptr, nullptr};
  const void* weights = nullptr;  ///< packed
  const float* bias = nullptr;
  void* output = nullptr;
  void* stream = nullptr;
};

class GABLE_API PlanImpl {
 public:
  explicit PlanImpl(PlanDetails details) : details_(std::move(details)) {}
  virtual ~PlanImpl();
  const PlanDetails& details() const { return details_; }
  /// Puts why this plan was chosen before what it is.
  void prepend_explanation(const std::string& choice) { details_.explanation = choice + details_.explanation; }
  /// From dense row-major weights to packed_bytes() at `packed`, both in the device's memory.
  virtual void pack(const void* weights, void* packed);
  virtual void run(const RunArguments& arguments) = 0;

 private:
  PlanDetails details_;
};

/// What an Event stands for.
class GABLE_API EventImpl {
 public:
  virtual ~EventImpl();
  virtual void record(void* stream) = 0;
  /// `start` is of the same class: it comes from the same device.
  virtual double seconds_since(const EventImpl& start) const = 0;
};

/// What a Loop stands for. `passes` is at least 1.
class GABLE_API LoopImpl {
 public:
  explicit LoopImpl(LoopDetails details) : details_(std::move(details)) {}
  virtual ~LoopImpl();
  const LoopDetails& details() const { return details_; }
  virtual void run(int passes, void* stream) = 0;
  virtual std::vector<float> result() const;

 private:
  LoopDetails details_;
};

/// An open device. Ops that reach it are validated.
class GABLE_API DeviceImpl {
 public:
  explicit DeviceImpl(DeviceInfo info) : info_(std::move(info)) {}
  virtual ~DeviceImpl();
  const DeviceInfo& info() const { return info_; }
  void set_library(const std::string& file) { info_.library = file; }  ///< the registry's: where the backend came from
  virtual std::vector<KernelSupport> query(const Op& op) const = 0;
  /// Called for ops that query() says some kernel supports.
  virtual std::unique_ptr<PlanImpl> plan(const Op& op) const = 0;

  // Memory, streams and events. What stands here is the host's.
  virtual std::shared_ptr<void> allocate(std::size_t bytes) const;
  virtual void copy(const ConstTensorView& from, const TensorView& to, void* stream) const;
  virtual Stream stream() const;
  virtual void synchronize(void* stream) const;
  virtual std::shared_ptr<EventImpl> event() const;

  // What is no op, for studies. What stands here has no loops.
  virtual std::vector<Ceiling> ceilings(const CeilingRequest& request) const;
  virtual std::shared_ptr<LoopImpl> loop(const MemoryLoop& loop) const;
  virtual std::shared_ptr<LoopImpl> loop(const PagerankLoop& loop) const;

 protected:
  DeviceInfo info_;
};

class GABLE_API Backend {
 public:
  virtual ~Backend();
  virtual std::string name() const = 0;
  /// Greater is tried first by `auto`. reference 0, onednn 110, cpu 120, cudnn 200, cuda 210.
  virtual int priority() const = 0;
  /// Every device, also those that can't be used, with the reason. Never throws for a missing driver.
  virtual std::vector<DeviceInfo> probe() const = 0;
  /// Throws Error(unavailable) or Error(invalid_argument).
  virtual std::shared_ptr<DeviceImpl> open(const DeviceUri& uri) const = 0;
};

/// What a plugin's entry returns. `version` stays first whatever else changes.
struct PluginEntry {
  const char* version;
  Backend* (*make)();  ///< called once; the registry owns the result and never unloads the plugin
};

}  // namespace gable

/// Defines the entry of a plugin for the class `BackendType`.
#define GABLE_PLUGIN(BackendType)                                                                     \
  extern "C" GABLE_API const gable::PluginEntry* gable_plugin() {                                     \
    static constexpr gable::PluginEntry entry{GABLE_VERSION_STRING,                                   \
                                              []() -> gable::Backend* { return new BackendType(); }}; \
    return &entry;                                                                                    \
  }
