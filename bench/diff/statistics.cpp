// See statistics.h.
#include "bench/diff/statistics.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "perfcounters/timing.h"

namespace gable::bench {
namespace {

constexpr double kMedianError = 1.25 / 1.35;    // standard error of a median, in interquartile ranges / sqrt(n)
constexpr double kRangeEfficiency = 0.37;       // of an interquartile range, against the standard deviation
constexpr double kPriorFreedom = 8;             // the weight of the median row's spread
constexpr double kMedianChiSquared = 0.454936;  // of one degree of freedom

double quantile_of(std::vector<double> values, double fraction) {
  std::sort(values.begin(), values.end());
  return perf::quantile(values, fraction);
}

std::vector<double> medians_of(std::span<const Change> changes) {
  std::vector<double> values;
  for (const Change& change : changes) values.push_back(change.median);
  return values;
}

double variance_of(const Timing& time) {
  const double range = (time.q3 - time.q1) / time.seconds;
  return std::pow(kMedianError * range, 2) / time.runs;
}

/// Welch and Satterthwaite: degrees of freedom of a + b, variances with their own.
double joint_freedom(double a, double freedom_a, double b, double freedom_b) {
  const double sum = a + b;
  return sum > 0 ? sum * sum / (a * a / freedom_a + b * b / freedom_b) : std::min(freedom_a, freedom_b);
}

/// The continued fraction of the incomplete beta function (DLMF 8.17.22) by Lentz's method.
double beta_fraction(double a, double b, double x) {
  constexpr double kTiny = 1e-300;
  const auto nonzero = [](double value) { return std::abs(value) < kTiny ? kTiny : value; };
  double c = 1, d = 1 / nonzero(1 - (a + b) * x / (a + 1)), product = d;
  for (int m = 1; m < 1000; ++m) {
    const double even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
    const double odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1));
    double factor = 1;
    for (const double term : {even, odd}) {
      d = 1 / nonzero(1 + term * d);
      c = nonzero(1 + term / c);
      factor = c * d;
      product *= factor;
    }
    if (std::abs(factor - 1) < 1e-12) break;
  }
  return product;
}

/// I_x(a, b), the regularized incomplete beta function.
double incomplete_beta(double a, double b, double x) {
  if (x <= 0 || x >= 1) return x <= 0 ? 0 : 1;
  const double front =
      std::exp(std::lgamma(a + b) - std::lgamma(a) - std::lgamma(b) + a * std::log(x) + b * std::log1p(-x));
  return x < (a + 1) / (a + b + 2) ? front * beta_fraction(a, b, x) / a : 1 - front * beta_fraction(b, a, 1 - x) / b;
}

double student_tail(double t, double freedom) {
  return 0.5 * incomplete_beta(freedom / 2, 0.5, freedom / (freedom + t * t));
}

struct Within {
  double variance, freedom;
};

Within moderated(const Change& change, const Noise& noise) {
  if (noise.rows == 0) return {change.variance, change.freedom};
  const double freedom = kPriorFreedom + change.freedom;
  const double pulled = (kPriorFreedom * noise.spread / change.runs + change.freedom * change.variance) / freedom;
  return {std::max(change.variance, pulled), freedom};
}

std::vector<double> residuals_of(std::span<const Change> changes, double drift) {
  std::vector<double> residuals = medians_of(changes);
  const double center = std::ssize(changes) < kMinRows ? drift : quantile_of(residuals, 0.5);
  for (double& value : residuals) value -= center;
  return residuals;
}

/// `between`: the standard deviation under which the residuals are as large as they should be.
double between_rows(std::span<const Change> changes, std::span<const double> residuals) {
  const auto median_square = [&](double variance) {
    std::vector<double> squares;
    for (std::size_t i = 0; i < changes.size(); ++i) {
      squares.push_back(residuals[i] * residuals[i] / std::max(1e-300, changes[i].variance + variance));
    }
    return quantile_of(std::move(squares), 0.5);
  };
  double low = 0, high = 1;
  if (median_square(0) <= kMedianChiSquared) return 0;
  for (int i = 0; i < 60; ++i) {
    const double middle = (low + high) / 2;
    (median_square(middle * middle) > kMedianChiSquared ? low : high) = middle;
  }
  return high;
}

}  // namespace

double Change::moved(double drift) const {
  const double of_median = median - drift, of_lower = lower - drift;
  if (of_median * of_lower <= 0) return 0;
  return std::abs(of_median) < std::abs(of_lower) ? of_median : of_lower;
}

Change change_between(const Timing& before, const Timing& after) {
  const double a = variance_of(before), b = variance_of(after);
  return {.median = std::log(after.seconds / before.seconds),
          .lower = std::log(after.q1 / before.q1),
          .variance = a + b,
          .freedom = joint_freedom(a, kRangeEfficiency * before.runs, b, kRangeEfficiency * after.runs),
          .runs = 1 / (1.0 / before.runs + 1.0 / after.runs)};
}

Noise learn_noise(std::span<const Change> rows, std::span<const Change> controls, const NoiseLimits& limits) {
  std::vector<Change> all(rows.begin(), rows.end());
  all.insert(all.end(), controls.begin(), controls.end());
  Noise noise{.between = std::max(limits.least, limits.assumed)};
  if (std::ssize(all) < kMinRows) return noise;
  const bool controlled = std::ssize(controls) >= kMinRows;
  const std::vector<double> shifts = medians_of(controlled ? controls : all);
  const double range = quantile_of(shifts, 0.75) - quantile_of(shifts, 0.25);
  const double shift = quantile_of(shifts, 0.5);
  noise.drift = controlled ? shift : std::clamp(shift, -limits.drift, limits.drift);
  noise.drift_error = kMedianError * range / std::sqrt(static_cast<double>(shifts.size()));
  noise.rows = static_cast<int>(all.size());
  std::vector<double> residuals = residuals_of(rows, noise.drift);
  const std::vector<double> of_controls = residuals_of(controls, noise.drift);
  residuals.insert(residuals.end(), of_controls.begin(), of_controls.end());
  const double between = between_rows(all, residuals);
  noise.between = std::max(between, limits.least);
  if (between > limits.least) {
    const double all_of_it = between * between, estimated = all_of_it - limits.least * limits.least;
    noise.freedom = kRangeEfficiency * (noise.rows - 1) * std::pow(all_of_it / estimated, 2);
  }
  std::vector<double> spreads;
  for (const Change& change : all) spreads.push_back(change.variance * change.runs);
  noise.spread = quantile_of(std::move(spreads), 0.5);
  return noise;
}

double half_width(const Change& change, const Noise& noise, int rows) {
  const double between = noise.between * noise.between;
  const Within within = moderated(change, noise);
  const double freedom = joint_freedom(within.variance, within.freedom, between, noise.freedom);
  const double variance = within.variance + between + noise.drift_error * noise.drift_error;
  return student_quantile(kFamilyError / 2 / std::max(1, rows), freedom) * std::sqrt(variance);
}

double student_quantile(double tail, double freedom) {
  double low = 0, high = 1;
  while (student_tail(high, freedom) > tail && high < 1e12) high *= 2;
  for (int i = 0; i < 50; ++i) {
    const double middle = (low + high) / 2;
    (student_tail(middle, freedom) > tail ? low : high) = middle;
  }
  return high;
}

}  // namespace gable::bench
