// See staged.h.
#include "cuda/ops/staged.h"

#include "cuda/ops/pool.h"
#include "cuda/ops/transpose.h"

namespace gable::cuda {
namespace {

constexpr std::int64_t kAligned = 256;

/// Where one channel, or one pixel, makes both layouts the same, nothing needs to move.
bool same_layouts(const Conv2dProblem& p) { return p.c == 1 && p.k == 1; }

std::string megabytes(std::int64_t bytes) { return std::to_string((bytes + 500000) / 1000000) + " MB"; }

}  // namespace

Staging::Staging(const Conv2dProblem& p)
    : problem(p), reorders(!p.nhwc && !same_layouts(p)), pools(!p.pool.none() && !p.pool.is_2x2()) {
  const auto element = static_cast<std::int64_t>(size_of(p.dtype));
  std::int64_t end = 0;
  const auto place = [&](std::int64_t elements) {
    const std::int64_t at = end;
    end += round_up(elements * element, kAligned);
    return static_cast<std::size_t>(at);
  };
  if (reorders) x_at = place(p.x_elements());
  if (pools) conv_at = place(p.conv_elements());
  if (reorders) y_at = place(p.y_elements());
  if (!pools) conv_at = y_at;
  bytes = static_cast<std::size_t>(end);
}

Conv2dProblem Staging::inner() const {
  Conv2dProblem p = problem;
  p.nhwc = true;
  if (pools) p.pool = {};
  return p;
}

std::string Staging::text() const {
  const auto element = static_cast<std::int64_t>(size_of(problem.dtype));
  std::string text;
  if (reorders) {
    const std::int64_t moved = 2 * (problem.x_elements() + problem.y_elements()) * element;
    text += ", nchw reordered to nhwc and back (" + megabytes(moved) + " moved)";
  }
  if (pools) {
    const std::int64_t moved = (2 * problem.conv_elements() + problem.y_elements()) * element;
    text += ", the pool as a pass of its own (" + megabytes(moved) + " moved)";
  }
  return text;
}

void Staging::before(const void* x, void* workspace, cudaStream_t stream) const {
  if (!reorders) return;
  transpose(x, static_cast<unsigned char*>(workspace) + x_at, problem.n, problem.c, problem.h * problem.w,
            static_cast<int>(size_of(problem.dtype)), stream);
}

void Staging::after(void* y, void* workspace, cudaStream_t stream) const {
  auto* base = static_cast<unsigned char*>(workspace);
  if (pools) {
    const MaxPoolProblem pool{.n = problem.n,
                              .c = problem.k,
                              .h = problem.ho,
                              .w = problem.wo,
                              .window_h = problem.pool.h,
                              .window_w = problem.pool.w,
                              .stride_h = problem.pool.stride_h,
                              .stride_w = problem.pool.stride_w,
                              .out_h = problem.out_h(),
                              .out_w = problem.out_w(),
                              .dtype = problem.dtype,
                              .nhwc = true};
    max_pool(pool, base + conv_at, reorders ? base + y_at : y, stream);
  }
  if (reorders) {
    transpose(base + y_at, y, problem.n, problem.out_h() * problem.out_w(), problem.k,
              static_cast<int>(size_of(problem.dtype)), stream);
  }
}

}  // namespace gable::cuda
