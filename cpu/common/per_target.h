// Which instruction sets the kernels are compiled for, and how a kernel file turns its per-target functions into a
// table that a plan picks from. Highway's own HWY_DYNAMIC_DISPATCH follows one process-wide choice; here two plans of
// one process may run different targets, so a target is an argument. Include before any Highway header.
//
// Not compiled: SSSE3 (SSE4's twin), the AVX3 variants beyond HWY_AVX3 (bits below it: nothing here uses what they
// add), SVE (its vectors have no size at compile time and cannot form the accumulator arrays; NEON serves those CPUs).
#pragma once

#define HWY_DISABLED_TARGETS ((HWY_AVX3 - 1) | HWY_SSSE3 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)

#include <hwy/detect_targets.h>

// GABLE_CPU_FOR_EACH_TARGET(X) expands X(id, namespace, name, ...) for every compiled target, best first.
#if HWY_TARGETS & HWY_AVX3
#define GABLE_CPU_AVX3(X, ...) X(HWY_AVX3, N_AVX3, "avx512" __VA_OPT__(, ) __VA_ARGS__)
#else
#define GABLE_CPU_AVX3(X, ...)
#endif
#if HWY_TARGETS & HWY_AVX2
#define GABLE_CPU_AVX2(X, ...) X(HWY_AVX2, N_AVX2, "avx2" __VA_OPT__(, ) __VA_ARGS__)
#else
#define GABLE_CPU_AVX2(X, ...)
#endif
#if HWY_TARGETS & HWY_SSE4
#define GABLE_CPU_SSE4(X, ...) X(HWY_SSE4, N_SSE4, "sse4" __VA_OPT__(, ) __VA_ARGS__)
#else
#define GABLE_CPU_SSE4(X, ...)
#endif
#if defined(HWY_SSE2) && (HWY_TARGETS & HWY_SSE2)
#define GABLE_CPU_SSE2(X, ...) X(HWY_SSE2, N_SSE2, "sse2" __VA_OPT__(, ) __VA_ARGS__)
#else
#define GABLE_CPU_SSE2(X, ...)
#endif
#if defined(HWY_NEON_BF16) && (HWY_TARGETS & HWY_NEON_BF16)
#define GABLE_CPU_NEON_BF16(X, ...) X(HWY_NEON_BF16, N_NEON_BF16, "neon_bf16" __VA_OPT__(, ) __VA_ARGS__)
#else
#define GABLE_CPU_NEON_BF16(X, ...)
#endif
#if HWY_TARGETS & HWY_NEON
#define GABLE_CPU_NEON(X, ...) X(HWY_NEON, N_NEON, "neon" __VA_OPT__(, ) __VA_ARGS__)
#else
#define GABLE_CPU_NEON(X, ...)
#endif
#if defined(HWY_NEON_WITHOUT_AES) && (HWY_TARGETS & HWY_NEON_WITHOUT_AES)
#define GABLE_CPU_NEON_WITHOUT_AES(X, ...) \
  X(HWY_NEON_WITHOUT_AES, N_NEON_WITHOUT_AES, "neon_base" __VA_OPT__(, ) __VA_ARGS__)
#else
#define GABLE_CPU_NEON_WITHOUT_AES(X, ...)
#endif
#if HWY_TARGETS & HWY_EMU128
#define GABLE_CPU_EMU128(X, ...) X(HWY_EMU128, N_EMU128, "emu128" __VA_OPT__(, ) __VA_ARGS__)
#else
#define GABLE_CPU_EMU128(X, ...)
#endif
#if HWY_TARGETS & HWY_SCALAR
#define GABLE_CPU_SCALAR(X, ...) X(HWY_SCALAR, N_SCALAR, "scalar" __VA_OPT__(, ) __VA_ARGS__)
#else
#define GABLE_CPU_SCALAR(X, ...)
#endif
#define GABLE_CPU_FOR_EACH_TARGET(X, ...)                  \
  GABLE_CPU_AVX3(X __VA_OPT__(, ) __VA_ARGS__)             \
  GABLE_CPU_AVX2(X __VA_OPT__(, ) __VA_ARGS__)             \
  GABLE_CPU_SSE4(X __VA_OPT__(, ) __VA_ARGS__)             \
  GABLE_CPU_SSE2(X __VA_OPT__(, ) __VA_ARGS__)             \
  GABLE_CPU_NEON_BF16(X __VA_OPT__(, ) __VA_ARGS__)        \
  GABLE_CPU_NEON(X __VA_OPT__(, ) __VA_ARGS__)             \
  GABLE_CPU_NEON_WITHOUT_AES(X __VA_OPT__(, ) __VA_ARGS__) \
  GABLE_CPU_EMU128(X __VA_OPT__(, ) __VA_ARGS__)           \
  GABLE_CPU_SCALAR(X __VA_OPT__(, ) __VA_ARGS__)

// GABLE_CPU_RETURN_OF(target, call), after the last per-target namespace of a kernel file, returns `call` as the
// namespace of `target` has it: a table of functions, say.
#define GABLE_CPU_RETURN_IF(target_id, ns, name, target, call) \
  if ((target).id == (target_id)) return ns::call;
#define GABLE_CPU_RETURN_OF(target, call)                      \
  GABLE_CPU_FOR_EACH_TARGET(GABLE_CPU_RETURN_IF, target, call) \
  return HWY_STATIC_DISPATCH(call)
