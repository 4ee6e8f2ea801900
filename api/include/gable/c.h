/* gable for C and for languages that call C: open a device, plan a convolution or another op, pack its weights once,
 * run it.
 *
 * Every function that can fail returns a status and leaves the places of its results alone on failure;
 * gable_last_error() then has the message of this thread's last failure. Shapes are (N, C, H, W) and
 * (K, C/groups, R, S). Threads may share a device. */
#ifndef GABLE_C_H
#define GABLE_C_H

#include <gable/export.h>

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum gable_status {
  GABLE_OK = 0,
  GABLE_INVALID_ARGUMENT = 1,
  GABLE_UNSUPPORTED = 2,
  GABLE_UNAVAILABLE = 3,
  GABLE_DEVICE_FAILURE = 4,
  GABLE_OUT_OF_MEMORY = 5
} gable_status;

typedef enum gable_dtype { GABLE_F32 = 0, GABLE_F16 = 1, GABLE_BF16 = 2 } gable_dtype;
typedef enum gable_layout { GABLE_NCHW = 0, GABLE_NHWC = 1 } gable_layout;
typedef enum gable_math { GABLE_STRICT = 0, GABLE_TF32 = 1, GABLE_SPLIT3 = 2, GABLE_SPLIT6 = 3 } gable_math;
typedef enum gable_activation { GABLE_NONE = 0, GABLE_RELU = 1, GABLE_TANH = 2 } gable_activation;
typedef enum gable_interpolation {
  GABLE_NEAREST = 0,
  GABLE_BILINEAR = 1,              /**< PyTorch's align_corners=False */
  GABLE_BILINEAR_ALIGN_CORNERS = 2 /**< PyTorch's align_corners=True */
} gable_interpolation;
/** gable/function.h has their formulas. */
typedef enum gable_function {
  GABLE_FUNCTION_RELU = 0,
  GABLE_FUNCTION_RELU6 = 1,
  GABLE_FUNCTION_TANH = 2,
  GABLE_FUNCTION_SIGMOID = 3,
  GABLE_FUNCTION_HARD_SIGMOID = 4,
  GABLE_FUNCTION_SILU = 5,
  GABLE_FUNCTION_HARD_SWISH = 6,
  GABLE_FUNCTION_GELU = 7,
  GABLE_FUNCTION_LEAKY_RELU = 8
} gable_function;

/** Start from gable_conv2d_default(): stride 1, dilation 1, one group, no padding, f32, NCHW, no epilogue. */
typedef struct gable_conv2d {
  int64_t input[4];    /**< (N, C, H, W), also with GABLE_NHWC */
  int64_t weights[4];  /**< (K, C/groups, R, S) */
  int64_t stride[2];   /**< height, width; so are all pairs here, in elements */
  int64_t padding[4];  /**< top, left, bottom, right */
  int64_t dilation[2]; /**< 1: adjacent taps */
  int64_t groups;
  gable_dtype dtype;   /**< of x, weights and y; the bias is f32 */
  gable_layout layout; /**< of x and y */
  gable_math math;
  int bias; /**< 0 or 1 */
  gable_activation activation;
  int64_t pool_window[2]; /**< {0, 0}: no max-pool */
  int64_t pool_stride[2];
} gable_conv2d;

/** c[m,n] = activation(sum over k of a[m,k] * b[k,n] + bias[n]), all row-major; b is packed like weights. */
typedef struct gable_matmul {
  int64_t m, n, k;
  gable_dtype dtype;
  gable_math math;
  int bias; /**< 0 or 1 */
  gable_activation activation;
} gable_matmul;

/** Padding counts as minus infinity; incomplete windows are dropped. */
typedef struct gable_max_pool {
  int64_t input[4];   /**< (N, C, H, W) */
  int64_t window[2];  /**< height, width */
  int64_t stride[2];  /**< height, width */
  int64_t padding[4]; /**< top, left, bottom, right */
  gable_dtype dtype;
  gable_layout layout;
} gable_max_pool;

/** c = activation(a + b), element by element. */
typedef struct gable_add {
  int64_t shape[4]; /**< (N, C, H, W) */
  gable_dtype dtype;
  gable_layout layout;
  gable_activation activation; /**< GABLE_NONE or GABLE_RELU */
} gable_add;

