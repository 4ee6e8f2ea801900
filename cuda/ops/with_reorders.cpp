// See with_reorders.h.
#include "cuda/ops/with_reorders.h"

#include "cuda/common/coverage.h"
#include "cuda/ops/pool.h"
#include "cuda/ops/reorder.h"

namespace gable::cuda {
namespace {

constexpr std::int64_t kAligned = 256;

std::string megabytes(std::int64_t bytes) { return std::to_string((bytes + 500000) / 1000000) + " MB"; }

/// The passes before and after the kernel, and where their tensors lie in the workspace (offsets in bytes).
class Passes {
 public:
  Passes(const Conv2dProblem& problem, const PixelPitches& pitches);

  const Conv2dProblem& problem() const { return problem_; }
  bool pools() const { return pools_; }
  std::size_t workspace_bytes() const { return bytes_; }
  /// Names the passes before and after the kernel; empty if there are none.
  std::string text() const;
  double seconds() const;

  /// The kernel's x and y: the caller's, or tensors in the workspace.
  const void* input(const void* x, unsigned char* workspace) const { return reorders_x_ ? workspace + x_at_ : x; }
  void* output(void* y, unsigned char* workspace) const { return pools_ || reorders_y_ ? workspace + conv_at_ : y; }

  void before(const void* x, unsigned char* workspace, cudaStream_t stream) const;
  void after(void* y, unsigned char* workspace, cudaStream_t stream) const;

 private:
  /// Read or written by the reorders.
  std::int64_t reordered_elements() const { return (reorders_x_ ? x_moved() : 0) + (reorders_y_ ? y_moved() : 0); }
  std::int64_t x_moved() const { return problem_.x_elements() + x_pixels() * pitches_.x; }
  std::int64_t y_moved() const { return problem_.y_elements() + y_pixels() * pitches_.y; }
  std::int64_t x_pixels() const { return problem_.n * problem_.h * problem_.w; }
  std::int64_t y_pixels() const { return problem_.n * problem_.out_h() * problem_.out_w(); }
  bool pads_x() const { return pitches_.x != problem_.c; }
  bool pads_y() const { return pitches_.y != problem_.k; }
  int element() const { return static_cast<int>(size_of(problem_.dtype)); }
  void pool(unsigned char* workspace, void* y, cudaStream_t stream) const;

