// See identity.h.
#include "bench/workloads/identity.h"

#include "bench/common/text.h"
#include "bench/workloads/problem.h"

namespace gable::bench {
namespace {

EpilogueFields fields_of(const Epilogue& epilogue) {
  const PoolWindow& pool = epilogue.max_pool;
  EpilogueFields fields{.bias = epilogue.bias, .activation = std::string(to_string(epilogue.activation))};
  if (pool) fields.max_pool = {pool.window.h, pool.window.w};
  if (pool && pool.stride != pool.window) fields.max_pool_stride = {pool.stride.h, pool.stride.w};
  return fields;
}

}  // namespace

Identity identity_of(const Case& one) {
  Identity identity{.suite = one.suite,
                    .name = one.name,
                    .op = std::string(name(one.op)),
                    .problem = descriptor(one.op),
                    .dtype = std::string(to_string(dtype_of(one.op)))};
  identity.count = one.count;
  if (has_math(one.op)) identity.math = to_string(math_of(one.op));
  if (const auto* conv = std::get_if<Conv2d>(&one.op)) {
    identity.layout = to_string(conv->layout);
    identity.epilogue = fields_of(conv->epilogue);
  }
  if (const auto* pool = std::get_if<MaxPool>(&one.op)) identity.layout = to_string(pool->layout);
  if (const auto* concat = std::get_if<Concat>(&one.op)) identity.layout = to_string(concat->layout);
  if (const auto* multiply = std::get_if<Multiply>(&one.op)) identity.layout = to_string(multiply->layout);
  if (const auto* softmax = std::get_if<Softmax>(&one.op)) identity.layout = to_string(softmax->layout);
  if (const auto* upsample = std::get_if<Upsample>(&one.op)) identity.layout = to_string(upsample->layout);
  if (const auto* add = std::get_if<Add>(&one.op)) {
    if (add->tile) identity.tile = {add->tile.row_chunk, add->tile.free_dim};
    if (add->activation != Activation::none) identity.epilogue = fields_of(Epilogue{.activation = add->activation});
  }
  return identity;
}

Identity identity_of(const BandwidthCase& one) {
  const auto bytes = static_cast<double>(one.bytes);
  return {.suite = one.suite,
          .name = one.name,
          .op = std::string(to_string(one.movement)),
          .problem = bytes_text(bytes),
          .dtype = "f32",
          .working_set_bytes = bytes};
}

Identity identity_of(const GraphCase& one) {
  return {.suite = one.suite, .name = one.name, .op = "pagerank", .problem = problem_of(one), .dtype = "f32"};
}

}  // namespace gable::bench
