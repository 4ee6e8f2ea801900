// See widened.h.
#include "cpu/widened/widened.h"

#include <algorithm>

#include "cpu/common/cache.h"
#include "cpu/common/check.h"
#include "cpu/common/coverage.h"
#include "cpu/common/half.h"
#include "cpu/common/parallel.h"
#include "cpu/common/tiling.h"

namespace gable::cpu {
namespace {

constexpr std::int64_t kFloat = sizeof(float);
constexpr std::int64_t kLeastPixels = 56;  // a few register tiles

Conv2dProblem in_f32(Conv2dProblem p) {
  p.dtype = DType::f32;
  return p;
}

}  // namespace

std::int64_t widened_piece_pixels(const Conv2dProblem& p, int threads) {
  const std::int64_t pixels = p.n * p.ho * p.wo;
  const std::int64_t fit = std::max(kLeastPixels, l2_bytes() / 4 / ((p.c + p.k) * kFloat));
  const std::int64_t share = threads == 1 ? pixels : ceil_div(pixels, kUnitsPerThread * threads);
  return even_part(pixels, std::clamp(share, std::min(kLeastPixels, fit), fit));
}

Conv2dProblem widened_piece(const Conv2dProblem& p, std::int64_t pixels) {
  Conv2dProblem piece = in_f32(p);
  piece.n = piece.h = piece.ho = piece.stride_h = piece.stride_w = 1;
  piece.w = piece.wo = pixels;
  return piece;
}

std::string widened_pointwise_refusal(const Conv2dProblem& p, const Target& target) {
  if (p.dtype == DType::f32) return "f32: it widens f16 and bf16";
  const std::string refusal = pointwise_refusal(in_f32(p), target);
  if (!refusal.empty()) return refusal;
  if (!l2_keeps_weights(p)) return "weights beyond half of L2: each piece would read them again";
  return pointwise_refusal(widened_piece(p, p.n * p.ho * p.wo), target);
}

WidenedPointwisePlan::WidenedPointwisePlan(const Conv2dProblem& problem, const Target& target, int threads)
    : problem_(checked("widened_pointwise", problem, target, threads)),
      target_(&target),
      kernels_(&widened_kernels(target)),
      threads_(threads),
      pixels_(problem.n * problem.ho * problem.wo),
      piece_pixels_(widened_piece_pixels(problem, threads)),
      piece_count_(ceil_div(pixels_, piece_pixels_)),
      workspace_(static_cast<std::size_t>(threads * piece_pixels_ * (problem.c + problem.k))) {
  for (int thread = 0; thread < threads; ++thread) {
    pieces_.emplace_back(widened_piece(problem, piece_pixels_), target, 1);
  }
  pieces_.emplace_back(widened_piece(problem, piece(piece_count_ - 1).pixels), target, 1);
}

WidenedPointwisePlan::Piece WidenedPointwisePlan::piece(std::int64_t index) const {
  const std::int64_t first = index * piece_pixels_;
  return {first, std::min(piece_pixels_, pixels_ - first)};
}

std::size_t WidenedPointwisePlan::workspace_bytes() const {
  std::size_t bytes = workspace_.size() * sizeof(float);
  for (const PointwisePlan& plan : pieces_) bytes += plan.workspace_bytes();
  return bytes;
}

Packing WidenedPointwisePlan::packing() const {
  Packing packing = pieces_.front().packing();
  packing.dtype = problem_.dtype;
  return packing;
}

void WidenedPointwisePlan::pack(const void* weights, const WeightStrides& strides, void* packed) const {
  std::vector<float> wide(static_cast<std::size_t>(problem_.k * problem_.c));
  for (std::int64_t k = 0; k < problem_.k; ++k) {
    for (std::int64_t c = 0; c < problem_.c; ++c) {
      wide[static_cast<std::size_t>(k * problem_.c + c)] =
          element_as_f32(weights, problem_.dtype, k * strides.out + c * strides.in);
    }
  }
  pieces_.front().pack(wide.data(), dense_strides(problem_), packed);
}

/// Pixels that lie together are widened as one run.
void WidenedPointwisePlan::widen(const void* x, const Piece& piece, float* strip) const {
  const Conv2dProblem& p = problem_;
  const WidenFunction to_f32 = kernels_->widen(p.dtype);
  const auto* from = static_cast<const std::uint16_t*>(x);
  if (is_pointwise(p)) return to_f32(from + piece.first * p.c, strip, piece.pixels * p.c);
  const std::int64_t together = p.stride_w == 1 ? p.wo : 1;
  for (std::int64_t done = 0; done < piece.pixels;) {
    const std::int64_t pixel = piece.first + done, row = pixel / p.wo;
    const std::int64_t column = pixel % p.wo, image = row / p.ho;
    const std::int64_t count = std::min(piece.pixels - done, together - (together > 1 ? column : 0));
    const std::int64_t source = ((image * p.h + row % p.ho * p.stride_h) * p.w + column * p.stride_w) * p.c;
    to_f32(from + source, strip + done * p.c, count * p.c);
    done += count;
  }
}

void WidenedPointwisePlan::run(const void* x, const void* packed, const float* bias, void* y) {
  note_path(Path::widened_pointwise, *target_);
  const std::int64_t thread_floats = piece_pixels_ * (problem_.c + problem_.k);
  const NarrowFunction narrow = kernels_->narrow(problem_.dtype);
  parallel_units(threads_, piece_count_, [&](std::int64_t index, int thread) {
    const Piece now = piece(index);
    float* const inputs = workspace_.data() + thread * thread_floats;
    float* const outputs = inputs + piece_pixels_ * problem_.c;
    widen(x, now, inputs);
    const bool last = index + 1 == piece_count_;
    PointwisePlan& plan = last ? pieces_.back() : pieces_[static_cast<std::size_t>(thread)];
    plan.run(inputs, packed, bias, outputs);
    narrow(outputs, static_cast<std::uint16_t*>(y) + now.first * problem_.k, now.pixels * problem_.k);
  });
}

Conv2dDescription WidenedPointwisePlan::description() const {
  Conv2dDescription d = pieces_.front().description();
  d.kernel = "widened_pointwise";
  d.blocking = text(piece_count_) + " pieces of up to " + text(piece_pixels_) + " pixels, each: " + d.blocking;
  d.fusion = "input widened to f32 and output narrowed in L2, " + d.fusion;
  d.threads = threads_;
  return d;
}

}  // namespace gable::cpu
