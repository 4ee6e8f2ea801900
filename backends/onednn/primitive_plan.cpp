// See primitive_plan.h.
#include "primitive_plan.h"

#include "formats.h"
#include "version.h"

#include <gable/error.h>

#include <omp.h>

#include <dnnl_debug.h>
#include <algorithm>

namespace gable::onednn {
namespace {

/// A blocked format's name, extents and strides say where each weight lies, whatever op and primitive it was chosen
/// for. The order of a format that only oneDNN can read may depend on anything that the primitive was made from.
std::uint64_t weights_key(const Op& op, const Recipe& recipe, int threads) {
  if (!recipe.has_weights) return 0;
  const Blocking format = blocking_of(recipe.packed_weights);
  std::string text = "onednn " + std::string(to_string(dtype_of(op))) + " ";
  if (!format.blocked) return packing_key(text + recipe.kernel + " " + describe(op) + " " + std::to_string(threads));
  text += format_name(recipe.packed_weights);
  for (const auto dim : format.dims) text += " " + std::to_string(dim);
  for (const auto stride : format.strides) text += "," + std::to_string(stride);
  return packing_key(text);
}

std::size_t scratchpad_bytes(const Recipe& recipe) {
  std::size_t bytes = 0;
  for (const Stage& stage : recipe.stages) bytes = std::max(bytes, stage.primitive.scratchpad_desc().get_size());
  return bytes;
}

std::size_t workspace_bytes(const Recipe& recipe) {
  std::size_t bytes = scratchpad_bytes(recipe);
  for (const Slot& slot : recipe.slots) {
    if (slot.role == Role::scratch) bytes += slot.description.get_size();
  }
  return bytes;
}

PlanDetails details_of(const Op& op, const Recipe& recipe, int threads, const std::string& about) {
  return {.kernel = recipe.kernel,
          .explanation = about + "; kernel " + recipe.kernel + ", " + recipe.explanation + "; " +
                         std::to_string(threads) + (threads == 1 ? " thread" : " threads"),
          .fused = recipe.fused,
          .bound = recipe.bound,
          .workspace_bytes = onednn::workspace_bytes(recipe),
          .packed_bytes = recipe.has_weights ? recipe.packed_weights.get_size() : 0,
          .packing_key = weights_key(op, recipe, threads),
          .threads = threads};
}

/// oneDNN 2 clears a blocked format's padding whenever a pointer is set: unchanged pointers are left alone.
void bind(const dnnl::memory& memory, const void* data) {
  if (memory.get_data_handle() != data) memory.set_data_handle(const_cast<void*>(data));
}

const void* pointer(const RunArguments& arguments, Role role) {
  switch (role) {
    case Role::input:
      return arguments.inputs[0];
    case Role::second_input:
      return arguments.inputs[1];
    case Role::weights:
      return arguments.weights;
    case Role::bias:
      return arguments.bias;
    case Role::output:
      return arguments.output;
    case Role::scratch:
      break;
  }
  return nullptr;
}

}  // namespace

ThreadScope::ThreadScope(int threads) : before_(omp_get_max_threads()), threads_(threads) {
  if (threads_ != before_) omp_set_num_threads(threads_);
}

ThreadScope::~ThreadScope() {
  if (threads_ != before_) omp_set_num_threads(before_);
}

Error to_error(const dnnl::error& error, const std::string& doing) {
  ErrorCode code = ErrorCode::device_failure;
  if (error.status == dnnl_out_of_memory) code = ErrorCode::out_of_memory;
  if (error.status == dnnl_unimplemented || error.status == dnnl_invalid_arguments) code = ErrorCode::unsupported;
  return Error(code, doing + ": oneDNN's status is '" + dnnl_status2str(error.status) + "': " + error.what());
}

PrimitivePlan::PrimitivePlan(const dnnl::engine& engine, const DeviceImpl& device, const Op& op, const Recipe& recipe,
                             int threads, const std::string& about)
    : PlanImpl(details_of(op, recipe, threads, about)),
      engine_(engine),
      stream_(engine),
      op_(describe(op)),
      threads_(threads),
      given_weights_(recipe.given_weights),
      packed_weights_(recipe.packed_weights) {
  make_memories(device, recipe);
  make_steps(device, recipe);
}

void PrimitivePlan::make_memories(const DeviceImpl& device, const Recipe& recipe) {
  for (const Slot& slot : recipe.slots) {
    void* data = DNNL_MEMORY_NONE;
    if (slot.role == Role::scratch) {
      storages_.push_back(device.allocate(slot.description.get_size()));
      data = storages_.back().get();
    }
    memories_.emplace_back(slot.description, engine_, data);
    roles_.push_back(slot.role);
  }
}

/// Steps run one after the other: they share one scratchpad, as large as the greatest of theirs.
void PrimitivePlan::make_steps(const DeviceImpl& device, const Recipe& recipe) {
  void* shared = DNNL_MEMORY_NONE;
  if (const std::size_t bytes = scratchpad_bytes(recipe); bytes > 0) {
    storages_.push_back(device.allocate(bytes));
    shared = storages_.back().get();
  }
  const ThreadScope scope(threads_);
  for (const Stage& stage : recipe.stages) {
    scratchpads_.emplace_back(stage.primitive.scratchpad_desc(), engine_, shared);
    Step step{dnnl::primitive(stage.primitive.get()), {{DNNL_ARG_SCRATCHPAD, scratchpads_.back().get()}}};
    for (const auto& [argument, slot] : stage.arguments) step.arguments.push_back({argument, memories_[slot].get()});
    steps_.push_back(std::move(step));
  }
}

void PrimitivePlan::pack(const void* weights, void* packed) {
  const ThreadScope scope(threads_);
  try {
    dnnl::memory from(given_weights_, engine_, const_cast<void*>(weights));
    dnnl::memory to(packed_weights_, engine_, packed);
    dnnl::reorder(from, to).execute(stream_, from, to);
    stream_.wait();
  } catch (const dnnl::error& error) {
    throw to_error(error, op_ + ": packing the weights");
  }
}

void PrimitivePlan::run(const RunArguments& arguments) {
  const ThreadScope scope(threads_);
  try {
    for (std::size_t i = 0; i < memories_.size(); ++i) {
      if (roles_[i] != Role::scratch) bind(memories_[i], pointer(arguments, roles_[i]));
    }
    // The C call: the C++ one copies its arguments into a vector of its own each time.
    for (const Step& step : steps_) {
      dnnl::error::wrap_c_api(dnnl_primitive_execute(step.primitive.get(), stream_.get(),
                                                     static_cast<int>(step.arguments.size()), step.arguments.data()),
                              "could not execute a primitive");
    }
    stream_.wait();
  } catch (const dnnl::error& error) {
    throw to_error(error, op_);
  }
}

}  // namespace gable::onednn