  Conv2dProblem problem_;
  PixelPitches pitches_;
  bool reorders_x_, reorders_y_;  // a tensor of one channel has the same bytes in both layouts
  bool pools_;
  std::size_t x_at_ = 0, conv_at_ = 0, y_at_ = 0, bytes_ = 0;
};

Passes::Passes(const Conv2dProblem& p, const PixelPitches& pitches)
    : problem_(p),
      pitches_{pitches.x == 0 ? p.c : pitches.x, pitches.y == 0 ? p.k : pitches.y},
      reorders_x_(!p.nhwc && pitches_.x > 1),
      reorders_y_(!p.nhwc && pitches_.y > 1),
      pools_(!p.pool.none() && !p.pool.is_2x2()) {
  std::int64_t end = 0;
  const auto place = [&](std::int64_t elements) {
    const std::int64_t at = end;
    end += round_up(elements * element(), kAligned);
    return static_cast<std::size_t>(at);
  };
  if (reorders_x_) x_at_ = place(x_pixels() * pitches_.x);
  if (pools_) conv_at_ = place(p.conv_elements());
  if (reorders_y_) y_at_ = place(y_pixels() * pitches_.y);
  if (!pools_) conv_at_ = y_at_;
  bytes_ = static_cast<std::size_t>(end);
}

std::string Passes::text() const {
  std::string text;
  if (reorders_x_ || reorders_y_) {
    const std::int64_t moved = reordered_elements() * element();
    text += pads_x() || pads_y() ? ", nchw reordered to nhwc with padded channels and back ("
                                 : ", nchw reordered to nhwc and back (";
    text += megabytes(moved) + " moved)";
  }
  if (pools_) {
    const std::int64_t moved = (2 * problem_.conv_elements() + problem_.y_elements()) * element();
    text += ", the pool as a pass of its own (" + megabytes(moved) + " moved)";
  }
  return text;
}

/// Estimated time of a reorder that reads and writes `bytes`, of a tensor whose planes have `plane_bytes`. Planes of
/// whole 16 bytes are moved in such accesses. Fitted to 85 layers of f16 and bf16 on an H200; with padded channels it
/// is another kernel.
double reorder_pass_seconds(std::int64_t bytes, std::int64_t plane_bytes, bool pads) {
  constexpr double kPass = 1.6e-6, kWide = 4e12, kWidePadded = 2.5e12, kNarrow = 1.5e12;  // bytes a second
  const double rate = plane_bytes % 16 != 0 ? kNarrow : pads ? kWidePadded : kWide;
  return kPass + static_cast<double>(bytes) / rate;
}

double Passes::seconds() const {
  constexpr double kPoolPass = 3e-6, kPoolBytesPerSecond = 2e12;
  const Conv2dProblem& p = problem_;
  double seconds = 0;
  if (reorders_x_) seconds += reorder_pass_seconds(x_moved() * element(), p.h * p.w * element(), pads_x());
  if (reorders_y_) seconds += reorder_pass_seconds(y_moved() * element(), p.out_h() * p.out_w() * element(), pads_y());
  if (pools_) {
    const auto bytes = static_cast<double>(element() * (p.conv_elements() + p.y_elements()));
    seconds += kPoolPass + bytes / kPoolBytesPerSecond;
  }
  return seconds;
}

void Passes::before(const void* x, unsigned char* workspace, cudaStream_t stream) const {
  if (!reorders_x_) return;
  note_path(Path::reorders_nchw);
  const Conv2dProblem& p = problem_;
  if (pads_x()) {
    nchw_to_padded_nhwc(x, workspace + x_at_, {p.n, p.c, p.h * p.w, pitches_.x, element()}, stream);
  } else {
    nchw_to_nhwc(x, workspace + x_at_, p.n, p.c, p.h * p.w, element(), stream);
  }
}

void Passes::pool(unsigned char* workspace, void* y, cudaStream_t stream) const {
  note_path(Path::reorders_pool);
  const Conv2dProblem& p = problem_;
  const MaxPoolProblem pool{.n = p.n,
                            .c = p.k,
                            .h = p.ho,
                            .w = p.wo,
                            .window_h = p.pool.h,
                            .window_w = p.pool.w,
                            .stride_h = p.pool.stride_h,
                            .stride_w = p.pool.stride_w,
                            .out_h = p.out_h(),
                            .out_w = p.out_w(),
                            .dtype = p.dtype,
                            .nhwc = true};
  max_pool(pool, workspace + conv_at_, reorders_y_ ? workspace + y_at_ : y, stream);
}

void Passes::after(void* y, unsigned char* workspace, cudaStream_t stream) const {
  if (pools_) pool(workspace, y, stream);
  if (!reorders_y_) return;
  const Conv2dProblem& p = problem_;
  if (pads_y()) {
    padded_nhwc_to_nchw(workspace + y_at_, y, {p.n, p.k, p.out_h() * p.out_w(), pitches_.y, element()}, stream);
  } else {
    nhwc_to_nchw(workspace + y_at_, y, p.n, p.k, p.out_h() * p.out_w(), element(), stream);
  }
}

class PlanWithReorders final : public Conv2dPlan {
 public:
  PlanWithReorders(const Conv2dProblem& problem, const PixelPitches& pitches, std::unique_ptr<Conv2dPlan> kernel)
      : passes_(problem, pitches), kernel_(std::move(kernel)) {}

  Conv2dDescription description() const override {
    Conv2dDescription d = kernel_->description();
    d.staging += passes_.text();
    d.fused = d.fused && !passes_.pools();
    return d;
  }
  Packing packing() const override { return kernel_->packing(); }
  std::size_t packed_bytes() const override { return kernel_->packed_bytes(); }
  std::size_t workspace_bytes() const override { return passes_.workspace_bytes() + kernel_->workspace_bytes(); }

  void pack(const void* weights, const WeightStrides& strides, void* packed, cudaStream_t stream) const override {
    kernel_->pack(weights, strides, packed, stream);
  }
  void run(const void* x, const void* packed, const float* bias, void* y, void* workspace,
           cudaStream_t stream) const override {
    auto* const bytes = static_cast<unsigned char*>(workspace);
    passes_.before(x, bytes, stream);
    kernel_->run(passes_.input(x, bytes), packed, bias, passes_.output(y, bytes), bytes + passes_.workspace_bytes(),
                 stream);
    passes_.after(y, bytes, stream);
  }

 private:
  Passes passes_;
  std::unique_ptr<Conv2dPlan> kernel_;
};

}  // namespace

Conv2dProblem without_reorders(const Conv2dProblem& problem) {
  Conv2dProblem inner = problem;
  inner.nhwc = true;
  if (!inner.pool.is_2x2()) inner.pool = {};
  return inner;
}

double reorder_seconds(const Conv2dProblem& problem, const PixelPitches& pitches) {
  return Passes(problem, pitches).seconds();
}

std::unique_ptr<Conv2dPlan> with_reorders(const Conv2dProblem& problem, std::unique_ptr<Conv2dPlan> kernel,
                                          const PixelPitches& pitches) {
  return std::make_unique<PlanWithReorders>(problem, pitches, std::move(kernel));
}

}  // namespace gable::cuda
