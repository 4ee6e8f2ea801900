// The C API: each call is its C++ twin behind a status code.
#include <gable/c.h>
#include <gable/gable.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <vector>

struct gable_device {
  gable::Device device;
};

struct gable_device_list {
  std::vector<gable::DeviceInfo> devices;
  std::vector<gable_device_info> infos;  ///< with the texts of `devices`
};

struct gable_plan {
  std::shared_ptr<const gable::Plan> plan;
};

struct gable_batch_plan {
  gable::BatchPlan plans;
};

struct gable_batch_weights {
  gable::BatchWeights weights;
};

struct gable_packed {
  gable::PackedWeights weights;
};

namespace {

thread_local std::string last_error;

gable_status fail(gable_status status, const char* message) noexcept {
  try {
    last_error = message;
  } catch (const std::bad_alloc&) {
    last_error.clear();
  }
  return status;
}

template <typename Call>
gable_status guarded(const Call& call) noexcept {
  try {
    call();
    return GABLE_OK;
  } catch (const gable::Error& error) {
    return fail(static_cast<gable_status>(error.code()), error.what());
  } catch (const std::bad_alloc&) {
    return fail(GABLE_OUT_OF_MEMORY, "out of host memory");
  } catch (const std::exception& error) {
    return fail(GABLE_DEVICE_FAILURE, error.what());
  } catch (...) {
    return fail(GABLE_DEVICE_FAILURE, "an exception of an unknown type");
  }
}

template <typename Pointer>
void require(Pointer pointer, const char* what) {
  if (pointer == nullptr) throw gable::Error(gable::ErrorCode::invalid_argument, std::string(what) + " is null");
}

template <typename Enum, typename CEnum>
constexpr bool are_twins(Enum mine, CEnum c) {
  return static_cast<int>(mine) == static_cast<int>(c);
}
// C enumerators, and Python's in api/python/gable/_c.py, have the numbers of their C++ twins.
static_assert(are_twins(gable::DType::f32, GABLE_F32) && are_twins(gable::DType::f16, GABLE_F16) &&
              are_twins(gable::DType::bf16, GABLE_BF16));
static_assert(are_twins(gable::Layout::nchw, GABLE_NCHW) && are_twins(gable::Layout::nhwc, GABLE_NHWC));
static_assert(are_twins(gable::Math::strict, GABLE_STRICT) && are_twins(gable::Math::tf32, GABLE_TF32) &&
              are_twins(gable::Math::split3, GABLE_SPLIT3) && are_twins(gable::Math::split6, GABLE_SPLIT6));
static_assert(are_twins(gable::Activation::none, GABLE_NONE) && are_twins(gable::Activation::relu, GABLE_RELU) &&
              are_twins(gable::Activation::tanh, GABLE_TANH));
static_assert(are_twins(gable::Function::relu, GABLE_FUNCTION_RELU) &&
              are_twins(gable::Function::relu6, GABLE_FUNCTION_RELU6) &&
              are_twins(gable::Function::tanh, GABLE_FUNCTION_TANH) &&
              are_twins(gable::Function::sigmoid, GABLE_FUNCTION_SIGMOID) &&
              are_twins(gable::Function::hard_sigmoid, GABLE_FUNCTION_HARD_SIGMOID) &&
              are_twins(gable::Function::silu, GABLE_FUNCTION_SILU) &&
              are_twins(gable::Function::hard_swish, GABLE_FUNCTION_HARD_SWISH) &&
              are_twins(gable::Function::gelu, GABLE_FUNCTION_GELU) &&
              are_twins(gable::Function::leaky_relu, GABLE_FUNCTION_LEAKY_RELU));

static_assert(are_twins(gable::Interpolation::nearest, GABLE_NEAREST) &&
              are_twins(gable::Interpolation::bilinear, GABLE_BILINEAR) &&
              are_twins(gable::Interpolation::bilinear_align_corners, GABLE_BILINEAR_ALIGN_CORNERS));

/// A caller can pass any integer as an enumerator, which C++ may only look at as an integer: by reference, then copied.
template <typename Enum, typename CEnum>
Enum enumerator(const CEnum& given, Enum last, const char* what) {
  int value = 0;
  static_assert(sizeof(value) == sizeof(given));
  std::memcpy(&value, &given, sizeof(value));
  if (value < 0 || value > static_cast<int>(last)) {
    throw gable::Error(gable::ErrorCode::invalid_argument, std::string(what) + " is " + std::to_string(value) +
                                                               "; it must lie between 0 and " +
                                                               std::to_string(static_cast<int>(last)));
  }
  return static_cast<Enum>(value);
}

gable::DType dtype_of(const gable_dtype& dtype) { return enumerator(dtype, gable::DType::bf16, "dtype"); }
gable::Layout layout_of(const gable_layout& layout) { return enumerator(layout, gable::Layout::nhwc, "layout"); }
gable::Math math_of(const gable_math& math) { return enumerator(math, gable::Math::split6, "math"); }
gable::Activation activation_of(const gable_activation& activation) {
  return enumerator(activation, gable::Activation::tanh, "activation");
}

gable::Conv2d conv_of(const gable_conv2d& c) {
  return {.input = {c.input[0], c.input[1], c.input[2], c.input[3]},
          .weights = {c.weights[0], c.weights[1], c.weights[2], c.weights[3]},
          .stride = {c.stride[0], c.stride[1]},
          .padding = {c.padding[0], c.padding[1], c.padding[2], c.padding[3]},
          .dilation = {c.dilation[0], c.dilation[1]},
          .groups = c.groups,
          .dtype = dtype_of(c.dtype),
          .layout = layout_of(c.layout),
          .math = math_of(c.math),
          .epilogue = {.bias = c.bias != 0,
                       .activation = activation_of(c.activation),
                       .max_pool = {gable::Extent{c.pool_window[0], c.pool_window[1]},
                                    gable::Extent{c.pool_stride[0], c.pool_stride[1]}}}};
}

void copy_text(std::string_view from, char* text, std::size_t size, std::size_t* needed) {
  if (size != 0) require(text, "text");
  if (needed != nullptr) *needed = from.size() + 1;
  if (size == 0) return;
  const std::size_t count = std::min(size - 1, from.size());
  std::memcpy(text, from.data(), count);
  text[count] = '\0';
}

gable::Matmul matmul_of(const gable_matmul& m) {
  return {.m = m.m,
          .n = m.n,
          .k = m.k,
          .dtype = dtype_of(m.dtype),
          .math = math_of(m.math),
          .bias = m.bias != 0,
          .activation = activation_of(m.activation)};
}

gable::MaxPool max_pool_of(const gable_max_pool& p) {
  return {.input = {p.input[0], p.input[1], p.input[2], p.input[3]},
          .window = {p.window[0], p.window[1]},
          .stride = {p.stride[0], p.stride[1]},
          .padding = {p.padding[0], p.padding[1], p.padding[2], p.padding[3]},
          .dtype = dtype_of(p.dtype),
          .layout = layout_of(p.layout)};
}

gable::Add add_of(const gable_add& a) {
  return {.shape = {a.shape[0], a.shape[1], a.shape[2], a.shape[3]},
          .dtype = dtype_of(a.dtype),
          .layout = layout_of(a.layout),
          .activation = activation_of(a.activation)};
}

gable::Activate activate_of(const gable_activate& a) {
  return {.shape = {a.shape[0], a.shape[1], a.shape[2], a.shape[3]},
          .function = enumerator(a.function, gable::Function::leaky_relu, "function"),
          .dtype = dtype_of(a.dtype),
          .layout = layout_of(a.layout),
          .slope = a.slope};
}

gable::Concat concat_of(const gable_concat& c) {
  return {.a = {c.a[0], c.a[1], c.a[2], c.a[3]},
          .b = {c.b[0], c.b[1], c.b[2], c.b[3]},
          .dtype = dtype_of(c.dtype),
          .layout = layout_of(c.layout)};
}

gable::Upsample upsample_of(const gable_upsample& u) {
  return {.input = {u.input[0], u.input[1], u.input[2], u.input[3]},
          .scale = {u.scale[0], u.scale[1]},
          .dtype = dtype_of(u.dtype),
          .layout = layout_of(u.layout),
          .interpolation = enumerator(u.interpolation, gable::Interpolation::bilinear_align_corners, "interpolation")};
}

gable::Multiply multiply_of(const gable_multiply& m) {
  return {.a = {m.a[0], m.a[1], m.a[2], m.a[3]},
          .b = {m.b[0], m.b[1], m.b[2], m.b[3]},
          .dtype = dtype_of(m.dtype),
          .layout = layout_of(m.layout)};
}

gable::Softmax softmax_of(const gable_softmax& s) {
  return {.shape = {s.shape[0], s.shape[1], s.shape[2], s.shape[3]},
          .axis = s.axis,
          .dtype = dtype_of(s.dtype),
          .layout = layout_of(s.layout)};
}

gable_plan* new_plan(const gable::Device& device, const gable::Op& op) {
  return new gable_plan{std::make_shared<const gable::Plan>(device.plan(op))};
}

gable_batch_plan* new_plan(const gable::Device& device, const gable::Op& op, gable::BatchRange range) {
  return new gable_batch_plan{device.plan(op, range)};
}

/// Makes a plan, or with a range of batch sizes a batch plan, of the op that `convert` makes of the description. `what`
/// is the description's name in messages.
template <typename Handle, typename Description, typename Convert, typename... Range>
gable_status make_plan(const gable_device* device, const Description* description, const char* what, Handle** plan,
                       const Convert& convert, Range... range) {
  return guarded([&] {
    require(device, "device");
    require(description, what);
    require(plan, "plan");
    *plan = new_plan(device->device, convert(*description), range...);
  });
}

/// The tensors of an op with weights.
struct Weighted {
  gable::Shape x{};
  gable::Shape weights{};
  gable::Shape bias{};
  gable::DType dtype = gable::DType::f32;
  gable::Layout layout = gable::Layout::nchw;
};

Weighted weighted(const gable::Plan& plan) {
  const gable::Op& op = plan.op();
  if (const auto* c = std::get_if<gable::Conv2d>(&op)) {
    return {c->input, c->weights, {c->weights[0]}, c->dtype, c->layout};
  }
  if (const auto* m = std::get_if<gable::Matmul>(&op)) {
    return {{m->m, m->k}, {m->k, m->n}, {m->n}, m->dtype, gable::Layout::nchw};
  }
  throw gable::Error(gable::ErrorCode::invalid_argument, "a plan of " + std::string(gable::name(op)) +
                                                             " has no weights: gable_run_" +
                                                             std::string(gable::name(op)) + "() runs it");
}

gable::ConstTensorView weights_view(const gable::Plan& plan, const void* weights) {
  const Weighted op = weighted(plan);
  return {weights, op.dtype, op.weights, gable::Layout::nchw, plan.memory()};
}

/// What a run of an op with weights reads and writes beside these, at a caller's pointers.
struct WeightedViews {
  gable::ConstTensorView x, bias;
  gable::TensorView y;
};

WeightedViews views_of(const gable::Plan& plan, const void* x, const float* bias, void* y) {
  const Weighted op = weighted(plan);
  const gable::Memory memory = plan.memory();
  return {{x, op.dtype, op.x, op.layout, memory},
          {bias, gable::DType::f32, op.bias, gable::Layout::nchw, memory},
          {y, op.dtype, plan.output_shape(), op.layout, memory}};
}

/// The op of a plan that a run function is made for.
template <typename Wanted>
const Wanted& op_of(const gable::Plan& plan, const char* function) {
  const auto* wanted = std::get_if<Wanted>(&plan.op());
  if (wanted == nullptr) {
    throw gable::Error(gable::ErrorCode::invalid_argument,
                       std::string(function) + "() can't run a plan of " + std::string(gable::name(plan.op())));
  }
  return *wanted;
}

/// Runs a plan of an op with one input, at a caller's pointers.
void run_one_input(const gable::Plan& plan, const gable::ConstTensorView& x, void* y, void* stream) {
  plan.run(x, gable::TensorView(y, x.dtype, plan.output_shape(), x.layout, x.memory), gable::Stream::borrow(stream));
}

/// The same with two inputs.
void run_two_inputs(const gable::Plan& plan, const gable::ConstTensorView& a, const gable::ConstTensorView& b, void* y,
                    void* stream) {
  plan.run(a, b, gable::TensorView(y, a.dtype, plan.output_shape(), a.layout, a.memory), gable::Stream::borrow(stream));
}

gable_device_info info_of(const gable::DeviceInfo& device) {
  return {.uri = device.uri.c_str(),
          .backend = device.backend.c_str(),
          .name = device.name.c_str(),
          .reason = device.available ? nullptr : device.reason.c_str(),
          .on_host = device.memory.kind == gable::Memory::Kind::host ? 1 : 0};
}

}  // namespace

