// A profile for people: sums by name as a table like nvprof's and as CSV, and the kernels that take most of the time.
#pragma once

#include <string>
#include <vector>

#include "bench/record/profile.h"

namespace gable::bench {

/// Sums of the spans. Devices are in the order of their first span, groups in the order of their constants, names by
/// time, the longest first.
std::vector<ProfileRow> profile_rows(const std::vector<Span>& spans);

/// The fewest kernels (or phases) of a group that together make up `percent` of the time of all its kernels. Copies and
/// fills, whose names are in brackets, do not count, neither here nor in the `percent` of the returned rows.
std::vector<ProfileRow> hottest(const std::vector<ProfileRow>& rows, const std::string& device,
                                const std::string& group, double percent = 90);

/// nvprof's columns, and the median: Time(%), Total, Calls, Avg, Min, Median, Max, Name. Rows whose calls spread are
/// marked, as on a machine that other programs use; a line below the tables says how far.
std::string profile_table(const std::vector<ProfileRow>& rows);
std::string profile_csv(const std::vector<ProfileRow>& rows);

}  // namespace gable::bench
