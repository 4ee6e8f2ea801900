// See repeated.h.
#include "bench/diff/repeated.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "perfcounters/timing.h"

namespace gable::bench {
namespace {

constexpr double kRepeatedPriorFreedom = 4;

double mean_of(std::span<const double> values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

/// The lower quartiles of both builds, one after the other.
std::vector<double> all_times(const RepeatedRow& row) {
  std::vector<double> all = row.before.lower;
  all.insert(all.end(), row.after.lower.begin(), row.after.lower.end());
  return all;
}

/// The drift of each study of both builds.
std::vector<double> drifts_of(std::span<const RepeatedRow> rows, bool controlled) {
  std::vector<std::vector<double>> distances(all_times(rows.front()).size());
  for (const RepeatedRow& row : rows) {
    if (controlled && !row.is_control) continue;
    const std::vector<double> times = all_times(row);
    const double middle = perf::median(times);
    for (std::size_t i = 0; i < times.size(); ++i) distances[i].push_back(times[i] - middle);
  }
  std::vector<double> drifts;
  for (std::vector<double>& of_study : distances) drifts.push_back(perf::median(std::move(of_study)));
  return drifts;
}

/// The times of one side less their studies' drifts.
std::vector<double> without(std::vector<double> times, std::span<const double> drifts) {
  for (std::size_t i = 0; i < times.size(); ++i) times[i] -= drifts[i];
  return times;
}

double squares_around_mean(std::span<const double> values) {
  const double mean = mean_of(values);
  return std::accumulate(values.begin(), values.end(), 0.0,
                         [&](double sum, double value) { return sum + (value - mean) * (value - mean); });
}

/// The level of a row on one side.
struct Level {
  double mean;
  double variance;  ///< of one time: that of the mean is this / number of times
  double freedom;
};

Level level_of_studies(std::span<const double> times) {
  const auto freedom = static_cast<double>(times.size() - 1);
  return {mean_of(times), squares_around_mean(times) / freedom, freedom};
}

/// The trimmed mean with its winsorized variance (Yuen: The Two-Sample Trimmed t, 1974): an eighth of the rounds at
/// each end may be disturbed.
Level level_of_rounds(std::vector<double> times) {
  std::sort(times.begin(), times.end());
  const std::size_t cut = times.size() / 8, last = times.size() - 1 - cut;
  const double mean = mean_of(std::span(times).subspan(cut, times.size() - 2 * cut));
  for (double& time : times) time = std::clamp(time, times[cut], times[last]);
  const auto all = static_cast<double>(times.size()), kept = static_cast<double>(times.size() - 2 * cut);
  return {mean, all * squares_around_mean(times) / (kept * (kept - 1)), kept - 1};
}

Level level_of(const std::vector<double>& times, Repetition repetition) {
  return repetition == Repetition::rounds ? level_of_rounds(times) : level_of_studies(times);
}

// Fitted on studies of twelve layers on a quiet and on a loaded machine, and checked on other layers
// (bench/results/README.md, `diff-rounds`).
constexpr double kRoundFactor = 1.4;
constexpr double kQuietRow = 0.012;  // standard deviation of rounds from which on intervals grow faster than it
constexpr double kMaxGrowth = 9;     // of the variance, by that
constexpr double kUnknownDrift = 2;  // factor where there are too few rows to tell drift from noise: drift lasts

/// The variance by which a row's rounds are to be judged as if they were independent.
double variance_of_rounds(double variance, bool drift_is_known) {
  const double growth = 1 + std::min(variance / (kQuietRow * kQuietRow), kMaxGrowth);
  const double drift = drift_is_known ? 1 : kUnknownDrift * kUnknownDrift;
  return kRoundFactor * kRoundFactor * growth * drift * variance;
}

}  // namespace

RepeatedResult compare_repeated(std::span<const RepeatedRow> rows, const NoiseLimits& limits, Repetition repetition) {
  RepeatedResult result;
  if (rows.empty()) return result;
  const std::size_t before = rows.front().before.lower.size(), after = rows.front().after.lower.size();
  const auto controls = std::count_if(rows.begin(), rows.end(), [](const RepeatedRow& row) { return row.is_control; });
  const bool enough = std::ssize(rows) >= kMinRows, controlled = controls >= kMinRows;
  std::vector<double> drifts(before + after, 0);
  if (enough || controlled) drifts = drifts_of(rows, controlled);
  const std::span<double> of_before = std::span(drifts).first(before), of_after = std::span(drifts).last(after);
  const auto mean_drift = [&](std::span<const double> of_side) {
    return level_of(std::vector(of_side.begin(), of_side.end()), repetition).mean;
  };
  result.noise.drift = mean_drift(of_after) - mean_drift(of_before);
  if (!controlled) {  // what is beyond the limit is the build's
    const double machine = std::clamp(result.noise.drift, -limits.drift, limits.drift);
    for (double& drift : of_after) drift -= result.noise.drift - machine;
    result.noise.drift = machine;
  }

  double freedom = 0;
  std::vector<double> variances;
  for (const RepeatedRow& row : rows) {
    const Level old_level = level_of(without(row.before.lower, of_before), repetition);
    const Level new_level = level_of(without(row.after.lower, of_after), repetition);
    freedom = old_level.freedom + new_level.freedom;  // the same for all rows
    variances.push_back((old_level.freedom * old_level.variance + new_level.freedom * new_level.variance) / freedom);
    result.rows.push_back({.lower = new_level.mean - old_level.mean,
                           .median = level_of(without(row.after.median, of_after), repetition).mean -
                                     level_of(without(row.before.median, of_before), repetition).mean});
  }
  const double typical = perf::median(variances);
  const double least = limits.least * limits.least / 2;  // `limits.least` is of a pair
  const double pairs = 1 / static_cast<double>(before) + 1 / static_cast<double>(after);
  const auto drift_rows = static_cast<double>(controlled ? controls : std::ssize(rows));
  const double drift_variance = enough || controlled ? M_PI / 2 * typical * pairs / drift_rows : 0;
  const double quantile =
      student_quantile(kFamilyError / 2 / static_cast<double>(rows.size()), kRepeatedPriorFreedom + freedom);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const double pulled =
        (kRepeatedPriorFreedom * typical + freedom * variances[i]) / (kRepeatedPriorFreedom + freedom);
    double variance = std::max({variances[i], pulled, least});
    if (repetition == Repetition::rounds) variance = variance_of_rounds(variance, enough || controlled);
    result.rows[i].half_width = quantile * std::sqrt(variance * pairs + drift_variance);
  }
  result.noise.drift_error = std::sqrt(drift_variance);
  result.noise.between = std::sqrt(2 * typical);
  result.noise.rows = static_cast<int>(rows.size());
  return result;
}

}  // namespace gable::bench
