// See requirements.h.
#include "tests/conformance/requirements.h"

#include <algorithm>
#include <string_view>

namespace gable::conformance {
namespace {

bool has_kernel(const DeviceInfo& device, std::string_view kernel) {
  return std::find(device.kernels.begin(), device.kernels.end(), kernel) != device.kernels.end();
}

bool has_tile(const Op& op) {
  const auto* add = std::get_if<Add>(&op);
  return add != nullptr && add->tile;
}

/// Ops that gable asks no vendor's library for.
bool is_gables_own(const Op& op) {
  return std::holds_alternative<Activate>(op) || std::holds_alternative<Concat>(op) ||
         std::holds_alternative<Upsample>(op) || std::holds_alternative<Multiply>(op) ||
         std::holds_alternative<Softmax>(op);
}

std::string math_text(const Op& op) { return "math " + std::string(to_string(math_of(op))); }

/// All of strict math, in every dtype and layout. No kernel has tf32; split3 and split6 are AMX's, which is made for
/// NHWC and refuses shapes that would be mostly padding.
std::vector<Excuse> cpu_excuses(const DeviceInfo& device, const Op& op) {
  if (math_of(op) == Math::strict) return {};
  if (math_of(op) == Math::tf32 || !has_kernel(device, "amx")) return {{"direct", {math_text(op)}}};
  return {{"amx", {"layout nchw"}}, {"amx", {"padding makes it"}}};
}

/// All of strict math. On tensor cores tf32 from sm_80 on, and split3 and split6 on sm_90. What wgmma may refuse of the
/// latter follows from its limits; which cases meet them was not tried on every GPU.
std::vector<Excuse> cuda_excuses(const DeviceInfo& device, const Op& op) {
  const Math math = math_of(op);
  if (math == Math::strict) return {};
  if (math == Math::tf32) {
    return has_kernel(device, "implicit_gemm") ? std::vector<Excuse>{}
                                               : std::vector<Excuse>{{"naive", {"its arithmetic is strict"}}};
  }
  if (!has_kernel(device, "wgmma")) return {{"naive", {"its arithmetic is strict"}}};
  return {{"wgmma", {"its tables hold"}}, {"wgmma", {"does not fit shared memory"}}};
}

/// f16 since oneDNN 3, on some CPUs; bf16 with AVX-512 alone. 3.x has only brgemm for some convolutions, which gable
/// avoids where it crashes or is wrong.
std::vector<Excuse> onednn_excuses(const Op& op) {
  if (has_tile(op)) return {{"binary", {"a tile shape is given"}}};
  if (is_gables_own(op)) return {{"", {"gable has no", "by oneDNN"}}};
  if (math_of(op) != Math::strict) return {{"", {math_text(op)}}};
  const std::string what = std::string(to_string(dtype_of(op))) + " " + std::string(name(op)) + " in oneDNN";
  std::vector<Excuse> all;
  if (dtype_of(op) == DType::f16) all.push_back({"", {what, "unimplemented"}});
  if (dtype_of(op) == DType::bf16) {
    for (const char* isa : {"(sse41", "(avx)", "(avx2"}) all.push_back({"", {what, isa, "unimplemented"}});
  }
  if (std::holds_alternative<Conv2d>(op)) all.push_back({"direct", {what, "only brgemm"}});
  return all;
}

bool is_symmetric(const Padding& p) { return p.top == p.bottom && p.left == p.right; }

/// What every cuDNN 9 is known to have an engine for: f32 with channels in fours, one group, no dilation, the same
/// padding on both sides and less of it than the kernel is large. Of other channels 9.14 has none for 19 to 37.
bool is_plain(const Conv2d& c) {
  return c.dtype == DType::f32 && c.math == Math::strict && c.groups == 1 && c.input[1] % 4 == 0 &&
         c.weights[0] % 4 == 0 && c.dilation.h == 1 && c.dilation.w == 1 && is_symmetric(c.padding) &&
         c.padding.top < c.weights[2] && c.padding.left < c.weights[3];
}

/// Products other than is_plain()'s, and add, may lack an engine: which do depends on cuDNN's version and on the GPU,
/// so the refusal must say so, in gable's words ("no engine", "none of 3 engines") or in cuDNN's own status. cuDNN 9.14
/// also takes some windows beyond one side's padding for invalid.
std::vector<Excuse> cudnn_excuses(const Op& op) {
  if (math_of(op) == Math::split3 || math_of(op) == Math::split6) return {{"", {"cuDNN has no split f32 products"}}};
  if (is_gables_own(op)) return {{"", {"gable has no", "by cuDNN"}}};
  const std::vector<Excuse> no_engine{{"", {"no engine"}},
                                      {"", {"none of", "engines"}},
                                      {"", {"NOT_SUPPORTED"}},
                                      {"", {"BAD_PARAM", "is_valid_spatial_dim"}}};
  if (const auto* c = std::get_if<Conv2d>(&op)) return is_plain(*c) ? std::vector<Excuse>{} : no_engine;
  if (const auto* m = std::get_if<Matmul>(&op)) {
    return m->dtype == DType::f32 && m->math == Math::strict ? std::vector<Excuse>{} : no_engine;
  }
  if (const auto* p = std::get_if<MaxPool>(&op)) {
    if (!is_symmetric(p->padding)) return {{"", {"cudnnPoolingForward pads both sides alike"}}};
    return p->dtype == DType::f32 ? std::vector<Excuse>{} : std::vector<Excuse>{{"", {"NOT_SUPPORTED"}}};
  }
  if (std::holds_alternative<Add>(op)) return no_engine;
  return dtype_of(op) == DType::f32 ? std::vector<Excuse>{} : std::vector<Excuse>{{"", {"NOT_SUPPORTED"}}};
}

bool matches(const Excuse& excuse, const KernelSupport& answer) {
  if (!excuse.kernel.empty() && excuse.kernel != answer.kernel) return false;
  return std::all_of(excuse.parts.begin(), excuse.parts.end(),
                     [&](const std::string& part) { return answer.reason.find(part) != std::string::npos; });
}

struct Least {
  std::string_view backend, kernel;
  int cases;
};

/// About three quarters of what was counted, CUDA's on an H200.
constexpr Least kLeast[] = {
    {"cpu", "cropped", 40},
    {"cpu", "amx", 10},
    {"cpu", "bf16_dot", 24},
    {"cpu", "depthwise", 8},
    {"cpu", "depthwise_planes", 8},
    {"cpu", "depthwise_staged", 18},
    {"cpu", "few_channels", 120},
    {"cpu", "few_outputs_bf16_dot", 1},
    {"cpu", "few_outputs", 4},
    {"cpu", "folded", 12},
    {"cpu", "narrow_groups_bf16_dot", 1},
    {"cpu", "narrow_groups", 2},
    {"cpu", "pointwise", 16},
    {"cpu", "planes_amx", 60},
    {"cpu", "planes_bf16_dot", 120},
    {"cpu", "planes", 300},
    {"cpu", "reordered", 100},
    {"cpu", "widened", 60},
    {"cpu", "direct", 600},
    {"cpu", "max_pool", 42},
    {"cpu", "add", 60},
    {"cpu", "transpose", 15},
    {"cpu", "reorder", 48},
    {"cpu", "activate", 54},
    {"cpu", "concat", 30},
    {"cpu", "upsample", 216},
    {"cpu", "multiply", 36},
    {"cpu", "softmax", 36},
    {"onednn", "direct", 220},
    {"onednn", "winograd", 30},
    {"onednn", "matmul", 14},
    {"onednn", "pooling", 14},
    {"onednn", "binary", 15},
    {"onednn", "reorder", 63},
    {"reference", "f64_loops", 1105},
    {"cuda", "depthwise", 21},
    {"cuda", "one_channel", 9},
    {"cuda", "few_channels_mma", 120},
    {"cuda", "few_channels", 255},
    {"cuda", "few_pixels", 4},
    {"cuda", "few_outputs", 50},
    {"cuda", "wgmma", 380},
    {"cuda", "grouped_mma", 60},
    {"cuda", "grouped", 40},
    {"cuda", "implicit_gemm", 400},
    {"cuda", "pointwise", 4},
    {"cuda", "pointwise_planes", 6},
    {"cuda", "register_tile", 215},
    {"cuda", "double_buffer", 240},
    {"cuda", "shared", 720},
    {"cuda", "constant", 690},
    {"cuda", "naive", 720},
    {"cuda", "max_pool", 42},
    {"cuda", "add", 60},
    {"cuda", "transpose", 15},
    {"cuda", "reorder", 48},
    {"cuda", "activate", 54},
    {"cuda", "concat", 30},
    {"cuda", "upsample", 216},
    {"cuda", "multiply", 36},
    {"cuda", "softmax", 36},
};

}  // namespace

Math math_of(const Op& op) {
  if (const auto* c = std::get_if<Conv2d>(&op)) return c->math;
  if (const auto* m = std::get_if<Matmul>(&op)) return m->math;
  return Math::strict;
}

std::vector<Excuse> excuses(const DeviceInfo& device, const Op& op) {
  if (device.backend == "cpu") return cpu_excuses(device, op);
  if (device.backend == "cuda") return cuda_excuses(device, op);
  if (device.backend == "onednn") return onednn_excuses(op);
  if (device.backend == "cudnn") return cudnn_excuses(op);
  if (device.backend == "reference" && math_of(op) != Math::strict) return {{"", {math_text(op)}}};
  return {};
}

bool is_excused(const DeviceInfo& device, const Op& op, const std::vector<KernelSupport>& answers) {
  const std::vector<Excuse> accepted = excuses(device, op);
  return std::any_of(answers.begin(), answers.end(), [&](const KernelSupport& answer) {
    return std::any_of(accepted.begin(), accepted.end(), [&](const Excuse& excuse) { return matches(excuse, answer); });
  });
}

int least_cases(const std::string& backend, const std::string& kernel) {
  for (const Least& least : kLeast) {
    if (least.backend == backend && least.kernel == kernel) return least.cases;
  }
  return -1;
}

}  // namespace gable::conformance
