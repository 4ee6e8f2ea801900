// The C API: each call is its C++ twin behind a status code.
#include <gable/c.h>
#include <gable/gable.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <string>
#include <string_view>

struct gable_device {
  gable::Device device;
};

struct gable_plan {
  gable::Plan plan;
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

/// C enumerators have the numbers of their C++ twins; a caller can still pass any integer, which C++ may only look at
/// as an integer.
template <typename Enum, typename CEnum>
Enum enumerator(const CEnum& given, int count, const char* what) {
  int value = 0;
  static_assert(sizeof(value) == sizeof(given));
  std::memcpy(&value, &given, sizeof(value));
  if (value < 0 || value >= count) {
    throw gable::Error(gable::ErrorCode::invalid_argument, std::string(what) + " is " + std::to_string(value) +
                                                               "; it must lie between 0 and " +
                                                               std::to_string(count - 1));
  }
  return static_cast<Enum>(value);
}

gable::Conv2d conv_of(const gable_conv2d& c) {
  return {.input = {c.input[0], c.input[1], c.input[2], c.input[3]},
          .weights = {c.weights[0], c.weights[1], c.weights[2], c.weights[3]},
          .stride = {c.stride[0], c.stride[1]},
          .padding = {c.padding[0], c.padding[1], c.padding[2], c.padding[3]},
          .dilation = {c.dilation[0], c.dilation[1]},
          .groups = c.groups,
          .dtype = enumerator<gable::DType>(c.dtype, 3, "dtype"),
          .layout = enumerator<gable::Layout>(c.layout, 2, "layout"),
          .math = enumerator<gable::Math>(c.math, 4, "math"),
          .epilogue = {.bias = c.bias != 0,
                       .activation = enumerator<gable::Activation>(c.activation, 3, "activation"),
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

const gable::Conv2d& conv_of(const gable_plan& plan) { return std::get<gable::Conv2d>(plan.plan.op()); }

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

gable_conv2d gable_conv2d_default(void) {
  gable_conv2d conv{};
  conv.stride[0] = conv.stride[1] = 1;
  conv.dilation[0] = conv.dilation[1] = 1;
  conv.groups = 1;
  return conv;
}

gable_status gable_plan_conv2d(const gable_device* device, const gable_conv2d* conv, gable_plan** plan) {
  return guarded([&] {
    require(device, "device");
    require(conv, "conv");
    require(plan, "plan");
    *plan = new gable_plan{device->device.plan(conv_of(*conv))};
  });
}

void gable_plan_release(gable_plan* plan) { delete plan; }

gable_status gable_plan_output_shape(const gable_plan* plan, int64_t shape[4]) {
  return guarded([&] {
    require(plan, "plan");
    require(shape, "shape");
    for (std::size_t i = 0; i < 4; ++i) shape[i] = plan->plan.output_shape()[i];
  });
}

gable_status gable_plan_explain(const gable_plan* plan, char* text, size_t size, size_t* needed) {
  return guarded([&] {
    require(plan, "plan");
    copy_text(plan->plan.explain(), text, size, needed);
  });
}

gable_status gable_plan_kernel(const gable_plan* plan, char* text, size_t size, size_t* needed) {
  return guarded([&] {
    require(plan, "plan");
    copy_text(plan->plan.kernel(), text, size, needed);
  });
}

gable_status gable_plan_fused(const gable_plan* plan, int* fused) {
  return guarded([&] {
    require(plan, "plan");
    require(fused, "fused");
    *fused = plan->plan.fused() ? 1 : 0;
  });
}

gable_status gable_plan_error_bound(const gable_plan* plan, gable_error_bound* bound) {
  return guarded([&] {
    require(plan, "plan");
    require(bound, "bound");
    const gable::ErrorBound b = plan->plan.error_bound();
    *bound = {b.accumulation, b.rounding, b.absolute};
  });
}

gable_status gable_pack(const gable_plan* plan, const void* weights, gable_packed** packed) {
  return guarded([&] {
    require(plan, "plan");
    require(packed, "packed");
    const gable::Conv2d& conv = conv_of(*plan);
    const gable::ConstTensorView view(weights, conv.dtype, conv.weights, gable::Layout::nchw, plan->plan.memory());
    *packed = new gable_packed{plan->plan.pack(view)};
  });
}

void gable_packed_release(gable_packed* packed) { delete packed; }

gable_status gable_run(const gable_plan* plan, const void* x, const gable_packed* packed, const float* bias, void* y,
                       void* stream) {
  return guarded([&] {
    require(plan, "plan");
    require(packed, "packed");
    const gable::Conv2d& conv = conv_of(*plan);
    const gable::Memory memory = plan->plan.memory();
    gable::ConstTensorView bias_view;
    if (conv.epilogue.bias || bias != nullptr) {
      bias_view = gable::ConstTensorView(bias, gable::DType::f32, {conv.weights[0]}, gable::Layout::nchw, memory);
    }
    plan->plan.run(gable::ConstTensorView(x, conv.dtype, conv.input, conv.layout, memory), packed->weights, bias_view,
                   gable::TensorView(y, conv.dtype, plan->plan.output_shape(), conv.layout, memory),
                   gable::Stream::borrow(stream));
  });
}

}  // extern "C"
