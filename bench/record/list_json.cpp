// See list_json.h.
#include "bench/record/list_json.h"

#include <nlohmann/json.hpp>

#include "bench/record/row_json.h"
#include "bench/record/schema.h"
#include "bench/record/study_json.h"

namespace gable::bench {
namespace {

using nlohmann::json;

json shape_json(const Shape& shape) {
  json extents = json::array();
  for (std::size_t i = 0; i < shape.rank(); ++i) extents.push_back(shape[i]);
  return extents;
}

json conv_json(const Conv2d& conv) {
  const Padding& p = conv.padding;
  return {{"input", shape_json(conv.input)},
          {"weights", shape_json(conv.weights)},
          {"output", shape_json(output_shape(conv))},
          {"stride", {conv.stride.h, conv.stride.w}},
          {"padding", {p.top, p.left, p.bottom, p.right}},
          {"dilation", {conv.dilation.h, conv.dilation.w}},
          {"groups", conv.groups},
          {"pool_window", {conv.epilogue.max_pool.window.h, conv.epilogue.max_pool.window.w}},
          {"pool_stride", {conv.epilogue.max_pool.stride.h, conv.epilogue.max_pool.stride.w}}};
}

json case_json(const ListedCase& one) {
  json entry = to_json(one.identity);
  const Work least = work(one.op);
  entry["flop"] = least.flop;
  entry["bytes"] = least.bytes();
  if (const auto* conv = std::get_if<Conv2d>(&one.op)) entry["conv2d"] = conv_json(*conv);
  return entry;
}

}  // namespace

json list_json(const std::vector<ListedCase>& cases, const std::vector<Refusal>& refused) {
  json entries = json::array();
  for (const ListedCase& one : cases) entries.push_back(case_json(one));
  return {{"schema_version", kSchemaVersion}, {"cases", std::move(entries)}, {"refused", to_json(refused)}};
}

}  // namespace gable::bench
