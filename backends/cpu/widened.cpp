// See widened.h.
#include "backends/cpu/widened.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "backends/cpu/fastest.h"
#include "cpu/common/aligned.h"
#include "cpu/common/cache.h"
#include "cpu/common/estimate.h"
#include "cpu/common/half.h"
#include "cpu/common/parallel.h"
#include "cpu/common/tiling.h"
#include "cpu/narrow_groups/narrow_groups.h"
#include "cpu/widened/widened_kernels.h"

namespace gable {
namespace {

/// A pixel with at least this many channels is widened as a run of its own if its neighbours are not read.
constexpr std::int64_t kMinRun = 16;

/// Whether only every `stride`-th coordinate of the image is read, starting with the first.
bool skips(const cpu::WindowAxis& axis) {
  return axis.taps == 1 && axis.stride > 1 && axis.pad == 0 && axis.first(axis.outputs - 1) < axis.size;
}

/// The part of the input that is widened: not the rows that no tap reads, and not such columns if a pixel is a long
/// run.
struct Gather {
  bool rows, columns;
};
Gather gather_of(const Conv2dProblem& p) {
  return {skips(cpu::row_axis(p)), p.c >= kMinRun && skips(cpu::column_axis(p))};
}

/// The number of images in one pass. All, if the weights exceed half of L2, since every pass reads them. Else a divisor
/// of n, so that the f32 tensors fit half of the threads' L2.
std::int64_t images_of_pass(const Conv2dProblem& widened, int threads) {
  constexpr auto kFloat = static_cast<std::int64_t>(sizeof(float));
  const std::int64_t half = cpu::l2_bytes() / 2;
  if (widened.k * widened.group_c() * widened.r * widened.s * kFloat > half) return widened.n;
  const std::int64_t image = (widened.x_elements() + widened.y_elements()) / widened.n * kFloat;
  std::int64_t images = std::clamp<std::int64_t>(half * threads / image, 1, widened.n);
  while (widened.n % images != 0) --images;
  return images;
}

/// The op of one pass, in f32.
WeightedOp in_f32(const WeightedOp& op, int threads) {
  WeightedOp inner = op;
  Conv2dProblem& p = inner.problem;
  p.dtype = DType::f32;
  const Gather gather = gather_of(p);
  if (gather.rows) {
    p.h = p.ho;
    p.stride_h = 1;
  }
  if (gather.columns) {
    p.w = p.wo;
    p.stride_w = 1;
  }
  p.n = images_of_pass(p, threads);
  inner.strides = dense_strides(p);
  return inner;
}

PlanDetails details_of(const WeightedOp& op, PlanDetails inner, const Conv2dProblem& pass, std::size_t floats) {
  name_around(inner, "widened");
  inner.explanation += "; " + std::string(name_of(op.problem.dtype)) + " widened to f32 and narrowed from it, " +
                       std::to_string(pass.n) + (pass.n == 1 ? " image" : " images") + " at a time";
  inner.bound = f32_bound(op);
  inner.workspace_bytes += floats * sizeof(float);
  inner.packing_key =
      packing_key("cpu " + std::string(name_of(op.problem.dtype)) + " " + std::to_string(inner.packing_key));
  return inner;
}

/// The tensors of one pass in f32.
struct Workspace {
  explicit Workspace(const Conv2dProblem& pass)
      : x_floats(cpu::line_floats(pass.x_elements())), floats(x_floats + cpu::line_floats(pass.y_elements())) {}
  std::size_t x_floats, floats;
};

class WidenedPlan final : public PlanImpl {
 public:
  WidenedPlan(const WeightedOp& op, const Conv2dProblem& pass, std::unique_ptr<PlanImpl> inner, const CpuPlace& place)
      : PlanImpl(details_of(op, inner->details(), pass, Workspace(pass).floats)),
        problem_(op.problem),
        strides_(op.strides),
        pass_(pass),
        inner_(std::move(inner)),
        kernels_(&cpu::widened_kernels(place.target)),
        threads_(place.threads),
        x_floats_(Workspace(pass).x_floats),
        workspace_(Workspace(pass).floats) {}

  void pack(const void* weights, void* packed) override {
    const Conv2dProblem& p = problem_;
    std::vector<float> wide;
    wide.reserve(static_cast<std::size_t>(p.k * p.group_c() * p.r * p.s));
    for (std::int64_t k = 0; k < p.k; ++k) {
      for (std::int64_t c = 0; c < p.group_c(); ++c) {
        for (std::int64_t r = 0; r < p.r; ++r) {
          for (std::int64_t s = 0; s < p.s; ++s) {
            const std::int64_t at = k * strides_.out + c * strides_.in + r * strides_.row + s * strides_.column;
            wide.push_back(cpu::element_as_f32(weights, p.dtype, at));
          }
        }
      }
    }
    inner_->pack(wide.data(), packed);
  }

