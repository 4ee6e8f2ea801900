// See repeated.h.
#include "bench/diff/repeated.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "perfcounters/timing.h"

namespace gable::bench {
namespace {

constexpr double kPriorFreedom = 4;

double median_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return perf::quantile(values, 0.5);
}

double mean_of(std::span<const double> values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

/// The lower quartiles of both builds, one after the other.
std::vector<double> all_times(const RepeatedRow& row) {
  std::vector<double> all = row.before.lower;
  all.insert(all.end(), row.after.lower.begin(), row.after.lower.end());
  return all;
}

/// Of each study of both builds.
std::vector<double> drifts_of(std::span<const RepeatedRow> rows, bool controlled) {
  std::vector<std::vector<double>> distances(all_times(rows.front()).size());
  for (const RepeatedRow& row : rows) {
    if (controlled && !row.is_control) continue;
    const std::vector<double> times = all_times(row);
    const double middle = median_of(times);
    for (std::size_t i = 0; i < times.size(); ++i) distances[i].push_back(times[i] - middle);
  }
  std::vector<double> drifts;
  for (std::vector<double>& of_study : distances) drifts.push_back(median_of(std::move(of_study)));
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

}  // namespace

RepeatedResult compare_repeated(std::span<const RepeatedRow> rows, const NoiseLimits& limits) {
  RepeatedResult result;
  if (rows.empty()) return result;
  const std::size_t before = rows.front().before.lower.size(), after = rows.front().after.lower.size();
  const auto controls = std::count_if(rows.begin(), rows.end(), [](const RepeatedRow& row) { return row.is_control; });
  const bool enough = std::ssize(rows) >= kLeastRows, controlled = controls >= kLeastRows;
  std::vector<double> drifts(before + after, 0);
  if (enough || controlled) drifts = drifts_of(rows, controlled);
  const std::span<double> of_before = std::span(drifts).first(before), of_after = std::span(drifts).last(after);
  result.noise.drift = mean_of(of_after) - mean_of(of_before);
  if (!controlled) {  // what is beyond the limit is the build's
    const double machine = std::clamp(result.noise.drift, -limits.drift, limits.drift);
    for (double& drift : of_after) drift -= result.noise.drift - machine;
    result.noise.drift = machine;
  }

  const double freedom = static_cast<double>(before + after - 2);
  std::vector<double> variances;
  for (const RepeatedRow& row : rows) {
    const std::vector<double> old_times = without(row.before.lower, of_before);
    const std::vector<double> new_times = without(row.after.lower, of_after);
    variances.push_back((squares_around_mean(old_times) + squares_around_mean(new_times)) / freedom);
    result.rows.push_back(
        {.lower = mean_of(new_times) - mean_of(old_times),
         .median = mean_of(without(row.after.median, of_after)) - mean_of(without(row.before.median, of_before))});
  }
  const double typical = median_of(variances);
  const double least = limits.least * limits.least / 2;  // `limits.least` is of a pair
  const double pairs = 1 / static_cast<double>(before) + 1 / static_cast<double>(after);
  const auto drift_rows = static_cast<double>(controlled ? controls : std::ssize(rows));
  const double drift_variance = enough || controlled ? M_PI / 2 * typical * pairs / drift_rows : 0;
  const double quantile =
      student_quantile(kFamilyError / 2 / static_cast<double>(rows.size()), kPriorFreedom + freedom);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const double pulled = (kPriorFreedom * typical + freedom * variances[i]) / (kPriorFreedom + freedom);
    const double variance = std::max({variances[i], pulled, least});
    result.rows[i].half_width = quantile * std::sqrt(variance * pairs + drift_variance);
  }
  result.noise.drift_error = std::sqrt(drift_variance);
  result.noise.between = std::sqrt(2 * typical);
  result.noise.rows = static_cast<int>(rows.size());
  return result;
}

}  // namespace gable::bench
