// See run_conv2d.h.
#include "bench/cli/run_conv2d.h"

#include <fmt/format.h>
#include <gable/error.h>

#include "bench/cli/npy.h"
#include "bench/common/files.h"
#include "bench/measure/op_runner.h"
#include "bench/workloads/problem.h"

namespace gable::bench {
namespace {

NpyShape npy_shape(const Shape& shape, Layout layout) {
  NpyShape dims;
  for (std::size_t i = 0; i < shape.rank(); ++i) dims.push_back(shape[i]);
  if (layout == Layout::nhwc && shape.rank() == 4) dims = {shape[0], shape[2], shape[3], shape[1]};
  return dims;
}

std::optional<NpyReader> open_file(const std::string& path) {
  return path.empty() ? std::nullopt : std::make_optional<NpyReader>(path);
}

/// The dtype of the file of a tensor of `dtype`.
DType file_dtype(DType dtype) { return dtype == DType::bf16 ? DType::f32 : dtype; }

void require_dtype(std::string_view what, const std::string& path, const NpyReader& file, DType dtype) {
  if (file.dtype() == file_dtype(dtype)) return;
  throw Error(ErrorCode::invalid_argument,
              fmt::format(".npy file '{}': holds {}, but {} of a {} convolution must be {}", path,
                          to_string(file.dtype()), what, to_string(dtype), to_string(file_dtype(dtype))));
}

void read_into(NpyReader& file, const Tensor& tensor) {
  if (file.dtype() == tensor.dtype()) {
    file.read(tensor.data());
    return;
  }
  Tensor raw(file.dtype(), tensor.shape(), tensor.layout());
  file.read(raw.data());
  const std::int64_t count = tensor.shape().elements();
  if (tensor.dtype() == DType::bf16) {
    for (std::int64_t i = 0; i < count; ++i) tensor.as<std::uint16_t>()[i] = bf16_from_float(raw.as<float>()[i]);
  } else {  // an f16 bias
    for (std::int64_t i = 0; i < count; ++i) tensor.as<float>()[i] = float_from_f16(raw.as<std::uint16_t>()[i]);
  }
}

void write_output(const std::string& path, const Tensor& y) {
  const NpyShape shape = npy_shape(y.shape(), y.layout());
  if (y.dtype() != DType::bf16) {
    write_npy(path, y.dtype(), shape, y.data());
    return;
  }
  const Tensor wide(DType::f32, y.shape(), y.layout());
  const std::int64_t count = y.shape().elements();
  for (std::int64_t i = 0; i < count; ++i) wide.as<float>()[i] = float_from_bf16(y.as<std::uint16_t>()[i]);
  write_npy(path, DType::f32, shape, wide.data());
}

struct Inputs {
  std::optional<NpyReader> x, weights, bias;
};

Conv2d convolution(const RunOptions& options, const Inputs& files) {
  if (options.problem.problems.size() != 1) throw Error(ErrorCode::invalid_argument, "give one --problem");
  if (options.problem.dtypes.size() > 1) throw Error(ErrorCode::invalid_argument, "give one --dtype");
  if (options.problem.maths.size() > 1) throw Error(ErrorCode::invalid_argument, "give one --math");
  Conv2d conv = parse_problem(options.problem.problems.front()).conv;
  if (!options.problem.dtypes.empty()) {
    conv.dtype = parse_dtype(options.problem.dtypes.front());
  } else if (files.x) {
    conv.dtype = files.x->dtype();
  }
  if (!options.problem.maths.empty()) conv.math = parse_math(options.problem.maths.front());
  apply_attributes(options.problem, conv);
  if (files.bias) conv.epilogue.bias = true;
  validate(conv);
  return conv;
}

void check_files(const RunOptions& options, const Inputs& files, const Conv2d& conv) {
  if (files.x) {
    require_dtype("x", options.x, *files.x, conv.dtype);
    files.x->require_shape("x", npy_shape(conv.input, conv.layout));
  }
  if (files.weights) {
    require_dtype("weights", options.weights, *files.weights, conv.dtype);
    files.weights->require_shape("weights", npy_shape(conv.weights, Layout::nchw));
  }
  if (files.bias) files.bias->require_shape("bias", {conv.weights[0]});
}

}  // namespace

void run_conv2d(const RunOptions& options, Console& console) {
  check_writable(options.output);
  Inputs files{open_file(options.x), open_file(options.weights), open_file(options.bias)};
  const Conv2d conv = convolution(options, files);
  check_files(options, files, conv);
  require_memory(2 * bytes_needed(conv, 1), fmt::format("'{}'", descriptor(conv)));

  const std::vector<OpenDevice> devices = open_devices({options.device}, options.threads);
  OpRunner runner(devices.front(), conv);
  const OpData data = random_data(conv);
  if (files.x) read_into(*files.x, data.x);
  if (files.weights) read_into(*files.weights, data.weights);
  if (files.bias) read_into(*files.bias, data.bias);
  runner.prepare(data);
  runner.run();
  const Tensor y = runner.result();
  write_output(options.output, y);
  console.print(fmt::format("{}: y {} {} from {} on {}", options.output, to_string(npy_shape(y.shape(), y.layout())),
                            to_string(file_dtype(y.dtype())), runner.plan().kernel(), runner.plan().device_uri()));
  console.print(runner.plan().explain());
}

}  // namespace gable::bench