/** y = function(x), element by element. */
typedef struct gable_activate {
  int64_t shape[4]; /**< (N, C, H, W) */
  gable_function function;
  gable_dtype dtype;
  gable_layout layout;
  float slope; /**< of GABLE_FUNCTION_LEAKY_RELU alone, where it must not be 0; PyTorch's default is 0.01f */
} gable_activate;

/** The channels of a, then those of b. */
typedef struct gable_concat {
  int64_t a[4]; /**< (N, C, H, W) */
  int64_t b[4]; /**< the same N, H and W */
  gable_dtype dtype;
  gable_layout layout; /**< of all three tensors */
} gable_concat;

/** Each pixel becomes scale[0] rows of scale[1]: equal ones, or interpolated. */
typedef struct gable_upsample {
  int64_t input[4]; /**< (N, C, H, W) */
  int64_t scale[2]; /**< height, width */
  gable_dtype dtype;
  gable_layout layout;
  gable_interpolation interpolation;
} gable_upsample;

/** y = a * b, element by element. */
typedef struct gable_multiply {
  int64_t a[4]; /**< (N, C, H, W) */
  int64_t b[4]; /**< the same, or (N, C, 1, 1): a factor for each channel of each image */
  gable_dtype dtype;
  gable_layout layout; /**< of all three tensors */
} gable_multiply;

/** y = exp(x) / sum of exp(x) along one dimension. */
typedef struct gable_softmax {
  int64_t shape[4]; /**< (N, C, H, W) */
  int axis;         /**< 0 to 3, or -4 to -1 from the last: 1 is channels, -1 the last */
  gable_dtype dtype;
  gable_layout layout;
} gable_softmax;

/** A result differs from the exact y by at most accumulation * M + rounding * |y| + absolute, with M = sum |x w| +
 * |bias|, and with a max-pool the greatest such M of the window. */
typedef struct gable_error_bound {
  double accumulation;
  double rounding;
  double absolute;
} gable_error_bound;

typedef struct gable_device gable_device;
typedef struct gable_plan gable_plan;
typedef struct gable_packed gable_packed;

GABLE_API const char* gable_version(void);
/** The message of this thread's last failure, valid until its next one; empty before the first. */
GABLE_API const char* gable_last_error(void);

/** `uri` as for gable::open(): "auto", "cpu:avx2?threads=2". Fails with GABLE_UNAVAILABLE or GABLE_INVALID_ARGUMENT. */
GABLE_API gable_status gable_open(const char* uri, gable_device** device);
/** Plans and packed weights of the device stay valid. This function and every gable_..._release() accept null. */
GABLE_API void gable_close(gable_device* device);

/** What gable::devices() says of a device. The texts last as long as their list. Fields may be added at its end. */
typedef struct gable_device_info {
  const char* uri;     /**< what gable_open() takes: "cpu", "cpu:avx2", "cuda:0" */
  const char* backend; /**< "cpu", "onednn", "cuda" */
  const char* name;    /**< the hardware and what drives it */
  const char* reason;  /**< why it can't be opened; null if it can */
  int on_host;         /**< 1: its tensors lie in host memory, 0: in a GPU's; 1 of plugins that can't be loaded */
} gable_device_info;
typedef struct gable_device_list gable_device_list;
/** Every device of every backend, best first, as they are now. Loads all plugins. */
GABLE_API gable_status gable_list_devices(gable_device_list** list);
/** Null behind the last one: for (size_t i = 0; (info = gable_device_list_at(list, i)) != NULL; ++i) */
GABLE_API const gable_device_info* gable_device_list_at(const gable_device_list* list, size_t index);
GABLE_API void gable_device_list_release(gable_device_list* list);

GABLE_API gable_conv2d gable_conv2d_default(void);
/** These nine fail with GABLE_INVALID_ARGUMENT, GABLE_UNSUPPORTED (the message has the attribute at fault, or each
 * kernel's reason) or GABLE_OUT_OF_MEMORY. A plan runs in one thread at a time. */
