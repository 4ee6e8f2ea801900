// A recipe made runnable: primitives compiled, scratch memory allocated, arguments laid out, so that run() only sets
// pointers and executes.
#pragma once

#include "recipe.h"

#include <gable/backend.h>

#include <dnnl.hpp>
#include <memory>
#include <string>
#include <vector>

namespace gable::onednn {

/// Sets OpenMP's thread count, which oneDNN reads when it makes and when it runs a primitive, and puts it back.
class ThreadScope {
 public:
  explicit ThreadScope(int threads);
  ~ThreadScope();
  ThreadScope(const ThreadScope&) = delete;
  ThreadScope& operator=(const ThreadScope&) = delete;

 private:
  int before_;
  int threads_;
};

/// gable's error for an error of oneDNN: what was being done, and the status by name.
Error to_error(const dnnl::error& error, const std::string& doing);

class PrimitivePlan final : public PlanImpl {
 public:
  /// `device` gives the scratch memory; `about` opens the explanation.
  PrimitivePlan(const dnnl::engine& engine, const DeviceImpl& device, const Op& op, const Recipe& recipe, int threads,
                const std::string& about);
  void pack(const void* weights, void* packed) override;
  void run(const RunArguments& arguments) override;

 private:
  struct Step {
    dnnl::primitive primitive;
    std::vector<dnnl_exec_arg_t> arguments;
  };

  void make_memories(const DeviceImpl& device, const Recipe& recipe);
  void make_steps(const DeviceImpl& device, const Recipe& recipe);

  dnnl::engine engine_;
  dnnl::stream stream_;
  std::string op_;
  int threads_;
  dnnl::memory::desc given_weights_;
  dnnl::memory::desc packed_weights_;
  std::vector<std::shared_ptr<void>> storages_;
  std::vector<dnnl::memory> memories_;  ///< one for each slot
  std::vector<dnnl::memory> scratchpads_;
  std::vector<Role> roles_;
  std::vector<Step> steps_;
};

}  // namespace gable::onednn
