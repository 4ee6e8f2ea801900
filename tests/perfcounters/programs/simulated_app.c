/* Programs of known W and Q, as a user writes and compiles them (-O2 -mavx2 -mfma), for the simulation. The first
 * argument says which. */
#include <immintrin.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gable/region.h"

enum { kElements = 1 << 16 };

static double *a, *b, *c;

static void fill(void) {
  for (int i = 0; i < kElements; i++) {
    a[i] = 0;
    b[i] = i;
    c[i] = 1;
  }
}

/* 2 FLOP an element, in registers of 256 bits. */
static void triad(void) {
  const __m256d s = _mm256_set1_pd(3);
  for (int i = 0; i < kElements; i += 4)
    _mm256_store_pd(a + i, _mm256_fmadd_pd(s, _mm256_load_pd(c + i), _mm256_load_pd(b + i)));
}

/* 2 FLOP an element. */
static void daxpy(void) {
  for (int i = 0; i < kElements; i++) a[i] += 3 * b[i];
}

enum { kSide = 40 };

/* 8 FLOP for each of 38^3 points. */
static void stencil(void) {
  enum { kRow = kSide, kPlane = kSide * kSide };
  for (int i = 1; i < kSide - 1; i++)
    for (int j = 1; j < kSide - 1; j++) {
      const double* in = b + i * kPlane + j * kRow;
      double* out = a + i * kPlane + j * kRow;
      for (int k = 1; k < kSide - 1; k++)
        out[k] =
            0.5 * in[k] + 0.1 * (in[k - 1] + in[k + 1] + in[k - kRow] + in[k + kRow] + in[k - kPlane] + in[k + kPlane]);
    }
}

enum { kMatrix = 80, kBlock = 16 };

static void naive_product(void) {
  for (int i = 0; i < kMatrix; i++)
    for (int j = 0; j < kMatrix; j++) {
      double all = 0;
      for (int k = 0; k < kMatrix; k++) all += b[i * kMatrix + k] * c[k * kMatrix + j];
      a[i * kMatrix + j] = all;
    }
}

static void blocked_product(void) {
  for (int ii = 0; ii < kMatrix; ii += kBlock)
    for (int kk = 0; kk < kMatrix; kk += kBlock)
      for (int jj = 0; jj < kMatrix; jj += kBlock)
        for (int i = ii; i < ii + kBlock; i++)
          for (int k = kk; k < kk + kBlock; k++)
            for (int j = jj; j < jj + kBlock; j++) a[i * kMatrix + j] += b[i * kMatrix + k] * c[k * kMatrix + j];
}

/* 1 FLOP an element, scalar. */
static double sum(int count) {
  double all = 0;
  for (int i = 0; i < count; i++) all += b[i];
  return all;
}

static void regions(void) {
  gable_region_begin("fill");
  fill();
  gable_region_end();
  for (int i = 0; i < 2; i++) {
    gable_region_begin("outer");
    triad();
    gable_region_begin("inner");
    triad();
    gable_region_end();
    gable_region_end();
  }
  for (int i = 0; i < 1200; i++) {
    gable_region_begin("often");
    printf("%g\n", sum(256));
    gable_region_end();
  }
}

int main(int argc, char** argv) {
  const char* what = argc > 1 ? argv[1] : "";
  a = aligned_alloc(64, sizeof(double) * kElements);
  b = aligned_alloc(64, sizeof(double) * kElements);
  c = aligned_alloc(64, sizeof(double) * kElements);
  if (strcmp(what, "regions") == 0) {
    regions();
    return 0;
  }
  fill();
  if (strcmp(what, "triad") == 0) triad();
  if (strcmp(what, "daxpy") == 0) daxpy();
  if (strcmp(what, "stencil") == 0) stencil();
  if (strcmp(what, "naive") == 0) naive_product();
  if (strcmp(what, "blocked") == 0) blocked_product();
  if (strcmp(what, "fork") == 0) {
    triad();
    if (fork() == 0) {
      triad();
      exit(0);
    }
    int status = 0;
    wait(&status);
  }
  if (strcmp(what, "leave") == 0) {
    triad();
    _exit(7);
  }
  if (strcmp(what, "exec") == 0) {
    gable_region_begin("before");
    triad();
    gable_region_end();
    execl(argv[0], argv[0], "triad", (char*)NULL);
  }
  if (strcmp(what, "avx512") == 0) __asm__ volatile(".byte 0x62, 0xf2, 0x7d, 0x48, 0x7c, 0xc0"); /* vpbroadcastd */
  if (strcmp(what, "endless") == 0)
    for (;;) triad();
  printf("%g\n", a[5] + sum(1));
  return 0;
}
