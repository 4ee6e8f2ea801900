/* The C API, used from C: a convolution by hand, and a status with a message for each kind of mistake. */
#include <gable/c.h>

#include <stdio.h>
#include <string.h>

static int failures = 0;

static void check(int condition, const char* what) {
  if (condition) return;
  printf("FAILED: %s (last error: %s)\n", what, gable_last_error());
  ++failures;
}

int main(void) {
  gable_device* device = NULL;
  check(gable_open("reference", &device) == GABLE_OK, "the reference opens");
  check(gable_open("nosuch", &device) == GABLE_UNAVAILABLE, "an unknown backend is unavailable");
  check(strstr(gable_last_error(), "nosuch") != NULL, "the message names it");
  check(gable_open(NULL, &device) == GABLE_INVALID_ARGUMENT, "a null URI is refused");

  gable_conv2d conv = gable_conv2d_default();
  const int64_t input[4] = {1, 1, 3, 3};
  const int64_t weights[4] = {1, 1, 2, 2};
  memcpy(conv.input, input, sizeof input);
  memcpy(conv.weights, weights, sizeof weights);
  conv.bias = 1;
  conv.pool_window[0] = conv.pool_window[1] = 2;
  conv.pool_stride[0] = conv.pool_stride[1] = 2;

  gable_plan* plan = NULL;
  check(gable_plan_conv2d(device, &conv, &plan) == GABLE_OK, "the plan is made");
  int64_t shape[4] = {0, 0, 0, 0};
  check(gable_plan_output_shape(plan, shape) == GABLE_OK && shape[2] == 1 && shape[3] == 1, "its output is 1x1x1x1");
  char text[16];
  size_t needed = 0;
  check(gable_plan_explain(plan, text, sizeof text, &needed) == GABLE_OK, "it explains itself");
  check(needed > sizeof text && strlen(text) == sizeof text - 1, "a long text is cut and its size told");
  check(gable_plan_kernel(plan, text, sizeof text, &needed) == GABLE_OK && strlen(text) + 1 == needed,
        "its kernel has a name");
  int fused = -1;
  check(gable_plan_fused(plan, &fused) == GABLE_OK && fused == 1, "it pools inside its kernel");
  gable_error_bound bound = {-1, -1, -1};
  check(gable_plan_error_bound(plan, &bound) == GABLE_OK && bound.accumulation > 0 && bound.accumulation < 1e-5 &&
            bound.rounding >= 0 && bound.absolute >= 0,
        "f32 accumulation has its bound");
  check(gable_plan_fused(plan, NULL) == GABLE_INVALID_ARGUMENT, "a null result is refused");

  const float x[9] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
  const float w[4] = {1, 0, 0, 1};
  const float bias[1] = {0.5f};
  float y[1] = {-1};
  gable_packed* packed = NULL;
  check(gable_pack(plan, w, &packed) == GABLE_OK, "weights pack");
  check(gable_run(plan, x, packed, NULL, y, NULL) == GABLE_INVALID_ARGUMENT, "a missing bias is refused");
  check(y[0] == -1, "a refused run leaves the output alone");
  check(gable_run(plan, x, packed, bias, y, NULL) == GABLE_OK && y[0] == 14.5f, "5 + 9 + 0.5");

  conv.groups = 3;
  gable_plan* none = NULL;
  check(gable_plan_conv2d(device, &conv, &none) == GABLE_INVALID_ARGUMENT && none == NULL, "wrong groups are refused");
  conv.groups = 1;
  conv.dtype = (gable_dtype)9;
  check(gable_plan_conv2d(device, &conv, &none) == GABLE_INVALID_ARGUMENT, "a dtype that is none is refused");
  conv.dtype = GABLE_F32;
  conv.math = GABLE_TF32;
  check(gable_plan_conv2d(device, &conv, &none) == GABLE_UNSUPPORTED, "the reference has no tf32");

  gable_packed_release(packed);
  gable_close(device);
  check(gable_plan_output_shape(plan, shape) == GABLE_OK, "a plan outlives its device's handle");
  gable_plan_release(plan);
  gable_plan_release(NULL);
  printf("%s\n", failures == 0 ? "all checks passed" : "some checks failed");
  return failures;
}
