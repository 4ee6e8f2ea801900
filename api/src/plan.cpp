// Plans check what reaches a kernel, so that kernels can trust their pointers. The checks compare a few integers a
// tensor: a run allocates nothing.
#include <gable/backend.h>
#include <gable/error.h>

#include <atomic>
#include <cmath>
#include <cstdint>

#include "api/src/signature.h"
#include "common/there.h"

namespace gable {
namespace {

constexpr const char* kPlan = "this plan";

Math math_of(const Op& op) {
  if (const auto* conv = std::get_if<Conv2d>(&op)) return conv->math;
  if (const auto* matmul = std::get_if<Matmul>(&op)) return matmul->math;
  return Math::strict;
}

/// The arithmetic that the op's dtype and math stand for.
Arithmetic arithmetic_of(const Op& op) {
  switch (math_of(op)) {
    case Math::tf32:
      return {.dtype = "tf32", .products = 1};
    case Math::split3:
      return {.dtype = "bf16", .products = 3};
    case Math::split6:
      return {.dtype = "bf16", .products = 6};
    case Math::strict:
      break;
  }
  return {.dtype = std::string(to_string(dtype_of(op))), .products = 1};
}

std::string text(DType dtype, const Shape& shape, Layout layout, Memory memory) {
  std::string s = to_string(shape) + " " + std::string(to_string(dtype));
  if (shape.rank() == 4) s += " " + std::string(to_string(layout));
  return s + " in " + to_string(memory) + " memory";
}

template <typename View>
void check_tensor(const Op& op, const Expected& expected, const View& given, Memory memory) {
  if (given.shape == expected.shape && given.dtype == expected.dtype &&
      same_order(expected.shape, given.layout, expected.layout) && given.memory == memory && given.data != nullptr) {
    return;
  }
  const std::string what =
      given.data == nullptr ? "a null pointer" : text(given.dtype, given.shape, given.layout, given.memory);
  throw Error(ErrorCode::invalid_argument, std::string(name(op)) + ": " + expected.name + " is " + what +
                                               "; this plan takes " +
                                               text(expected.dtype, expected.shape, expected.layout, memory));
}

/// A tensor, bias or packed weights that the op reads.
struct Source {
  const char* name;
  const void* data;
  std::size_t bytes;
};

/// `in_place`: the output may be exactly the source.
void check_apart(const Op& op, const char* output_name, const TensorView& output, const Source& source,
                 bool in_place = false) {
  const auto begin = reinterpret_cast<std::uintptr_t>(output.data);
  const auto other = reinterpret_cast<std::uintptr_t>(source.data);
  if (begin >= other + source.bytes || other >= begin + output.bytes() || (in_place && begin == other)) return;
  throw Error(ErrorCode::invalid_argument,
              std::string(name(op)) + ": " + output_name + " overlaps " + source.name +
                  (in_place ? ": the output must be exactly an input, or lie apart"
                            : ": the output needs memory of its own, since its elements are written while others are "
                              "still read"));
}

/// An element of this input is read before its place is written, and not read again.
bool works_in_place(const Op& op, const Expected& input) {
  if (const auto* multiply = std::get_if<Multiply>(&op)) return input.shape == multiply->a;
  return std::holds_alternative<Add>(op) || std::holds_alternative<Activate>(op) || std::holds_alternative<Softmax>(op);
}

bool has_bias(const Op& op) {
  if (const auto* conv = std::get_if<Conv2d>(&op)) return conv->epilogue.bias;
  if (const auto* matmul = std::get_if<Matmul>(&op)) return matmul->bias;
  return false;
}

double unit_roundoff(DType dtype) {
  switch (dtype) {
    case DType::f16:
      return 0x1p-11;
    case DType::bf16:
      return 0x1p-8;
    case DType::f32:
      break;
  }
  return 0x1p-24;
}

/// The rounding error of the least normal number. Below it, errors are absolute.
double underflow(DType dtype) { return dtype == DType::f16 ? 0x1p-25 : 0x1p-126; }

}  // namespace

ErrorBound f32_accumulation_bound(std::int64_t terms, DType dtype, Activation activation) {
  constexpr double kLambda = 6.0;
  constexpr double kTanhError = 8 * 0x1p-24;  // about 4 ulp of a value below 1, in any backend's approximation
  return {.accumulation = kLambda * std::sqrt(static_cast<double>(terms) + 1.0) * 0x1p-24,
          .rounding = unit_roundoff(dtype) * (1 + 0x1p-10),
          .absolute = underflow(dtype) + (activation == Activation::tanh ? kTanhError : 0.0)};
}

std::uint64_t packing_key(std::string_view description) {
  std::uint64_t hash = 14695981039346656037ull;  // FNV-1a
  for (const char c : description) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ull;
  return hash;
}

std::uint64_t packing_key(std::string_view backend, const Packing& packing) {
  std::string text = std::string(backend) + " " + packing.order + " " + std::string(to_string(packing.dtype));
  for (const std::int64_t extent : {packing.k, packing.group_c, packing.r, packing.s, packing.groups})
    text += " " + std::to_string(extent);
  for (const std::int64_t number : packing.cut) text += "," + std::to_string(number);
  return packing_key(text);
}

namespace {

/// Packed weights stay in the memory that they were packed in.
std::uint64_t key_in(Memory memory, std::uint64_t packing) {
  return packing_key(to_string(memory) + " " + std::to_string(packing));
}

}  // namespace

struct Plan::State {
  Op op;
  std::shared_ptr<const DeviceImpl> device;
  std::unique_ptr<PlanImpl> impl;
  std::string explanation;
  Signature signature;
  bool has_bias;
  Memory memory;
  std::uint64_t weights_key;
  std::atomic<bool> running{false};

