/* A convolution with relu and a fused max-pool, by the C API: what first_conv.cpp does. */
#include <gable/c.h>

#include <stdio.h>
#include <string.h>

static float x[64 * 56 * 56], weights[128 * 64 * 3 * 3], y[128 * 28 * 28];

static int fail(void) {
  fprintf(stderr, "first_conv: %s\n", gable_last_error());
  return 1;
}

int main(void) {
  const int64_t input[4] = {1, 64, 56, 56}, filters[4] = {128, 64, 3, 3};
  gable_device* device = NULL;
  gable_plan* plan = NULL;
  gable_packed* packed = NULL;
  gable_conv2d conv = gable_conv2d_default(); /* f32, NCHW, stride 1, no padding, no epilogue */
  memcpy(conv.input, input, sizeof input);
  memcpy(conv.weights, filters, sizeof filters);
  for (int side = 0; side < 4; ++side) conv.padding[side] = 1;
  for (int i = 0; i < 2; ++i) conv.pool_window[i] = conv.pool_stride[i] = 2;
  conv.activation = GABLE_RELU;
  for (size_t i = 0; i < sizeof x / sizeof *x; ++i) x[i] = 1.0F;
  for (size_t i = 0; i < sizeof weights / sizeof *weights; ++i) weights[i] = 1.0F / 64;

  if (gable_open("auto?memory=host", &device)) return fail();
  if (gable_plan_conv2d(device, &conv, &plan)) return fail();
  if (gable_pack(plan, weights, &packed)) return fail();        /* once, outside the hot loop */
  if (gable_run(plan, x, packed, NULL, y, NULL)) return fail(); /* no bias, the default stream */
  printf("y[0] = %g\n", y[0]);

  gable_packed_release(packed);
  gable_plan_release(plan);
  gable_close(device);
  return 0;
}
