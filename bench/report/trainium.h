// Compares the suite `primitives` with published measurements of the same study on a Trainium: the best tile shape of
// an addition, and how much of its peak a fused convolution reaches.
#pragma once

#include <string>
#include <vector>

#include "bench/report/study.h"

namespace gable::bench::report {

struct TrainiumFigure {
  const char* name;        // of the case
  const char* case_dtype;  // the dtype of the case that it is compared with
  const char* dtype;       // the dtype on the Trainium
  double seconds;
  double percent;  // of the machine's peak; 0: not known
};

struct TrainiumRow {
  const Measurement* measurement;
  const TrainiumFigure* trainium;  // null if the study has no such measurement
};

// One row for each warm measurement of the suite, in the study's order.
std::vector<TrainiumRow> trainium_rows(const Studies& studies);

// The rate of an op: FLOP/s if it multiplies, bytes/s if it only adds or moves.
double rate_of(const Measurement& m);
std::string rate_text(const Measurement& m);

// The rows as text for the terminal; empty without rows.
std::string trainium_table(const Studies& studies);

}  // namespace gable::bench::report
