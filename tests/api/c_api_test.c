/* The C API, used from C: a convolution by hand, and a status with a message for each kind of mistake. */
#include <gable/c.h>

#include <stddef.h>
#include <stdio.h>
#include <string.h>

static int failures = 0;

static void check(int condition, const char* what) {
  if (condition) return;
  printf("FAILED: %s (last error: %s)\n", what, gable_last_error());
  ++failures;
}

/* What a network needs beside convolutions: a pool with padding, a residual in place, a fully connected layer. */
static void check_other_ops(const gable_device* device) {
  const gable_max_pool pool = {{1, 1, 2, 2}, {2, 2}, {2, 2}, {1, 1, 1, 1}, GABLE_F32, GABLE_NCHW};
  gable_add add = {{1, 1, 2, 2}, GABLE_F32, GABLE_NCHW, GABLE_NONE};
  gable_matmul matmul = {2, 1, 2, GABLE_F32, GABLE_STRICT, 1, GABLE_RELU};
  gable_plan* plan = NULL;
  int64_t shape[4] = {0, 0, 0, 0};
  const float x[4] = {-1, 2, -3, 4};
  float y[4] = {0, 0, 0, 0};

  check(gable_plan_max_pool(device, &pool, &plan) == GABLE_OK, "a max-pool is planned");
  check(gable_plan_output_shape(plan, shape) == GABLE_OK && shape[2] == 2 && shape[3] == 2, "its output is 2x2");
  check(gable_run_max_pool(plan, x, y, NULL) == GABLE_OK && y[0] == -1 && y[3] == 4, "padding is no maximum");
  gable_packed* packed = NULL;
  check(gable_pack(plan, x, &packed) == GABLE_INVALID_ARGUMENT && packed == NULL, "a max-pool has no weights");
  check(strstr(gable_last_error(), "gable_run_max_pool") != NULL, "the message says what runs it");
  gable_plan_release(plan);

  check(gable_plan_add(device, &add, &plan) == GABLE_OK, "an add is planned");
  check(gable_run_add(plan, x, y, y, NULL) == GABLE_OK && y[0] == -2 && y[3] == 8, "it adds in place");
  gable_plan_release(plan);
  add.activation = GABLE_RELU;
  check(gable_plan_add(device, &add, &plan) == GABLE_OK, "an add with relu is planned");
  check(gable_run_add(plan, x, y, y, NULL) == GABLE_OK && y[0] == 0 && y[3] == 12, "negative sums become zero");
  gable_plan_release(plan);
  add.activation = GABLE_TANH;
  check(gable_plan_add(device, &add, &plan) == GABLE_INVALID_ARGUMENT, "an add has no tanh");

  gable_activate activate = {{1, 1, 2, 2}, GABLE_FUNCTION_RELU6, GABLE_F32, GABLE_NCHW, 0};
  check(gable_plan_activate(device, &activate, &plan) == GABLE_OK, "an activate is planned");
  float large[4] = {-1, 2, 7, 4};
  check(gable_run_activate(plan, large, large, NULL) == GABLE_OK && large[0] == 0 && large[1] == 2 && large[2] == 6,
        "it runs in place");
  check(gable_run_upsample(plan, x, y, NULL) == GABLE_INVALID_ARGUMENT, "it is no upsample");
  gable_plan_release(plan);
  activate.function = GABLE_FUNCTION_LEAKY_RELU;
  check(gable_plan_activate(device, &activate, &plan) == GABLE_INVALID_ARGUMENT, "a leaky relu needs a slope");
  check(strstr(gable_last_error(), "0.01") != NULL, "the message has a usual one");
  activate.slope = 0.5f;
  large[1] = -4;
  check(gable_plan_activate(device, &activate, &plan) == GABLE_OK, "with a slope it is planned");
  check(gable_run_activate(plan, large, large, NULL) == GABLE_OK && large[1] == -2 && large[2] == 6, "it leaks");
  gable_plan_release(plan);
  activate.function = (gable_function)9;
  check(gable_plan_activate(device, &activate, &plan) == GABLE_INVALID_ARGUMENT, "there is no tenth function");

  gable_concat concat = {{1, 1, 2, 2}, {1, 2, 2, 2}, GABLE_F32, GABLE_NCHW};
  const float two[8] = {10, 11, 12, 13, 14, 15, 16, 17};
  float all[16];
  check(gable_plan_concat(device, &concat, &plan) == GABLE_OK, "a concat is planned");
  check(gable_plan_output_shape(plan, shape) == GABLE_OK && shape[1] == 3 && shape[3] == 2,
        "its output has 3 channels");
  check(gable_run_concat(plan, x, two, all, NULL) == GABLE_OK && all[3] == 4 && all[4] == 10 && all[11] == 17,
        "a's channels come first");
  gable_plan_release(plan);
  concat.b[3] = 1;
  check(gable_plan_concat(device, &concat, &plan) == GABLE_INVALID_ARGUMENT, "images of two sizes can't be joined");

  gable_upsample upsample = {{1, 1, 2, 2}, {2, 2}, GABLE_F32, GABLE_NCHW, GABLE_NEAREST};
  check(gable_plan_upsample(device, &upsample, &plan) == GABLE_OK, "an upsample is planned");
  check(
      gable_run_upsample(plan, x, all, NULL) == GABLE_OK && all[1] == -1 && all[5] == -1 && all[2] == 2 && all[15] == 4,
      "each pixel becomes four");
  gable_plan_release(plan);
  upsample.interpolation = GABLE_BILINEAR_ALIGN_CORNERS;
  check(gable_plan_upsample(device, &upsample, &plan) == GABLE_OK, "a bilinear upsample is planned");
  check(gable_run_upsample(plan, x, all, NULL) == GABLE_OK && all[0] == -1 && all[3] == 2 && all[12] == -3 &&
            all[1] < 1e-6f && all[1] > -1e-6f && all[15] == 4,
        "the corners stay");
  gable_plan_release(plan);
  upsample.interpolation = (gable_interpolation)3;
  check(gable_plan_upsample(device, &upsample, &plan) == GABLE_INVALID_ARGUMENT, "there is no fourth interpolation");

  gable_multiply multiply = {{1, 2, 1, 2}, {1, 2, 1, 1}, GABLE_F32, GABLE_NCHW};
  check(gable_plan_multiply(device, &multiply, &plan) == GABLE_OK, "a product is planned");
  check(gable_run_multiply(plan, x, two, all, NULL) == GABLE_OK && all[0] == x[0] * two[0] && all[3] == x[3] * two[1],
        "each channel has its factor");
  check(gable_run_concat(plan, x, two, all, NULL) == GABLE_INVALID_ARGUMENT, "a product is no concat");
  gable_plan_release(plan);
  multiply.b[1] = 1;
  check(gable_plan_multiply(device, &multiply, &plan) == GABLE_INVALID_ARGUMENT, "each channel must have one");
  check(strstr(gable_last_error(), "1x2x1x1") != NULL, "the message says which shape b must have");

  gable_softmax softmax = {{1, 1, 2, 2}, -1, GABLE_F32, GABLE_NCHW};
  const float logits[4] = {0, 0, 1, 100};
  check(gable_plan_softmax(device, &softmax, &plan) == GABLE_OK, "a softmax is planned");
  check(gable_run_softmax(plan, logits, all, NULL) == GABLE_OK && all[0] == 0.5f && all[1] == 0.5f && all[3] == 1,
        "rows sum to 1");
  gable_plan_release(plan);
  softmax.axis = 4;
  check(gable_plan_softmax(device, &softmax, &plan) == GABLE_INVALID_ARGUMENT, "there is no fifth dimension");
  check(strstr(gable_last_error(), "between -4 and 3") != NULL, "the message has the dimensions");

  uint64_t keys[2] = {0, 1};
  check(gable_plan_matmul(device, &matmul, &plan) == GABLE_OK, "a matmul is planned");
  check(gable_plan_output_shape(plan, shape) == GABLE_OK && shape[0] == 2 && shape[1] == 1 && shape[2] == 1,
        "its output is 2x1x1x1");
  const float b[2] = {1, 2}, bias[1] = {0.5f};
  check(gable_pack(plan, b, &packed) == GABLE_OK, "b packs");
  check(gable_run(plan, x, packed, bias, y, NULL) == GABLE_OK && y[0] == 3.5f && y[1] == 5.5f, "it multiplies");
  check(gable_plan_packing(plan, &keys[0]) == GABLE_OK, "its packing has a key");
  gable_plan_release(plan);

  matmul.m = 1;
  check(gable_plan_matmul(device, &matmul, &plan) == GABLE_OK, "one row is planned");
  check(gable_plan_packing(plan, &keys[1]) == GABLE_OK && keys[0] == keys[1], "another batch has the same key");
  check(gable_run(plan, x, packed, bias, y, NULL) == GABLE_OK && y[0] == 3.5f, "and takes the same packed weights");
  gable_plan_release(plan);
  gable_packed_release(packed);
}

