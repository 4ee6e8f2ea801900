// See conformance_run.h.
#include "tests/conformance/conformance_run.h"

#include <algorithm>
#include <cstring>
#include <random>

namespace gable::conformance {
namespace {

constexpr std::size_t kGuard = 256;
constexpr unsigned char kGuardByte = 0xA5;
constexpr unsigned char kPoisonByte = 0xFF;  // all bits set is a NaN in every dtype

Layout output_layout(const Op& op) {
  if (const auto* c = std::get_if<Conv2d>(&op)) return c->layout;
  if (const auto* p = std::get_if<MaxPool>(&op)) return p->layout;
  if (const auto* a = std::get_if<Add>(&op)) return a->layout;
  if (const auto* r = std::get_if<Reorder>(&op)) return r->to;
  if (const auto* f = std::get_if<Activate>(&op)) return f->layout;
  if (const auto* both = std::get_if<Concat>(&op)) return both->layout;
  if (const auto* u = std::get_if<Upsample>(&op)) return u->layout;
  if (const auto* product = std::get_if<Multiply>(&op)) return product->layout;
  if (const auto* s = std::get_if<Softmax>(&op)) return s->layout;
  return Layout::nchw;
}

std::vector<Tensor> make_tensors(const Op& op) {
  std::vector<Tensor> tensors;
  const DType dtype = dtype_of(op);
  if (const auto* c = std::get_if<Conv2d>(&op)) {
    tensors.emplace_back(dtype, c->input, c->layout);
    tensors.emplace_back(dtype, c->weights);
    if (c->epilogue.bias) tensors.emplace_back(DType::f32, Shape{c->weights[0]});
  } else if (const auto* m = std::get_if<Matmul>(&op)) {
    tensors.emplace_back(dtype, Shape{m->m, m->k});
    tensors.emplace_back(dtype, Shape{m->k, m->n});
    if (m->bias) tensors.emplace_back(DType::f32, Shape{m->n});
  } else if (const auto* p = std::get_if<MaxPool>(&op)) {
    tensors.emplace_back(dtype, p->input, p->layout);
  } else if (const auto* a = std::get_if<Add>(&op)) {
    tensors.emplace_back(dtype, a->shape, a->layout);
    tensors.emplace_back(dtype, a->shape, a->layout);
  } else if (const auto* t = std::get_if<Transpose>(&op)) {
    tensors.emplace_back(dtype, Shape{t->rows, t->columns});
  } else if (const auto* f = std::get_if<Activate>(&op)) {
    tensors.emplace_back(dtype, f->shape, f->layout);
  } else if (const auto* both = std::get_if<Concat>(&op)) {
    tensors.emplace_back(dtype, both->a, both->layout);
    tensors.emplace_back(dtype, both->b, both->layout);
  } else if (const auto* product = std::get_if<Multiply>(&op)) {
    tensors.emplace_back(dtype, product->a, product->layout);
    tensors.emplace_back(dtype, product->b, product->layout);
  } else if (const auto* s = std::get_if<Softmax>(&op)) {
    tensors.emplace_back(dtype, s->shape, s->layout);
  } else if (const auto* u = std::get_if<Upsample>(&op)) {
    tensors.emplace_back(dtype, u->input, u->layout);
  } else {
    const auto& r = std::get<Reorder>(op);
    tensors.emplace_back(dtype, r.shape, r.from);
  }
  return tensors;
}

void fill(const Tensor& tensor, float low, float high, std::mt19937& engine) {
  for (std::int64_t i = 0; i < tensor.shape().elements(); ++i) {
    const float value = low + (high - low) * static_cast<float>(engine() >> 8) * 0x1p-24f;
    switch (tensor.dtype()) {
      case DType::f32:
        tensor.as<float>()[i] = value;
        break;
      case DType::f16:
        tensor.as<std::uint16_t>()[i] = f16_from_float(value);
        break;
      case DType::bf16:
        tensor.as<std::uint16_t>()[i] = bf16_from_float(value);
        break;
    }
  }
}

struct Values {
  float low = -1, high = 1;
};

/// Of inputs: below a pool's padding if that were zeros, and on all branches of a function.
Values values_for(const Op& op) {
  if (std::holds_alternative<MaxPool>(op)) return {-2, -1};
  if (std::holds_alternative<Activate>(op) || std::holds_alternative<Softmax>(op)) return {-8, 8};
  return {};
}

bool has_weights(const Op& op) { return std::holds_alternative<Conv2d>(op) || std::holds_alternative<Matmul>(op); }

}  // namespace

std::vector<ConstTensorView> Operands::views() const {
  return std::vector<ConstTensorView>(tensors.begin(), tensors.end());
}

Operands make_operands(const Op& op) {
  const Values values = values_for(op);
  std::mt19937 engine(static_cast<std::mt19937::result_type>(42 + output_shape(op).elements()));
  Operands operands{make_tensors(op)};
  for (const Tensor& tensor : operands.tensors) fill(tensor, values.low, values.high, engine);
  return operands;
}

Placed::Placed(const Device& device, DType dtype, const Shape& shape, Layout layout) : device_(device) {
  if (device.info().memory.kind != Memory::Kind::host) {
    owned_ = device.tensor(dtype, shape, layout);
    view_ = owned_.view();
    return;
  }
  view_ = TensorView(nullptr, dtype, shape, layout);
  guarded_.assign(view_.bytes() + 2 * kGuard + size_of(dtype), kGuardByte);
  view_.data = guarded_.data() + kGuard + size_of(dtype);
}

Placed::Placed(const Device& device, const ConstTensorView& contents)
    : Placed(device, contents.dtype, contents.shape, contents.layout) {
  device_.copy(contents, view_);
  device_.synchronize();
}

void Placed::poison() {
  const Tensor nans(view_.dtype, view_.shape, view_.layout);
  std::memset(nans.data(), kPoisonByte, nans.bytes());
  device_.copy(nans, view_);
  device_.synchronize();
}

Tensor Placed::read() const {
  Tensor host(view_.dtype, view_.shape, view_.layout);
  device_.copy(view_, host);
  device_.synchronize();
  return host;
}

bool Placed::guards_hold() const {
  const auto is_guard = [](unsigned char byte) { return byte == kGuardByte; };
  if (guarded_.empty()) return true;
  const auto front = static_cast<std::ptrdiff_t>(kGuard + size_of(view_.dtype));
  return std::all_of(guarded_.begin(), guarded_.begin() + front, is_guard) &&
         std::all_of(guarded_.end() - static_cast<std::ptrdiff_t>(kGuard), guarded_.end(), is_guard);
}

Bench::Bench(const Device& device, const Plan& plan, const Operands& operands)
    : device_(device),
      plan_(plan),
      output_(device, dtype_of(plan.op()), plan.output_shape(), output_layout(plan.op())) {
  inputs_.reserve(operands.tensors.size());
  for (const Tensor& tensor : operands.tensors) inputs_.emplace_back(device, tensor);
  if (has_weights(plan.op())) weights_ = plan.pack(inputs_[1].view());
  output_.poison();
}

void Bench::run() const {
  if (!has_weights(plan_.op())) {
    inputs_.size() == 2 ? plan_.run(inputs_[0].view(), inputs_[1].view(), output_.view())
                        : plan_.run(inputs_[0].view(), output_.view());
  } else if (inputs_.size() == 3) {
    plan_.run(inputs_[0].view(), weights_, inputs_[2].view(), output_.view());
  } else {
    plan_.run(inputs_[0].view(), weights_, output_.view());
  }
  device_.synchronize();
}

Outcome Bench::outcome() const { return {output_.read(), output_.guards_hold()}; }

}  // namespace gable::conformance
