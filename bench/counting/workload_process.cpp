// See workload_process.h.
#include "bench/counting/workload_process.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gable/error.h>

#include <CLI/CLI.hpp>
#include <string_view>

#include "bench/measure/devices.h"
#include "bench/measure/op_runner.h"
#include "bench/workloads/data.h"
#include "bench/workloads/problem.h"
#include "perfcounters/sources/counted_region.h"
#include "perfcounters/sources/known_work.h"

namespace gable::bench {
namespace {

std::string list(const std::vector<std::int64_t>& numbers) { return fmt::format("{}", fmt::join(numbers, ",")); }

void add_words(std::vector<std::string>& words, std::initializer_list<std::string_view> more) {
  words.insert(words.end(), more.begin(), more.end());
}

void add_epilogue_words(std::vector<std::string>& words, bool bias, Activation activation) {
  if (bias) words.emplace_back("--bias");
  add_words(words, {"--activation", to_string(activation)});
}

void require_sizes(const WorkloadOptions& options, std::size_t count) {
  if (options.sizes.size() != count) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("--sizes {}: {} needs {} of them", list(options.sizes), options.op, count));
  }
}

Shape shape_of(const std::vector<std::int64_t>& sizes) {
  switch (sizes.size()) {
    case 1:
      return {sizes[0]};
    case 2:
      return {sizes[0], sizes[1]};
    case 3:
      return {sizes[0], sizes[1], sizes[2]};
    case 4:
      return {sizes[0], sizes[1], sizes[2], sizes[3]};
    default:
      throw Error(ErrorCode::invalid_argument, fmt::format("--sizes {}: add needs one to four of them", list(sizes)));
  }
}

}  // namespace

void add_workload_options(CLI::App& app, WorkloadOptions& options) {
  app.add_option("--kernel", options.kernel);
  app.add_option("--elements", options.elements);
  app.add_option("--passes", options.passes);
  app.add_option("--device", options.device);
  app.add_option("--op", options.op);
  app.add_option("--sizes", options.sizes)->delimiter(',')->allow_extra_args(false);
  app.add_option("--tile", options.tile)->delimiter(',')->allow_extra_args(false);
  app.add_option("--problem", options.problem.problems)->allow_extra_args(false);
  app.add_option("--dtype", options.problem.dtypes)->allow_extra_args(false);
  app.add_option("--math", options.problem.maths)->allow_extra_args(false);
  app.add_option("--layout", options.problem.layout);
  app.add_option("--activation", options.problem.activation);
  app.add_option("--max-pool", options.problem.max_pool);
  app.add_flag("--bias", options.problem.bias);
  app.add_option("--repetitions", options.task.repetitions);
  app.add_flag("--cold", options.task.cold);
  app.add_flag("--markers", options.task.markers);
}

std::vector<std::string> op_arguments(const Op& op) {
  std::vector<std::string> words;
  add_words(words, {"--op", name(op), "--dtype", to_string(dtype_of(op))});
  if (has_math(op)) add_words(words, {"--math", to_string(math_of(op))});
  if (const auto* conv = std::get_if<Conv2d>(&op)) {
    add_words(words, {"--problem", descriptor(*conv), "--layout", to_string(conv->layout)});
    add_epilogue_words(words, conv->epilogue.bias, conv->epilogue.activation);
    if (conv->epilogue.max_pool) add_words(words, {"--max-pool", to_string(conv->epilogue.max_pool)});
  } else if (const auto* m = std::get_if<Matmul>(&op)) {
    add_words(words, {"--sizes", list({m->m, m->n, m->k})});
    add_epilogue_words(words, m->bias, m->activation);
  } else if (const auto* add = std::get_if<Add>(&op)) {
    std::vector<std::int64_t> sizes;
    for (std::size_t i = 0; i < add->shape.rank(); ++i) sizes.push_back(add->shape[i]);
    add_words(words, {"--sizes", list(sizes), "--layout", to_string(add->layout)});
    if (add->activation != Activation::none) add_words(words, {"--activation", to_string(add->activation)});
    if (add->tile) add_words(words, {"--tile", list({add->tile.row_chunk, add->tile.free_dim})});
  } else if (const auto* transpose = std::get_if<Transpose>(&op)) {
    add_words(words, {"--sizes", list({transpose->rows, transpose->columns})});
  } else {
    throw Error(ErrorCode::unsupported, fmt::format("{} is not counted in a process of its own: conv2d, matmul, add "
                                                    "and transpose are",
                                                    name(op)));
  }
  return words;
}

Op op_of(const WorkloadOptions& options) {
  const SelectionOptions& problem = options.problem;
  const DType dtype = problem.dtypes.empty() ? DType::f32 : parse_dtype(problem.dtypes.front());
  const Math math = problem.maths.empty() ? Math::strict : parse_math(problem.maths.front());
  const Activation activation = problem.activation.empty() ? Activation::none : parse_activation(problem.activation);
  if (options.op == "conv2d") {
    if (problem.problems.size() != 1) throw Error(ErrorCode::invalid_argument, "conv2d needs one --problem");
    Conv2d conv = parse_problem(problem.problems.front()).conv;
    conv.dtype = dtype;
    conv.math = math;
    apply_attributes(problem, conv);
    return conv;
  }
  const std::vector<std::int64_t>& sizes = options.sizes;
  if (options.op == "matmul") {
    require_sizes(options, 3);
    return Matmul{.m = sizes[0],
                  .n = sizes[1],
                  .k = sizes[2],
                  .dtype = dtype,
                  .math = math,
                  .bias = problem.bias,
                  .activation = activation};
  }
  if (options.op == "transpose") {
    require_sizes(options, 2);
    return Transpose{.rows = sizes[0], .columns = sizes[1], .dtype = dtype};
  }
  if (options.op == "add") {
    Add add{.dtype = dtype, .activation = activation};
    add.shape = shape_of(sizes);
    if (!problem.layout.empty()) add.layout = parse_layout(problem.layout);
    if (options.tile.size() == 2) add.tile = {.row_chunk = options.tile[0], .free_dim = options.tile[1]};
    return add;
  }
  throw Error(ErrorCode::invalid_argument,
              fmt::format("--op '{}': must be conv2d, matmul, add or transpose", options.op));
}

void run_workload(const WorkloadOptions& options) {
  if (!options.kernel.empty()) {
    perf::run_counted(perf::known_kernel(options.kernel, options.elements, options.passes), options.task);
    return;
  }
  const Op op = op_of(options);
  const std::vector<OpenDevice> devices = open_devices({options.device}, 0);
  const OpData data = random_data(op);
  OpRunner runner(devices.front(), op);
  runner.prepare(data);
  perf::run_counted([&] { runner.run(); }, options.task);
}

}  // namespace gable::bench
