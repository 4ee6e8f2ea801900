// The suite `primitives` beside the published measurements of the same study on a Trainium: which shape of tile an
// addition wants, and how much of its peak a fused convolution reaches.
#pragma once

#include <string>
#include <vector>

#include "bench/report/study.h"

namespace gable::bench::report {

struct TrainiumFigure {
  const char* name;   // of the case
  const char* here;   // the dtype of the case that it stands beside
  const char* dtype;  // what it was measured with
  double seconds;
  double percent;  // of the machine's peak; 0 where it is not known
};

struct TrainiumRow {
  const Measurement* here;
  const TrainiumFigure* there;  // null where the study has no figure
};

// One row a warm measurement of the suite, in the study's order; empty without any.
std::vector<TrainiumRow> trainium_rows(const Studies& studies);

// What an op is judged by: FLOP/s where it multiplies, bytes/s where it adds or moves.
double rate_of(const Measurement& m);
std::string rate_text(const Measurement& m);

// The rows for the terminal; empty without any.
std::string trainium_table(const Studies& studies);

}  // namespace gable::bench::report