/* Batches that change: one plan for a range, with weights that are packed once. */
static void check_batches(const gable_device* device) {
  gable_matmul matmul = {1, 1, 2, GABLE_F32, GABLE_STRICT, 1, GABLE_NONE};
  const gable_add add = {{1, 1, 1, 2}, GABLE_F32, GABLE_NCHW, GABLE_RELU};
  gable_max_pool pool = {{1, 1, 2, 2}, {2, 2}, {2, 2}, {0, 0, 0, 0}, GABLE_F32, GABLE_NCHW};
  gable_batch_plan *products = NULL, *sums = NULL, *pools = NULL;
  gable_batch_weights* packed = NULL;
  gable_plan* at = NULL;
  const float x[6] = {1, 2, 3, -4, 5, 6}, b[2] = {10, 1}, bias[1] = {0.5f};
  float y[6] = {0, 0, 0, 0, 0, 0};
  char text[64];
  size_t needed = 0;
  int64_t shape[4] = {0, 0, 0, 0};

  check(gable_batch_plan_matmul(device, &matmul, 1, 3, &products) == GABLE_OK, "a range of matmuls is planned");
  check(gable_batch_pack(products, b, &packed) == GABLE_OK, "its weights pack once");
  check(gable_batch_run(products, 3, x, packed, bias, y, NULL) == GABLE_OK && y[0] == 12.5f && y[1] == 26.5f &&
            y[2] == 56.5f,
        "three rows");
  check(gable_batch_run(products, 1, x, packed, bias, y, NULL) == GABLE_OK && y[0] == 12.5f, "and one");
  check(gable_batch_run(products, 4, x, packed, bias, y, NULL) == GABLE_INVALID_ARGUMENT, "not four");
  check(strstr(gable_last_error(), "takes 1 to 3") != NULL, "the message has the range");
  check(gable_batch_plan_explain(products, text, sizeof text, &needed) == GABLE_OK && strstr(text, "batches 1 to 3"),
        "it says what takes which batches");
  check(gable_batch_plan_at(products, 2, &at) == GABLE_OK && gable_plan_output_shape(at, shape) == GABLE_OK &&
            shape[0] == 2,
        "a batch has a plan");
  gable_batch_plan_release(products);
  check(gable_plan_output_shape(at, shape) == GABLE_OK, "which outlives the range's");
  gable_plan_release(at);

  check(gable_batch_plan_add(device, &add, 1, 64, &sums) == GABLE_OK, "a range of adds is planned");
  check(gable_batch_plan_at(sums, 3, &at) == GABLE_OK && gable_run_add(at, x, x, y, NULL) == GABLE_OK, "it adds");
  check(y[2] == 6 && y[3] == 0 && y[5] == 12, "three pairs, with relu");
  check(gable_batch_run(sums, 3, x, packed, NULL, y, NULL) == GABLE_INVALID_ARGUMENT, "an add has no weights");
  gable_plan_release(at);
  gable_batch_plan_release(sums);
  gable_batch_weights_release(packed);

  check(gable_batch_plan_max_pool(device, &pool, 1, 2, &pools) == GABLE_OK, "a range of pools is planned");
  at = NULL;
  check(gable_batch_plan_at(pools, 0, &at) == GABLE_INVALID_ARGUMENT && at == NULL, "there is no batch of none");
  check(gable_batch_plan_at(pools, 1, &at) == GABLE_OK && gable_run_max_pool(at, x, y, NULL) == GABLE_OK && y[0] == 3,
        "it pools");
  gable_plan_release(at);
  gable_batch_plan_release(pools);
  check(gable_batch_plan_max_pool(device, &pool, 2, 1, &pools) == GABLE_INVALID_ARGUMENT, "a range runs upwards");
  gable_batch_plan_release(NULL);
  gable_batch_weights_release(NULL);
}

