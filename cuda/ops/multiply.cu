// A thread multiplies kBatch words of 16 bytes that lie a block apart, and loads all of them before it uses the first.
// Where b's factors are whole words (tensors of one shape, NHWC), it loads them as words; else it takes each from the
// caches and steps on from element to element, since a word may hold several channels. Arrays that are not aligned to
// 16 bytes are taken element by element.
#include "cuda/ops/multiply.h"

#include "cuda/common/check.h"
#include "cuda/common/coverage.h"
#include "cuda/common/device_code.cuh"
#include "cuda/ops/words.cuh"

namespace gable::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kBatch = 2;

/// In elements. `count` may end within a word.
template <typename Index>
struct Products {
  Index count, image, run;  // image: repeats * run
};

/// b's element for a's at `i`.
template <typename Index>
__device__ __forceinline__ Index factor_of(const Products<Index>& p, Index i) {
  return i / p.image * p.run + i % p.run;
}

template <typename T>
__device__ __forceinline__ T product_of(T a, T b) {
  return from_f32<T>(to_f32(a) * to_f32(b));
}

/// Factors are words: a run has whole ones.
template <typename T, typename Word, typename Index>
__global__ __launch_bounds__(kThreads) void multiply_words_kernel(Products<Index> p, const T* a, const T* b, T* y) {
  using Elements = Several<T, Word>;
  const Index first = (static_cast<Index>(blockIdx.x) * kThreads * kBatch + threadIdx.x) * Elements::kCount;
  constexpr Index kStep = static_cast<Index>(kThreads) * Elements::kCount;
  Elements values[kBatch], factors[kBatch];
#pragma unroll
  for (int i = 0; i < kBatch; ++i) {
    const Index at = first + i * kStep;
    if (at < p.count) {
      values[i].word = *reinterpret_cast<const Word*>(a + at);
      factors[i].word = *reinterpret_cast<const Word*>(b + factor_of(p, at));
    }
  }
#pragma unroll
  for (int i = 0; i < kBatch; ++i) {
    const Index at = first + i * kStep;
#pragma unroll
    for (int j = 0; j < Elements::kCount; ++j)
      values[i].elements[j] = product_of(values[i].elements[j], factors[i].elements[j]);
    if (at < p.count) *reinterpret_cast<Word*>(y + at) = values[i].word;
  }
}

/// Factors are elements.
template <typename T, typename Word, typename Index>
__global__ __launch_bounds__(kThreads) void multiply_steps_kernel(Products<Index> p, const T* a, const T* b, T* y) {
  using Elements = Several<T, Word>;
  const Index first = (static_cast<Index>(blockIdx.x) * kThreads * kBatch + threadIdx.x) * Elements::kCount;
  constexpr Index kStep = static_cast<Index>(kThreads) * Elements::kCount;
  Elements values[kBatch];
#pragma unroll
  for (int i = 0; i < kBatch; ++i) {
    const Index at = first + i * kStep;
    if (at + Elements::kCount <= p.count) values[i].word = *reinterpret_cast<const Word*>(a + at);
  }
#pragma unroll
  for (int i = 0; i < kBatch; ++i) {
    const Index at = first + i * kStep;
    if (at >= p.count) break;
    const bool whole = at + Elements::kCount <= p.count;
    Index in_image = at % p.image, in_run = in_image % p.run, run = at / p.image * p.run;
#pragma unroll
    for (int j = 0; j < Elements::kCount; ++j) {
      if (at + j < p.count) {
        const T value = product_of(whole ? values[i].elements[j] : a[at + j], b[run + in_run]);
        if (whole) {
          values[i].elements[j] = value;
        } else {
          y[at + j] = value;
        }
      }
      if (++in_run == p.run) in_run = 0;
      if (++in_image == p.image) {
        in_image = 0;
        run += p.run;
      }
    }
    if (whole) *reinterpret_cast<Word*>(y + at) = values[i].word;
  }
}

template <typename T, typename Word, typename Index>
void launch(const MultiplyProblem& problem, const T* a, const T* b, T* y, cudaStream_t stream) {
  constexpr std::int64_t kElements = sizeof(Word) / sizeof(T);
  constexpr std::int64_t kOfBlock = kElements * kThreads * kBatch;
  const std::int64_t image = problem.repeats * problem.run;
  const Products<Index> products{static_cast<Index>(problem.count()), static_cast<Index>(image),
                                 static_cast<Index>(problem.run)};
  const auto blocks = static_cast<unsigned>((problem.count() + kOfBlock - 1) / kOfBlock);
  bool by_words = true;
  if constexpr (kElements > 1) by_words = problem.run % kElements == 0 && address(b) % sizeof(Word) == 0;
  if constexpr (kElements > 1) {
    if (!by_words) multiply_steps_kernel<T, Word><<<blocks, kThreads, 0, stream>>>(products, a, b, y);
  }
  if (by_words) multiply_words_kernel<T, Word><<<blocks, kThreads, 0, stream>>>(products, a, b, y);
  check_launch("multiply");
  if (kElements == 1) return note_path(Path::multiply_elements);
  note_path(by_words ? Path::multiply_words : Path::multiply_steps);
}

template <typename T, typename Index>
void multiply_as(const MultiplyProblem& problem, const void* a, const void* b, void* y, cudaStream_t stream) {
  const auto* left = static_cast<const T*>(a);
  const auto* right = static_cast<const T*>(b);
  auto* to = static_cast<T*>(y);
  if ((address(a) | address(y)) % 16 == 0) return launch<T, uint4, Index>(problem, left, right, to, stream);
  launch<T, T, Index>(problem, left, right, to, stream);
}

}  // namespace

void multiply(const MultiplyProblem& problem, const void* a, const void* b, void* y, cudaStream_t stream) {
  with_type(problem.dtype, [&](auto zero) {
    using T = decltype(zero);
    // With room for the step of the last block.
    if (problem.count() < std::int64_t{1} << 31) return multiply_as<T, std::uint32_t>(problem, a, b, y, stream);
    multiply_as<T, std::uint64_t>(problem, a, b, y, stream);
  });
}

}  // namespace gable::cuda
