// See list_command.h.
#include "bench/cli/list_command.h"

#include <fmt/format.h>
#include <gable/error.h>
#include <gable/ops.h>

#include "bench/common/text.h"
#include "bench/measure/outcome.h"
#include "bench/record/row_json.h"
#include "bench/record/schema.h"
#include "bench/record/study_json.h"
#include "bench/workloads/identity.h"
#include "bench/workloads/problem.h"

namespace gable::bench {
namespace {

using nlohmann::json;

json shape_record(const Shape& shape) {
  json extents = json::array();
  for (std::size_t i = 0; i < shape.rank(); ++i) extents.push_back(shape[i]);
  return extents;
}

json conv_record(const Conv2d& conv) {
  const Padding& p = conv.padding;
  return {{"input", shape_record(conv.input)},
          {"weights", shape_record(conv.weights)},
          {"output", shape_record(output_shape(conv))},
          {"stride", {conv.stride.h, conv.stride.w}},
          {"padding", {p.top, p.left, p.bottom, p.right}},
          {"dilation", {conv.dilation.h, conv.dilation.w}},
          {"groups", conv.groups},
          {"pool_window", {conv.epilogue.max_pool.window.h, conv.epilogue.max_pool.window.w}},
          {"pool_stride", {conv.epilogue.max_pool.stride.h, conv.epilogue.max_pool.stride.w}}};
}

json listed(const Case& one) {
  json record = to_json(identity_of(one));
  const Work least = work(one.op);
  record["flop"] = least.flop;
  record["bytes"] = least.bytes();
  if (const auto* conv = std::get_if<Conv2d>(&one.op)) record["conv2d"] = conv_record(*conv);
  return record;
}

std::string row(const Case& one) {
  const Work least = work(one.op);
  return printable(fmt::format("{:<24} {:<5} {:<7} {:>9.3f} {:>9.3f}  {}", one.name, to_string(dtype_of(one.op)),
                               to_string(math_of(one.op)), least.flop / 1e9, least.bytes() / 1e6, descriptor(one.op)));
}

}  // namespace

ExitCode list_command(const SelectionOptions& options, bool gpu, Console& console) {
  console.check_target();
  const Selection selection = select(options, gpu);
  Outcome outcome;
  outcome.malformed = selection.malformed;
  outcome.add(selection.refused);
  console.print(
      fmt::format("{:<24} {:<5} {:<7} {:>9} {:>9}  {}", "name", "dtype", "math", "GFLOP", "least MB", "problem"));
  json cases = json::array();
  for (const Case& one : selection.cases) {
    try {
      validate(one.op);
    } catch (const Error& error) {
      outcome.refuse(identity_of(one), "", error);
      continue;
    }
    console.print(row(one));
    cases.push_back(listed(one));
    ++outcome.ran;
  }
  print_refusals(outcome.refused, console);
  console.emit({{"schema_version", kSchemaVersion}, {"cases", cases}, {"refused", to_json(outcome.refused)}});
  return outcome.exit_code();
}

}  // namespace gable::bench