/* A list's elements are the library's: programs compiled with an older header read the fields at these places. */
static void check_layout(void) {
  const size_t pointer = sizeof(void*);
  check(offsetof(gable_device_info, uri) == 0, "the URI is first");
  check(offsetof(gable_device_info, backend) == pointer, "the backend is second");
  check(offsetof(gable_device_info, name) == 2 * pointer, "the name is third");
  check(offsetof(gable_device_info, reason) == 3 * pointer, "the reason is fourth");
  check(offsetof(gable_device_info, on_host) == 4 * pointer, "where tensors lie is fifth");
}

/* A menu of devices: what each is, and why one can't be opened (tests/backends has plugins that can't). */
static void check_devices(void) {
  gable_device_list* list = NULL;
  const gable_device_info* info = NULL;
  size_t count = 0;
  int cpus = 0;
  check(gable_list_devices(NULL) == GABLE_INVALID_ARGUMENT, "a null list is refused");
  check(gable_list_devices(&list) == GABLE_OK, "the devices are listed");
  for (; (info = gable_device_list_at(list, count)) != NULL; ++count) {
    gable_device* device = NULL;
    check(info->uri != NULL && info->backend != NULL && info->name != NULL, "a device has its texts");
    check(gable_open(info->uri, &device) == GABLE_OK || info->reason != NULL, "one without a reason opens");
    gable_close(device);
    check(strcmp(info->backend, "cuda") != 0 || info->on_host == 0,
          "tensors of CUDA lie in a GPU's memory, also of none");
    if (strcmp(info->uri, "cpu") == 0 && strcmp(info->backend, "cpu") == 0 && info->on_host == 1) ++cpus;
  }
  check(cpus == 1, "the CPU is among them, once");
  check(gable_device_list_at(list, count + 1) == NULL && gable_device_list_at(NULL, 0) == NULL, "there is no other");
  gable_device_list_release(list);
  gable_device_list_release(NULL);
}

int main(void) {
  check_layout();
  check_devices();
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
  check(gable_plan_device(plan, text, sizeof text, &needed) == GABLE_OK && strncmp(text, "reference", 9) == 0,
        "the device that runs it has its URI");
  int threads = -1;
  check(gable_plan_threads(plan, &threads) == GABLE_OK && threads >= 1, "a run on the CPU uses threads");
  check(gable_plan_threads(plan, NULL) == GABLE_INVALID_ARGUMENT, "a null count is refused");
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

  check_other_ops(device);
  check_batches(device);
  check(gable_run_add(plan, x, x, y, NULL) == GABLE_INVALID_ARGUMENT, "a convolution is no add");
  int on_host = -1;
  check(gable_plan_on_host(plan, &on_host) == GABLE_OK && on_host == 1, "the reference works on the host");

  gable_packed_release(packed);
  gable_close(device);
  check(gable_plan_output_shape(plan, shape) == GABLE_OK, "a plan outlives its device's handle");
  gable_plan_release(plan);
  gable_plan_release(NULL);
  printf("%s\n", failures == 0 ? "all checks passed" : "some checks failed");
  return failures;
}