GABLE_API gable_status gable_plan_conv2d(const gable_device* device, const gable_conv2d* conv, gable_plan** plan);
GABLE_API gable_status gable_plan_matmul(const gable_device* device, const gable_matmul* matmul, gable_plan** plan);
GABLE_API gable_status gable_plan_max_pool(const gable_device* device, const gable_max_pool* pool, gable_plan** plan);
GABLE_API gable_status gable_plan_add(const gable_device* device, const gable_add* add, gable_plan** plan);
GABLE_API gable_status gable_plan_activate(const gable_device* device, const gable_activate* activate,
                                           gable_plan** plan);
GABLE_API gable_status gable_plan_concat(const gable_device* device, const gable_concat* concat, gable_plan** plan);
GABLE_API gable_status gable_plan_upsample(const gable_device* device, const gable_upsample* upsample,
                                           gable_plan** plan);
GABLE_API gable_status gable_plan_multiply(const gable_device* device, const gable_multiply* multiply,
                                           gable_plan** plan);
GABLE_API gable_status gable_plan_softmax(const gable_device* device, const gable_softmax* softmax, gable_plan** plan);
GABLE_API void gable_plan_release(gable_plan* plan);
/** (N, K, Ho, Wo), after the max-pool; of a matmul (m, n, 1, 1). */
GABLE_API gable_status gable_plan_output_shape(const gable_plan* plan, int64_t shape[4]);
/** Copies at most `size` bytes, including the terminating zero. *needed (which may be null) gets the size of the whole
 * text with its zero. */
GABLE_API gable_status gable_plan_explain(const gable_plan* plan, char* text, size_t size, size_t* needed);
/** The kernel's name, cut in the same way. */
GABLE_API gable_status gable_plan_kernel(const gable_plan* plan, char* text, size_t size, size_t* needed);
/** The URI of the device that runs the plan, with its options, cut in the same way: "cpu" where auto chose the CPU. */
GABLE_API gable_status gable_plan_device(const gable_plan* plan, char* text, size_t size, size_t* needed);
/** How many threads of the CPU a run uses: may be fewer than the device has; 0 on a GPU. */
GABLE_API gable_status gable_plan_threads(const gable_plan* plan, int* threads);
/** 1 if bias, activation and max-pool run inside the kernel. */
GABLE_API gable_status gable_plan_fused(const gable_plan* plan, int* fused);
/** How far the results of the plan may be from the exact ones. */
GABLE_API gable_status gable_plan_error_bound(const gable_plan* plan, gable_error_bound* bound);

/** Whether the plan's tensors lie in host memory (1) or in a GPU's (0). */
GABLE_API gable_status gable_plan_on_host(const gable_plan* plan, int* on_host);
/** Plans of one device with equal keys take the same packed weights: mostly plans of one layer with other batches. */
GABLE_API gable_status gable_plan_packing(const gable_plan* plan, uint64_t* key);

/** Call it once, outside the hot loop. `weights` are row-major (K, C/groups, R, S), or (k, n) for a matmul, in the
 * plan's dtype and in the device's memory; the default stream of a GPU reads them. Any number of plans and threads may
 * use the result, which outlives the plan. */
GABLE_API gable_status gable_pack(const gable_plan* plan, const void* weights, gable_packed** packed);
GABLE_API void gable_packed_release(gable_packed* packed);

/** Runs a conv2d or a matmul. x, bias and y lie in the device's memory, and y overlaps nothing that is read. `bias` has
 * K floats, or n; it is null if and only if the description has none. `stream` is the device's native stream, a
 * cudaStream_t for CUDA, or null. On a GPU the call may return before the work is done: synchronize the stream before y
 * is read or anything is freed. After GABLE_DEVICE_FAILURE y has any contents. */
GABLE_API gable_status gable_run(const gable_plan* plan, const void* x, const gable_packed* packed, const float* bias,
                                 void* y, void* stream);
/** The same for ops without weights. The output of an add, activate, multiply or softmax may be exactly an
 * input of its shape. */