  /// Every run goes through here. Two runs at once would share the plan's workspace and give wrong numbers: the second
  /// one is refused, and the first is not disturbed.
  void run(const RunArguments& arguments) {
    if (running.exchange(true, std::memory_order_acquire)) {
      throw Error(ErrorCode::invalid_argument,
                  std::string(name(op)) +
                      ": this plan is running in another thread, and its workspace serves one run at a time: make a "
                      "plan for each thread (they can share packed weights)");
    }
    struct Ended {
      std::atomic<bool>& running;
      ~Ended() { running.store(false, std::memory_order_release); }
    } const ended{running};
    impl->run(arguments);
  }
};

Plan::Plan(const Op& op, std::shared_ptr<const DeviceImpl> device, std::unique_ptr<PlanImpl> impl,
           std::string explanation) {
  const Memory memory = device->info().memory;
  const PlanDetails& details = impl->details();
  if (explanation.empty()) explanation = details.explanation;
  const std::uint64_t key = key_in(memory, details.packing_key);
  state_.reset(new State{op, std::move(device), std::move(impl), std::move(explanation), signature(op),
                         gable::has_bias(op), memory, key});
}

Plan::Plan(Plan&&) noexcept = default;
Plan& Plan::operator=(Plan&&) noexcept = default;
Plan::~Plan() = default;

const Op& Plan::op() const { return there(state_, kPlan).op; }
const Shape& Plan::output_shape() const { return there(state_, kPlan).signature.output.shape; }
Work Plan::work() const { return gable::work(there(state_, kPlan).op); }
std::string Plan::explain() const { return there(state_, kPlan).explanation; }
std::string Plan::kernel() const { return there(state_, kPlan).impl->details().kernel; }
bool Plan::fused() const { return there(state_, kPlan).impl->details().fused; }
ErrorBound Plan::error_bound() const { return there(state_, kPlan).impl->details().bound; }

Arithmetic Plan::arithmetic() const {
  const State& s = there(state_, kPlan);
  Arithmetic arithmetic = arithmetic_of(s.op);
  const Arithmetic& own = s.impl->details().arithmetic;
  if (!own.dtype.empty()) arithmetic.dtype = own.dtype;
  if (own.products > 0) arithmetic.products = own.products;
  return arithmetic;
}

std::size_t Plan::workspace_bytes() const { return there(state_, kPlan).impl->details().workspace_bytes; }
int Plan::threads() const { return there(state_, kPlan).impl->details().threads; }
std::string Plan::device_uri() const { return there(state_, kPlan).device->info().uri; }
Memory Plan::memory() const { return there(state_, kPlan).memory; }
std::uint64_t Plan::packing() const { return there(state_, kPlan).weights_key; }

PackedWeights Plan::pack(const ConstTensorView& weights) const {
  const State& s = there(state_, kPlan);
  if (!s.signature.has_weights) {
    throw Error(ErrorCode::invalid_argument, std::string(name(s.op)) + " has no weights to pack");
  }
  check_tensor(s.op, s.signature.weights, weights, s.memory);
  const PlanDetails& details = s.impl->details();
  std::shared_ptr<void> storage = s.device->allocate(details.packed_bytes);
  s.impl->pack(weights.data, storage.get());
  return {std::move(storage), details.packed_bytes, s.weights_key};
}

void Plan::run(const ConstTensorView& x, const PackedWeights& weights, const TensorView& y,
               const Stream& stream) const {
  run(x, weights, ConstTensorView{}, y, stream);
}

void Plan::run(const ConstTensorView& x, const PackedWeights& weights, const ConstTensorView& bias, const TensorView& y,
               const Stream& stream) const {
  State& s = there(state_, kPlan);
  if (!s.signature.has_weights) {
    throw Error(ErrorCode::invalid_argument, std::string(name(s.op)) + " takes no weights: run(x, y)");
  }
  check_tensor(s.op, s.signature.inputs[0], x, s.memory);
  check_tensor(s.op, s.signature.output, y, s.memory);
  if (s.has_bias) {
    check_tensor(s.op, s.signature.bias, bias, s.memory);
  } else if (bias.data != nullptr) {
    throw Error(ErrorCode::invalid_argument,
                std::string(name(s.op)) + ": a bias is given, but the op was described without one: set bias = true");
  }
  if (weights.key() != s.weights_key || weights.data() == nullptr) {
    throw Error(ErrorCode::invalid_argument,
                std::string(name(s.op)) + (weights.data() == nullptr
                                               ? ": the packed weights are empty: make them with this plan's pack()"
                                               : ": the weights were packed for another kernel or shape: pack() "
                                                 "them with this plan"));
  }
  const char* const y_name = s.signature.output.name;
  check_apart(s.op, y_name, y, {s.signature.inputs[0].name, x.data, x.bytes()});
  check_apart(s.op, y_name, y, {"the packed weights", weights.data(), weights.bytes()});
  if (s.has_bias) check_apart(s.op, y_name, y, {"bias", bias.data, bias.bytes()});
  s.run({.inputs = {x.data, nullptr},
         .weights = weights.data(),
         .bias = static_cast<const float*>(bias.data),
         .output = y.data,
         .stream = stream.native()});
}

void Plan::run(const ConstTensorView& x, const TensorView& y, const Stream& stream) const {
  State& s = there(state_, kPlan);
  if (s.signature.has_weights || s.signature.input_count != 1) {
    throw Error(ErrorCode::invalid_argument,
                std::string(name(s.op)) + (s.signature.has_weights ? " needs packed weights: run(x, weights, y)"
                                                                   : " has two inputs: run(a, b, y)"));
  }
  check_tensor(s.op, s.signature.inputs[0], x, s.memory);
  check_tensor(s.op, s.signature.output, y, s.memory);
  const Expected& input = s.signature.inputs[0];
  check_apart(s.op, s.signature.output.name, y, {input.name, x.data, x.bytes()}, works_in_place(s.op, input));
  s.run({.inputs = {x.data, nullptr}, .output = y.data, .stream = stream.native()});
}

void Plan::run(const ConstTensorView& a, const ConstTensorView& b, const TensorView& y, const Stream& stream) const {
  State& s = there(state_, kPlan);
  if (s.signature.input_count != 2) {
    throw Error(ErrorCode::invalid_argument, std::string(name(s.op)) + " does not take two inputs");
  }
  check_tensor(s.op, s.signature.inputs[0], a, s.memory);
  check_tensor(s.op, s.signature.inputs[1], b, s.memory);
  check_tensor(s.op, s.signature.output, y, s.memory);
  const Expected &first = s.signature.inputs[0], &second = s.signature.inputs[1];
  check_apart(s.op, s.signature.output.name, y, {first.name, a.data, a.bytes()}, works_in_place(s.op, first));
  check_apart(s.op, s.signature.output.name, y, {second.name, b.data, b.bytes()}, works_in_place(s.op, second));
  s.run({.inputs = {a.data, b.data}, .output = y.data, .stream = stream.native()});
}

}  // namespace gable
