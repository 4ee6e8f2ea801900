// See data.h. Random numbers come from a hash of the element's index: parallel, reproducible, fast enough for
// gigabytes.
#include "bench/workloads/data.h"

#include <fmt/format.h>
#include <gable/error.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "bench/workloads/cases.h"
#include "perfcounters/machine/memory.h"

namespace gable::bench {
namespace {

/// The finaliser of SplitMix64: neighbouring indices give unrelated bits.
std::uint64_t mix(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
  return z ^ (z >> 31);
}

float uniform(std::uint64_t seed, std::int64_t index, float low, float span) {
  const std::uint64_t bits = mix(seed * 0x9e3779b97f4a7c15U + static_cast<std::uint64_t>(index));
  return low + span * (static_cast<float>(bits >> 40) * 0x1p-24F);
}

template <typename T, typename Convert>
void fill(T* data, std::int64_t count, std::uint64_t seed, float low, float span, Convert convert) {
#pragma omp parallel for schedule(static)
  for (std::int64_t i = 0; i < count; ++i) data[i] = convert(uniform(seed, i, low, span));
}

struct InputShapes {
  Shape x;
  Layout layout = Layout::nchw;
  Shape weights{};
  std::int64_t biases = 0;
  Shape second{};  ///< of ops with two inputs
};

InputShapes shapes_of(const Op& op) {
  if (const auto* c = std::get_if<Conv2d>(&op)) {
    return {c->input, c->layout, c->weights, c->epilogue.bias ? c->weights[0] : 0};
  }
  if (const auto* m = std::get_if<Matmul>(&op)) {
    return {Shape{m->m, m->k}, Layout::nchw, Shape{m->k, m->n}, m->bias ? m->n : 0};
  }
  if (const auto* pool = std::get_if<MaxPool>(&op)) return {pool->input, pool->layout};
  if (const auto* add = std::get_if<Add>(&op)) return {.x = add->shape, .layout = add->layout, .second = add->shape};
  if (const auto* t = std::get_if<Transpose>(&op)) return {Shape{t->rows, t->columns}};
  if (const auto* activate = std::get_if<Activate>(&op)) return {activate->shape, activate->layout};
  if (const auto* concat = std::get_if<Concat>(&op))
    return {.x = concat->a, .layout = concat->layout, .second = concat->b};
  if (const auto* multiply = std::get_if<Multiply>(&op))
    return {.x = multiply->a, .layout = multiply->layout, .second = multiply->b};
  if (const auto* softmax = std::get_if<Softmax>(&op)) return {softmax->shape, softmax->layout};
  if (const auto* upsample = std::get_if<Upsample>(&op)) return {upsample->input, upsample->layout};
  const auto& reorder = std::get<Reorder>(op);
  return {reorder.shape, reorder.from};
}

}  // namespace

std::vector<ConstTensorView> OpData::inputs() const {
  std::vector<ConstTensorView> all{x};
  for (const Tensor* tensor : {&second, &weights, &bias}) {
    if (tensor->data() != nullptr) all.emplace_back(*tensor);
  }
  return all;
}

void fill_random(const TensorView& host, std::uint64_t seed, float low, float high) {
  const std::int64_t count = host.shape.elements();
  const float span = high - low;
  if (host.dtype == DType::f32) {
    fill(static_cast<float*>(host.data), count, seed, low, span, [](float v) { return v; });
  } else {
    const auto convert = host.dtype == DType::f16 ? f16_from_float : bf16_from_float;
    fill(static_cast<std::uint16_t*>(host.data), count, seed, low, span, convert);
  }
}

OpData random_data(const Op& op, std::uint64_t seed) {
  const InputShapes shapes = shapes_of(op);
  const DType dtype = dtype_of(op);
  const auto scale = static_cast<float>(std::sqrt(3.0 / static_cast<double>(terms(op))));
  OpData data;
  data.x = Tensor(dtype, shapes.x, shapes.layout);
  fill_random(data.x, 3 * seed, -1, 1);
  if (shapes.second.rank() > 0) {
    data.second = Tensor(dtype, shapes.second, shapes.layout);
    fill_random(data.second, 3 * seed + 1, -1, 1);
  }
  if (has_math(op)) {
    data.weights = Tensor(dtype, shapes.weights);
    fill_random(data.weights, 3 * seed + 1, -scale, scale);
  }
  if (shapes.biases > 0) {
    data.bias = Tensor(DType::f32, Shape{shapes.biases});
    fill_random(data.bias, 3 * seed + 2, -1, 1);
  }
  return data;
}

Layout output_layout(const Op& op) {
  const auto* reorder = std::get_if<Reorder>(&op);
  return reorder != nullptr ? reorder->to : shapes_of(op).layout;
}

void poison(const TensorView& host) {
  constexpr std::size_t kChunk = 1 << 20;
  const std::size_t bytes = host.bytes();
  // In parallel like the inputs: the thread that first touches a page decides on which NUMA node it lies.
#pragma omp parallel for schedule(static)
  for (std::size_t begin = 0; begin < bytes; begin += kChunk) {
    std::memset(static_cast<char*>(host.data) + begin, 0xff, std::min(kChunk, bytes - begin));
  }
}

double bytes_needed(const Op& op, std::size_t outputs) {
  const Work least = work(op);
  double weights = 0;
  if (has_math(op)) {
    weights = static_cast<double>(shapes_of(op).weights.elements()) * static_cast<double>(size_of(dtype_of(op)));
  }
  return least.bytes_read + weights * static_cast<double>(outputs) + least.bytes_written * static_cast<double>(outputs);
}

double seconds_to_make(const Op& op, std::size_t outputs) { return bytes_needed(op, outputs) / 1e9; }

double available_memory() { return static_cast<double>(perf::available_memory()); }

void require_memory(double bytes, const std::string& what) {
  constexpr double kShare = 0.9;
  const double available = available_memory();
  if (bytes <= kShare * available) return;
  throw Error(ErrorCode::out_of_memory,
              fmt::format("{} needs {:.2f} GB of memory, but of the {:.2f} GB available only nine tenths are used; a "
                          "smaller batch (--max-batch) needs less",
                          what, bytes / 1e9, available / 1e9));
}

}  // namespace gable::bench
