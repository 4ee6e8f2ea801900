// The public oracle, and the comparison of results with it.
#include "backends/reference/kernels.h"
#include "backends/threads.h"

#include <gable/oracle.h>

// The oracle runs on whole suites: let its inner loop use the widest vectors there are. (Sanitizers run before ifuncs
// can.)
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__)
#define GABLE_WIDEST_VECTORS __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define GABLE_WIDEST_VECTORS
#endif

namespace gable {
namespace reference {

GABLE_WIDEST_VECTORS Sum dot(const double* a, const double* b, std::int64_t count) {
  double value = 0;
  double magnitude = 0;
#pragma omp simd reduction(+ : value, magnitude)
  for (std::int64_t i = 0; i < count; ++i) {
    const double product = a[i] * b[i];
    value += product;
    magnitude += std::abs(product);
  }
  return {value, magnitude};
}

void widen_weights(const Op& op, const void* weights, double* rows) {
  const DType dtype = dtype_of(op);
  if (const auto* m = std::get_if<Matmul>(&op)) {
    for (std::int64_t i = 0; i < m->n * m->k; ++i) rows[i] = load(weights, dtype, i % m->k * m->n + i / m->k);
    return;
  }
  const std::int64_t count = std::get<Conv2d>(op).weights.elements();
  for (std::int64_t i = 0; i < count; ++i) rows[i] = load(weights, dtype, i);
}

}  // namespace reference

namespace {

struct InputSpec {
  const char* name;
  DType dtype;
  Shape shape;
  bool has_layout = false;
  Layout layout = Layout::nchw;
};

std::vector<InputSpec> input_specs(const Op& op) {
  const DType dtype = dtype_of(op);
  if (const auto* c = std::get_if<Conv2d>(&op)) {
    std::vector<InputSpec> specs{{"x", dtype, c->input, true, c->layout}, {"weights", dtype, c->weights}};
    if (c->epilogue.bias) specs.push_back({"bias", DType::f32, Shape{c->weights[0]}});
    return specs;
  }
  if (const auto* m = std::get_if<Matmul>(&op)) {
    std::vector<InputSpec> specs{{"a", dtype, Shape{m->m, m->k}}, {"b", dtype, Shape{m->k, m->n}}};
    if (m->bias) specs.push_back({"bias", DType::f32, Shape{m->n}});
    return specs;
  }
  if (const auto* p = std::get_if<MaxPool>(&op)) return {{"x", dtype, p->input, true, p->layout}};
  if (const auto* a = std::get_if<Add>(&op)) return {{"a", dtype, a->shape}, {"b", dtype, a->shape}};
  if (const auto* t = std::get_if<Transpose>(&op)) return {{"x", dtype, Shape{t->rows, t->columns}}};
  if (const auto* f = std::get_if<Activate>(&op)) return {{"x", dtype, f->shape}};
  if (const auto* u = std::get_if<Upsample>(&op)) return {{"x", dtype, u->input, true, u->layout}};
  if (const auto* c = std::get_if<Concat>(&op)) {
    return {{"a", dtype, c->a, true, c->layout}, {"b", dtype, c->b, true, c->layout}};
  }
  if (const auto* m = std::get_if<Multiply>(&op)) {
    return {{"a", dtype, m->a, true, m->layout}, {"b", dtype, m->b, true, m->layout}};
  }
  if (const auto* s = std::get_if<Softmax>(&op)) return {{"x", dtype, s->shape, true, s->layout}};
  const auto& r = std::get<Reorder>(op);
  return {{"x", dtype, r.shape, true, r.from}};
}

void check_inputs(const Op& op, const std::vector<ConstTensorView>& inputs) {
  const std::vector<InputSpec> specs = input_specs(op);
  if (inputs.size() != specs.size()) {
    throw Error(ErrorCode::invalid_argument, "oracle: " + std::string(name(op)) + " takes " +
                                                 std::to_string(specs.size()) + " inputs, not " +
                                                 std::to_string(inputs.size()));
  }
  for (std::size_t i = 0; i < specs.size(); ++i) {
    const ConstTensorView& given = inputs[i];
    const InputSpec& spec = specs[i];
    const bool fits = given.data != nullptr && given.dtype == spec.dtype && given.shape == spec.shape &&
                      given.memory.kind == Memory::Kind::host &&
                      (!spec.has_layout || same_order(spec.shape, given.layout, spec.layout));
    if (!fits) {
      throw Error(ErrorCode::invalid_argument,
                  "oracle: " + std::string(spec.name) + " is " + to_string(given.shape) + " " +
                      std::string(to_string(given.dtype)) + " in " + to_string(given.memory) + " memory; it must be " +
                      to_string(spec.shape) + " " + std::string(to_string(spec.dtype)) + " " +
                      (spec.has_layout ? std::string(to_string(spec.layout)) + " " : "") + "in host memory");
    }
  }
}

/// Half a unit in the last place beyond the largest finite value. Values from here on round to infinity.
double overflow_threshold(DType dtype) {
  switch (dtype) {
    case DType::f16:
      return 65520.0;
    case DType::bf16:
      return 0x1.FFp127;
    case DType::f32:
      break;
  }
  return 0x1.FFFFFFp127;
}

bool matches(double y, double exact, double tolerance, DType dtype) {
  if (std::isnan(exact)) return std::isnan(y);
  if (std::isinf(y))
    return std::signbit(y) == std::signbit(exact) && std::abs(exact) + tolerance >= overflow_threshold(dtype);
  return std::abs(y - exact) <= tolerance;  // false for a NaN
}

}  // namespace

double oracle_bytes(const Op& op) {
  double doubles = 2 * static_cast<double>(output_shape(op).elements());
  if (const auto* c = std::get_if<Conv2d>(&op)) doubles += static_cast<double>(c->weights.elements());
  if (const auto* m = std::get_if<Matmul>(&op)) doubles += static_cast<double>(m->k) * static_cast<double>(m->n);
  if (std::holds_alternative<Conv2d>(op) || std::holds_alternative<Matmul>(op))
    doubles += static_cast<double>(reference::scratch_elements(op)) * omp_get_max_threads();
  return 8 * doubles;
}

OracleResult oracle(const Op& op, const std::vector<ConstTensorView>& inputs) {
  validate(op);
  check_inputs(op, inputs);
  OracleResult result;
  const auto size = static_cast<std::size_t>(output_shape(op).elements());
  result.exact.resize(size);
  result.magnitude.resize(size);
  const auto store = [&](std::int64_t i, double exact, double magnitude) {
    result.exact[static_cast<std::size_t>(i)] = exact;
    result.magnitude[static_cast<std::size_t>(i)] = magnitude;
  };
  const int threads = threads_option(parse_device_uri("reference"));
  std::vector<double> rows;
  std::vector<double> scratch;
  const float* bias = inputs.size() == 3 ? static_cast<const float*>(inputs[2].data) : nullptr;
  if (std::holds_alternative<Conv2d>(op) || std::holds_alternative<Matmul>(op)) {
    rows.resize(static_cast<std::size_t>(inputs[1].shape.elements()));
    scratch.resize(static_cast<std::size_t>(reference::scratch_elements(op) * threads));
    reference::widen_weights(op, inputs[1].data, rows.data());
  }
  const reference::Operands operands{inputs[0].data, rows.data(), bias};
  const reference::Workers workers{threads, scratch.data()};
  if (const auto* c = std::get_if<Conv2d>(&op)) {
    reference::conv2d(*c, operands, workers, store);
  } else if (const auto* m = std::get_if<Matmul>(&op)) {
    reference::matmul(*m, operands, workers, store);
  } else {
    reference::unweighted(op, inputs[0].data, inputs.size() == 2 ? inputs[1].data : nullptr, store);
  }
  return result;
}

Comparison compare(const ConstTensorView& y, const OracleResult& expected, const ErrorBound& bound) {
  if (y.memory.kind != Memory::Kind::host || y.data == nullptr ||
      static_cast<std::size_t>(y.shape.elements()) != expected.exact.size()) {
    throw Error(ErrorCode::invalid_argument, "compare: y is " + to_string(y.shape) + " in " + to_string(y.memory) +
                                                 " memory; the oracle's result has " +
                                                 std::to_string(expected.exact.size()) + " elements in host memory");
  }
  Comparison result;
  for (std::int64_t i = 0; i < y.shape.elements(); ++i) {
    const auto at = static_cast<std::size_t>(i);
    const double value = reference::load(y.data, y.dtype, i);
    const double exact = expected.exact[at];
    const double tolerance = bound.tolerance(exact, expected.magnitude[at]);
    if (std::isfinite(value) && std::isfinite(exact)) {
      const double error = std::abs(value - exact);
      result.max_error = std::max(result.max_error, error);
      if (error > 0) result.worst_ratio = std::max(result.worst_ratio, error / tolerance);
    }
    if (!matches(value, exact, tolerance, y.dtype)) {
      if (result.mismatches++ == 0) result.first_mismatch = i;
    }
  }
  result.passed = result.mismatches == 0;
  return result;
}

}  // namespace gable
