// How far two measurements of the same thing lie apart by chance. A record keeps of a row's samples the median, the
// quartiles and their number, so all is computed from these. Ratios are logarithms here: log(new time / old time).
//
//   log ratio of a row = the row's change + drift + between + within
//
// within   The error of the two medians. Of n samples with interquartile range R the median's standard error is
//          1.25 R / (1.35 sqrt(n)) (McGill, Tukey, Larsen: Variations of Box Plots, 1978: the notch of a box plot),
//          near normal and for samples that are independent. It is an estimate from few samples: as many degrees of
//          freedom as 0.37 n, since the range's efficiency is 0.37 (Rousseeuw, Croux: Alternatives to the MAD, 1993).
//          It assumes that disturbances hit fewer than a quarter of the samples of a run, or are seen in its quartiles.
//          Five samples may agree by chance, so it is moderated: pulled up to the median row's spread with the weight
//          of 8 degrees of freedom (Smyth: Linear Models and Empirical Bayes Methods, 2004, there in both directions).
// drift    What all rows of a kind of device share: the machine's clock. It is the median of the rows' log ratios, or
//          of a vendor library's rows alone. It assumes that more than half of these rows did not change.
// between  What differs from one run of the program to the next although its samples agree: where buffers lie, who
//          else computes. Its variance is the one under which the median of residual^2 / (within^2 + between^2) is
//          chi-squared's (0.455, one degree of freedom): Paule and Mandel's estimate with medians, so that changed
//          rows don't inflate it. It assumes that it is alike in all rows. A least value is taken for known; what is
//          above it is an estimate from N rows, with 0.37 (N - 1) degrees of freedom.
//
// The interval of a row is Student's, with Welch and Satterthwaite's degrees of freedom, at a level divided by the
// number of rows (Bonferroni): that of any row excludes its true change with the probability kFamilyError, not that of
// each.
#pragma once

#include <span>

#include "bench/record/row.h"

namespace gable::bench {

/// The probability of any false alarm among all rows of a comparison, slower and faster together.
constexpr double kFamilyError = 0.01;
/// With fewer samples their spread is not known.
constexpr int kMinRuns = 5;
/// With fewer rows drift and noise between runs are not known.
constexpr int kMinRows = 8;

/// A pair of timings: log ratios of its medians and of its lower quartiles, and the variance of the former.
struct Change {
  double median = 0;
  double lower = 0;
  double variance = 0;  ///< within, of both
  double freedom = 1;   ///< of `variance`
  double runs = 1;      ///< 1 / (1 / runs of one + 1 / runs of the other)

  /// How far the distribution moved: the median or the lower quartile, whichever moved less. 0 where they disagree on
  /// the direction. Other programs add time to the slower samples, a changed kernel to all of them.
  double moved(double drift) const;
};

/// Both with times above 0 and at least kMinRuns runs.
Change change_between(const Timing& before, const Timing& after);

struct NoiseLimits {
  double least = 0.004;    ///< `between` is never below this standard deviation
  double assumed = 0.005;  ///< `between` where there are too few rows
  double drift = 0.1;      ///< a larger shift of all rows is not taken for drift
};

/// What rows of one kind of device share.
struct Noise {
  double drift = 0;        ///< log ratio
  double drift_error = 0;  ///< standard error
  double between = 0;      ///< standard deviation
  double freedom = 1e6;    ///< of `between`
  double spread = 0;       ///< variance * runs of the median row
  double widening = 1;     ///< factor of all intervals of rows without rounds (compare.h)
  int rows = 0;            ///< that it was learnt from; 0: assumed
};

/// `controls` can't have changed: drift is theirs where there are enough of them, else that of all rows. Residuals are
/// from each group's own median, so that a change of all of `rows` is no noise.
Noise learn_noise(std::span<const Change> rows, std::span<const Change> controls, const NoiseLimits& limits);

/// Half the width of the interval of one of `rows` rows.
double half_width(const Change& change, const Noise& noise, int rows);

/// The value that Student's distribution exceeds with probability `tail` (0 ... 0.5).
double student_quantile(double tail, double freedom);

}  // namespace gable::bench
