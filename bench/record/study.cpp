// See study.h.
#include "bench/record/study.h"

#include <algorithm>
#include <utility>

namespace gable::bench {

const Row* row_of_part(const std::vector<Row>& rows, const ProgramPart& part) {
  const auto row = std::find_if(rows.begin(), rows.end(), [&](const Row& one) {
    return one.identity.op == part.kind && one.identity.name == part.name && one.place.device == part.device;
  });
  return row != rows.end() ? &*row : nullptr;
}

Row* row_of_part(std::vector<Row>& rows, const ProgramPart& part) {
  return const_cast<Row*>(row_of_part(std::as_const(rows), part));
}

}  // namespace gable::bench