  void run(const RunArguments& arguments) override {
    const Conv2dProblem& p = problem_;
    const auto* x = static_cast<const std::uint16_t*>(arguments.inputs[0]);
    auto* y = static_cast<std::uint16_t*>(arguments.output);
    float* const wide_x = workspace_.data();
    float* const wide_y = wide_x + x_floats_;
    RunArguments inner = arguments;
    inner.inputs[0] = wide_x;
    inner.output = wide_y;
    const std::int64_t outputs = pass_.y_elements();
    for (std::int64_t image = 0; image < p.n; image += pass_.n) {
      widen(x + image * p.c * p.h * p.w, wide_x);
      inner_->run(inner);
      in_parts(outputs, [&](std::int64_t first, std::int64_t count) {
        kernels_->narrow(p.dtype)(wide_y + first, y + first, count);
      });
      y += outputs;
    }
  }

 private:
  static constexpr std::int64_t kPart = 16 << 10;  // elements

  /// Spreads runs of elements over the threads.
  template <class Work>
  void in_parts(std::int64_t elements, const Work& work) const {
    cpu::parallel_units(threads_, ceil_div(elements, kPart),
                        [&](std::int64_t part, int) { work(part * kPart, std::min(kPart, elements - part * kPart)); });
  }

  /// Widens the images of a pass, except what no tap reads.
  void widen(const std::uint16_t* x, float* wide) const {
    const Conv2dProblem& p = problem_;
    const cpu::WidenFunction to_f32 = kernels_->widen(p.dtype);
    const Gather gather = gather_of(p);
    if (!gather.rows && !gather.columns) {
      return in_parts(pass_.x_elements(),
                      [&](std::int64_t first, std::int64_t count) { to_f32(x + first, wide + first, count); });
    }
    const std::int64_t row_step = gather.rows ? p.stride_h : 1;
    cpu::parallel_units(threads_, pass_.n * pass_.h, [&](std::int64_t row, int) {
      const std::uint16_t* from = x + (row / pass_.h * p.h + row % pass_.h * row_step) * p.w * p.c;
      float* to = wide + row * pass_.w * p.c;
      if (!gather.columns) return to_f32(from, to, pass_.w * p.c);
      for (std::int64_t column = 0; column < pass_.w; ++column) {
        to_f32(from + column * p.stride_w * p.c, to + column * p.c, p.c);
      }
    });
  }

  Conv2dProblem problem_;
  WeightStrides strides_;
  Conv2dProblem pass_;
  std::unique_ptr<PlanImpl> inner_;
  const cpu::WidenedKernels* kernels_;
  int threads_;
  std::size_t x_floats_;
  cpu::AlignedFloats workspace_;
};

}  // namespace

std::string refuse_widened(const WeightedOp& op, const cpu::Target& target) {
  if (op.problem.dtype == DType::f32) return "f32: it widens f16 and bf16";
  if (!op.problem.nhwc) return "layout nchw: the kernels of planes and of nhwc after a reorder convert less";
  if (op.problem.math != Math::strict) {
    return "math " + std::string(to_string(op.problem.math)) + ": its arithmetic is strict";
  }
  if (cpu::narrow_groups_refusal(op.problem, target).empty()) return "narrow_groups takes it, which converts less";
  const CpuKernels::Kernel* inner = fastest_kernel(in_f32(op, 1), {target, 1}).kernel;
  if (inner == nullptr) return "no kernel of f32 has an estimated time";
  const std::string name = inner->name;
  if (name == "cropped" || name == "folded") return name + " takes it, and widens its rows where that pays";
  const bool f32_alone = name == "direct" || name == "few_channels" || (name == "pointwise" && op.problem.groups > 1);
  if (!f32_alone) {
    return "in f32 " + name + " computes it, which converts what a tile reads and writes itself";
  }
  return "";
}

double widened_seconds(const WeightedOp& op, const CpuPlace& place) {
  // Seconds: to convert 16 elements, more if they exceed L2, to read 16 that another thread converted, for each pass,
  // and for each tensor that several threads convert.
  constexpr double kVector = 0.9e-9, kFarVector = 0.6e-9, kOthersVector = 12e-9, kPass = 60e-9;
  const WeightedOp inner = in_f32(op, place.threads);
  const Conv2dProblem& pass = inner.problem;
  const double elements = static_cast<double>(pass.x_elements() + pass.y_elements());
  const double bytes = elements * sizeof(float) / place.threads;
  const bool far = bytes > static_cast<double>(cpu::l2_bytes());
  const double convert = elements / 16 * (kVector + (far ? kFarVector : 0)) / place.threads;
  // Threads convert pixels, with the channels of all groups, and compute groups.
  const double others = pass.groups == 1 ? 0 : static_cast<double>(pass.x_elements()) * (1 - 1.0 / place.threads);
  const double fetch = others / 16 * kOthersVector / place.threads;
  const auto passes = static_cast<double>(op.problem.n / pass.n);
  const double regions = 2 * cpu::region_seconds(place.threads);
  return passes * (fastest_kernel(inner, place).seconds + convert + fetch + kPass + regions);
}

std::unique_ptr<PlanImpl> make_widened_plan(const WeightedOp& op, const CpuPlace& place) {
  const WeightedOp inner = in_f32(op, place.threads);
  return std::make_unique<WidenedPlan>(op, inner.problem, fastest_kernel(inner, place).kernel->make(inner, place),
                                       place);
}

}  // namespace gable