GABLE_API gable_status gable_run_max_pool(const gable_plan* plan, const void* x, void* y, void* stream);
GABLE_API gable_status gable_run_add(const gable_plan* plan, const void* a, const void* b, void* c, void* stream);
GABLE_API gable_status gable_run_activate(const gable_plan* plan, const void* x, void* y, void* stream);
GABLE_API gable_status gable_run_concat(const gable_plan* plan, const void* a, const void* b, void* y, void* stream);
GABLE_API gable_status gable_run_upsample(const gable_plan* plan, const void* x, void* y, void* stream);
GABLE_API gable_status gable_run_softmax(const gable_plan* plan, const void* x, void* y, void* stream);
GABLE_API gable_status gable_run_multiply(const gable_plan* plan, const void* a, const void* b, void* y, void* stream);

/** Plans of one op for every batch from `least` to `most`, as gable/batch_plan.h has them: the first dimension, or m.
 * The batch of the description itself counts for nothing. Several threads may use one at the same time if each runs a
 * different batch. The functions fail like their counterparts for one batch, and with GABLE_INVALID_ARGUMENT unless
 * 1 <= least <= most, or for a batch outside of these. */
typedef struct gable_batch_plan gable_batch_plan;
typedef struct gable_batch_weights gable_batch_weights;
GABLE_API gable_status gable_batch_plan_conv2d(const gable_device* device, const gable_conv2d* conv, int64_t least,
                                               int64_t most, gable_batch_plan** plan);
GABLE_API gable_status gable_batch_plan_matmul(const gable_device* device, const gable_matmul* matmul, int64_t least,
                                               int64_t most, gable_batch_plan** plan);
GABLE_API gable_status gable_batch_plan_max_pool(const gable_device* device, const gable_max_pool* pool, int64_t least,
                                                 int64_t most, gable_batch_plan** plan);
GABLE_API gable_status gable_batch_plan_add(const gable_device* device, const gable_add* add, int64_t least,
                                            int64_t most, gable_batch_plan** plan);
GABLE_API gable_status gable_batch_plan_activate(const gable_device* device, const gable_activate* activate,
                                                 int64_t least, int64_t most, gable_batch_plan** plan);
GABLE_API gable_status gable_batch_plan_concat(const gable_device* device, const gable_concat* concat, int64_t least,
                                               int64_t most, gable_batch_plan** plan);
GABLE_API gable_status gable_batch_plan_upsample(const gable_device* device, const gable_upsample* upsample,
                                                 int64_t least, int64_t most, gable_batch_plan** plan);
GABLE_API gable_status gable_batch_plan_multiply(const gable_device* device, const gable_multiply* multiply,
                                                 int64_t least, int64_t most, gable_batch_plan** plan);
GABLE_API gable_status gable_batch_plan_softmax(const gable_device* device, const gable_softmax* softmax, int64_t least,
                                                int64_t most, gable_batch_plan** plan);
GABLE_API void gable_batch_plan_release(gable_batch_plan* plan);
/** Which device and kernel take which batches, a line each; cut as by gable_plan_explain(). */
GABLE_API gable_status gable_batch_plan_explain(const gable_batch_plan* plan, char* text, size_t size, size_t* needed);
/** The plan of one batch, to run it (gable_run_max_pool(), gable_run_add(), ...) or to ask it; gable_plan_release() it.
 * It is made at the first call, and the 64 that were used last are kept. Calls for the same batch give the same plan,
 * which gable_batch_run() uses too: it runs in one thread at a time, whatever it was obtained by. */
GABLE_API gable_status gable_batch_plan_at(const gable_batch_plan* plan, int64_t batch, gable_plan** at);
/** gable_pack() for the plans of all batches. `weights` must stay as they are while the result is used. */
GABLE_API gable_status gable_batch_pack(const gable_batch_plan* plan, const void* weights,
                                        gable_batch_weights** packed);
GABLE_API void gable_batch_weights_release(gable_batch_weights* packed);
/** gable_run() of a conv2d or a matmul, for x and y of this batch. */
GABLE_API gable_status gable_batch_run(const gable_batch_plan* plan, int64_t batch, const void* x,
                                       const gable_batch_weights* packed, const float* bias, void* y, void* stream);

#ifdef __cplusplus
}
#endif

#endif /* GABLE_C_H */
