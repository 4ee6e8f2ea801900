// See signature.h.
#include "api/src/signature.h"

namespace gable {

Signature signature(const Op& op) {
  const Shape y = output_shape(op);
  if (const auto* c = std::get_if<Conv2d>(&op)) {
    return {.inputs = {{"x", c->dtype, c->input, c->layout}, {}},
            .input_count = 1,
            .weights = {"weights", c->dtype, c->weights, Layout::nchw},
            .bias = {"bias", DType::f32, Shape{c->weights[0]}, Layout::nchw},
            .has_weights = true,
            .output = {"y", c->dtype, y, c->layout}};
  }
  if (const auto* m = std::get_if<Matmul>(&op)) {
    return {.inputs = {{"a", m->dtype, Shape{m->m, m->k}, Layout::nchw}, {}},
            .input_count = 1,
            .weights = {"b", m->dtype, Shape{m->k, m->n}, Layout::nchw},
            .bias = {"bias", DType::f32, Shape{m->n}, Layout::nchw},
            .has_weights = true,
            .output = {"c", m->dtype, y, Layout::nchw}};
  }
  if (const auto* p = std::get_if<MaxPool>(&op)) {
    return {.inputs = {{"x", p->dtype, p->input, p->layout}, {}},
            .input_count = 1,
            .output = {"y", p->dtype, y, p->layout}};
  }
  if (const auto* a = std::get_if<Add>(&op)) {
    return {.inputs = {{"a", a->dtype, a->shape, a->layout}, {"b", a->dtype, a->shape, a->layout}},
            .input_count = 2,
            .output = {"c", a->dtype, y, a->layout}};
  }
  if (const auto* t = std::get_if<Transpose>(&op)) {
    return {.inputs = {{"x", t->dtype, Shape{t->rows, t->columns}, Layout::nchw}, {}},
            .input_count = 1,
            .output = {"y", t->dtype, y, Layout::nchw}};
  }
  if (const auto* f = std::get_if<Activate>(&op)) {
    return {.inputs = {{"x", f->dtype, f->shape, f->layout}, {}},
            .input_count = 1,
            .output = {"y", f->dtype, y, f->layout}};
  }
  if (const auto* c = std::get_if<Concat>(&op)) {
    return {.inputs = {{"a", c->dtype, c->a, c->layout}, {"b", c->dtype, c->b, c->layout}},
            .input_count = 2,
            .output = {"y", c->dtype, y, c->layout}};
  }
  if (const auto* u = std::get_if<Upsample>(&op)) {
    return {.inputs = {{"x", u->dtype, u->input, u->layout}, {}},
            .input_count = 1,
            .output = {"y", u->dtype, y, u->layout}};
  }
  if (const auto* m = std::get_if<Multiply>(&op)) {
    return {.inputs = {{"a", m->dtype, m->a, m->layout}, {"b", m->dtype, m->b, m->layout}},
            .input_count = 2,
            .output = {"y", m->dtype, y, m->layout}};
  }
  if (const auto* s = std::get_if<Softmax>(&op)) {
    return {.inputs = {{"x", s->dtype, s->shape, s->layout}, {}},
            .input_count = 1,
            .output = {"y", s->dtype, y, s->layout}};
  }
  const auto& r = std::get<Reorder>(op);
  return {.inputs = {{"x", r.dtype, r.shape, r.from}, {}}, .input_count = 1, .output = {"y", r.dtype, y, r.to}};
}

}  // namespace gable