extern "C" {

const char* gable_version(void) { return GABLE_VERSION_STRING; }
const char* gable_last_error(void) { return last_error.c_str(); }

gable_status gable_open(const char* uri, gable_device** device) {
  return guarded([&] {
    require(uri, "uri");
    require(device, "device");
    *device = new gable_device{gable::open(uri)};
  });
}

void gable_close(gable_device* device) { delete device; }

gable_status gable_list_devices(gable_device_list** list) {
  return guarded([&] {
    require(list, "list");
    auto made = std::make_unique<gable_device_list>();
    made->devices = gable::devices();
    for (const gable::DeviceInfo& device : made->devices) made->infos.push_back(info_of(device));
    *list = made.release();
  });
}

const gable_device_info* gable_device_list_at(const gable_device_list* list, size_t index) {
  return list != nullptr && index < list->infos.size() ? &list->infos[index] : nullptr;
}

void gable_device_list_release(gable_device_list* list) { delete list; }

gable_conv2d gable_conv2d_default(void) {
  gable_conv2d conv{};
  conv.stride[0] = conv.stride[1] = 1;
  conv.dilation[0] = conv.dilation[1] = 1;
  conv.groups = 1;
  return conv;
}

gable_status gable_plan_conv2d(const gable_device* device, const gable_conv2d* conv, gable_plan** plan) {
  return make_plan(device, conv, "conv", plan, conv_of);
}

gable_status gable_plan_matmul(const gable_device* device, const gable_matmul* matmul, gable_plan** plan) {
  return make_plan(device, matmul, "matmul", plan, matmul_of);
}

gable_status gable_plan_max_pool(const gable_device* device, const gable_max_pool* pool, gable_plan** plan) {
  return make_plan(device, pool, "pool", plan, max_pool_of);
}

gable_status gable_plan_add(const gable_device* device, const gable_add* add, gable_plan** plan) {
  return make_plan(device, add, "add", plan, add_of);
}

gable_status gable_plan_activate(const gable_device* device, const gable_activate* activate, gable_plan** plan) {
  return make_plan(device, activate, "activate", plan, activate_of);
}

gable_status gable_plan_concat(const gable_device* device, const gable_concat* concat, gable_plan** plan) {
  return make_plan(device, concat, "concat", plan, concat_of);
}

gable_status gable_plan_upsample(const gable_device* device, const gable_upsample* upsample, gable_plan** plan) {
  return make_plan(device, upsample, "upsample", plan, upsample_of);
}

gable_status gable_plan_multiply(const gable_device* device, const gable_multiply* multiply, gable_plan** plan) {
  return make_plan(device, multiply, "multiply", plan, multiply_of);
}

gable_status gable_plan_softmax(const gable_device* device, const gable_softmax* softmax, gable_plan** plan) {
  return make_plan(device, softmax, "softmax", plan, softmax_of);
}

void gable_plan_release(gable_plan* plan) { delete plan; }

gable_status gable_plan_output_shape(const gable_plan* plan, int64_t shape[4]) {
  return guarded([&] {
    require(plan, "plan");
    require(shape, "shape");
    const gable::Shape& output = plan->plan->output_shape();
    for (std::size_t i = 0; i < 4; ++i) shape[i] = i < output.rank() ? output[i] : 1;
  });
}

gable_status gable_plan_explain(const gable_plan* plan, char* text, size_t size, size_t* needed) {
  return guarded([&] {
    require(plan, "plan");
    copy_text(plan->plan->explain(), text, size, needed);
  });
}

gable_status gable_plan_kernel(const gable_plan* plan, char* text, size_t size, size_t* needed) {
  return guarded([&] {
    require(plan, "plan");
    copy_text(plan->plan->kernel(), text, size, needed);
  });
}

gable_status gable_plan_device(const gable_plan* plan, char* text, size_t size, size_t* needed) {
  return guarded([&] {
    require(plan, "plan");
    copy_text(plan->plan->device_uri(), text, size, needed);
  });
}

gable_status gable_plan_threads(const gable_plan* plan, int* threads) {
  return guarded([&] {
    require(plan, "plan");
    require(threads, "threads");
    *threads = plan->plan->threads();
  });
}

gable_status gable_plan_fused(const gable_plan* plan, int* fused) {
  return guarded([&] {
    require(plan, "plan");
    require(fused, "fused");
    *fused = plan->plan->fused() ? 1 : 0;
  });
}

gable_status gable_plan_error_bound(const gable_plan* plan, gable_error_bound* bound) {
  return guarded([&] {
    require(plan, "plan");
    require(bound, "bound");
    const gable::ErrorBound b = plan->plan->error_bound();
    *bound = {b.accumulation, b.rounding, b.absolute};
  });
}

gable_status gable_plan_on_host(const gable_plan* plan, int* on_host) {
  return guarded([&] {
    require(plan, "plan");
    require(on_host, "on_host");
    *on_host = plan->plan->memory().kind == gable::Memory::Kind::host ? 1 : 0;
  });
}

gable_status gable_plan_packing(const gable_plan* plan, uint64_t* key) {
  return guarded([&] {
    require(plan, "plan");
    require(key, "key");
    *key = plan->plan->packing();
  });
}

gable_status gable_pack(const gable_plan* plan, const void* weights, gable_packed** packed) {
  return guarded([&] {
    require(plan, "plan");
    require(packed, "packed");
    *packed = new gable_packed{plan->plan->pack(weights_view(*plan->plan, weights))};
  });
}

void gable_packed_release(gable_packed* packed) { delete packed; }

gable_status gable_run(const gable_plan* plan, const void* x, const gable_packed* packed, const float* bias, void* y,
                       void* stream) {
  return guarded([&] {
    require(plan, "plan");
    require(packed, "packed");
    const WeightedViews of = views_of(*plan->plan, x, bias, y);
    plan->plan->run(of.x, packed->weights, of.bias, of.y, gable::Stream::borrow(stream));
  });
}

gable_status gable_run_max_pool(const gable_plan* plan, const void* x, void* y, void* stream) {
  return guarded([&] {
    require(plan, "plan");
    const auto& op = op_of<gable::MaxPool>(*plan->plan, "gable_run_max_pool");
    run_one_input(*plan->plan, {x, op.dtype, op.input, op.layout, plan->plan->memory()}, y, stream);
  });
}

gable_status gable_run_add(const gable_plan* plan, const void* a, const void* b, void* c, void* stream) {
  return guarded([&] {
    require(plan, "plan");
    const auto& op = op_of<gable::Add>(*plan->plan, "gable_run_add");
    const gable::Memory memory = plan->plan->memory();
    run_two_inputs(*plan->plan, {a, op.dtype, op.shape, op.layout, memory}, {b, op.dtype, op.shape, op.layout, memory},
                   c, stream);
  });
}

gable_status gable_run_activate(const gable_plan* plan, const void* x, void* y, void* stream) {
  return guarded([&] {
    require(plan, "plan");
    const auto& op = op_of<gable::Activate>(*plan->plan, "gable_run_activate");
    run_one_input(*plan->plan, {x, op.dtype, op.shape, op.layout, plan->plan->memory()}, y, stream);
  });
}

gable_status gable_run_concat(const gable_plan* plan, const void* a, const void* b, void* y, void* stream) {
  return guarded([&] {
    require(plan, "plan");
    const auto& op = op_of<gable::Concat>(*plan->plan, "gable_run_concat");
    const gable::Memory memory = plan->plan->memory();
    run_two_inputs(*plan->plan, {a, op.dtype, op.a, op.layout, memory}, {b, op.dtype, op.b, op.layout, memory}, y,
                   stream);
  });
}

gable_status gable_run_upsample(const gable_plan* plan, const void* x, void* y, void* stream) {
  return guarded([&] {
    require(plan, "plan");
    const auto& op = op_of<gable::Upsample>(*plan->plan, "gable_run_upsample");
    run_one_input(*plan->plan, {x, op.dtype, op.input, op.layout, plan->plan->memory()}, y, stream);
  });
}

gable_status gable_run_multiply(const gable_plan* plan, const void* a, const void* b, void* y, void* stream) {
  return guarded([&] {
    require(plan, "plan");
    const auto& op = op_of<gable::Multiply>(*plan->plan, "gable_run_multiply");
    const gable::Memory memory = plan->plan->memory();
    run_two_inputs(*plan->plan, {a, op.dtype, op.a, op.layout, memory}, {b, op.dtype, op.b, op.layout, memory}, y,
                   stream);
  });
}

gable_status gable_run_softmax(const gable_plan* plan, const void* x, void* y, void* stream) {
  return guarded([&] {
    require(plan, "plan");
    const auto& op = op_of<gable::Softmax>(*plan->plan, "gable_run_softmax");
    run_one_input(*plan->plan, {x, op.dtype, op.shape, op.layout, plan->plan->memory()}, y, stream);
  });
}

gable_status gable_batch_plan_conv2d(const gable_device* device, const gable_conv2d* conv, int64_t least, int64_t most,
                                     gable_batch_plan** plan) {
  return make_plan(device, conv, "conv", plan, conv_of, gable::BatchRange{least, most});
}

gable_status gable_batch_plan_matmul(const gable_device* device, const gable_matmul* matmul, int64_t least,
                                     int64_t most, gable_batch_plan** plan) {
  return make_plan(device, matmul, "matmul", plan, matmul_of, gable::BatchRange{least, most});
}

gable_status gable_batch_plan_max_pool(const gable_device* device, const gable_max_pool* pool, int64_t least,
                                       int64_t most, gable_batch_plan** plan) {
  return make_plan(device, pool, "pool", plan, max_pool_of, gable::BatchRange{least, most});
}

gable_status gable_batch_plan_add(const gable_device* device, const gable_add* add, int64_t least, int64_t most,
                                  gable_batch_plan** plan) {
  return make_plan(device, add, "add", plan, add_of, gable::BatchRange{least, most});
}

gable_status gable_batch_plan_activate(const gable_device* device, const gable_activate* activate, int64_t least,
                                       int64_t most, gable_batch_plan** plan) {
  return make_plan(device, activate, "activate", plan, activate_of, gable::BatchRange{least, most});
}

gable_status gable_batch_plan_concat(const gable_device* device, const gable_concat* concat, int64_t least,
                                     int64_t most, gable_batch_plan** plan) {
  return make_plan(device, concat, "concat", plan, concat_of, gable::BatchRange{least, most});
}

gable_status gable_batch_plan_upsample(const gable_device* device, const gable_upsample* upsample, int64_t least,
                                       int64_t most, gable_batch_plan** plan) {
  return make_plan(device, upsample, "upsample", plan, upsample_of, gable::BatchRange{least, most});
}

gable_status gable_batch_plan_multiply(const gable_device* device, const gable_multiply* multiply, int64_t least,
                                       int64_t most, gable_batch_plan** plan) {
  return make_plan(device, multiply, "multiply", plan, multiply_of, gable::BatchRange{least, most});
}

gable_status gable_batch_plan_softmax(const gable_device* device, const gable_softmax* softmax, int64_t least,
                                      int64_t most, gable_batch_plan** plan) {
  return make_plan(device, softmax, "softmax", plan, softmax_of, gable::BatchRange{least, most});
}

void gable_batch_plan_release(gable_batch_plan* plan) { delete plan; }

gable_status gable_batch_plan_explain(const gable_batch_plan* plan, char* text, size_t size, size_t* needed) {
  return guarded([&] {
    require(plan, "plan");
    copy_text(plan->plans.explain(), text, size, needed);
  });
}

gable_status gable_batch_plan_at(const gable_batch_plan* plan, int64_t batch, gable_plan** at) {
  return guarded([&] {
    require(plan, "plan");
    require(at, "at");
    *at = new gable_plan{plan->plans.at(batch)};
  });
}

gable_status gable_batch_pack(const gable_batch_plan* plan, const void* weights, gable_batch_weights** packed) {
  return guarded([&] {
    require(plan, "plan");
    require(packed, "packed");
    const std::shared_ptr<const gable::Plan> first = plan->plans.at(plan->plans.range().least);
    *packed = new gable_batch_weights{plan->plans.pack(weights_view(*first, weights))};
  });
}

void gable_batch_weights_release(gable_batch_weights* packed) { delete packed; }

gable_status gable_batch_run(const gable_batch_plan* plan, int64_t batch, const void* x,
                             const gable_batch_weights* packed, const float* bias, void* y, void* stream) {
  return guarded([&] {
    require(plan, "plan");
    require(packed, "packed");
    const WeightedViews of = views_of(*plan->plans.at(batch), x, bias, y);
    plan->plans.run(of.x, packed->weights, of.bias, of.y, gable::Stream::borrow(stream));
  });
}

}  // extern "C"
