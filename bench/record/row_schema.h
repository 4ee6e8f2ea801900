// The part of the schema that is about rows ("measurements" of a study).
#pragma once

#include <array>
#include <string>

#include "bench/record/field_check.h"

namespace gable::bench {

inline constexpr std::array kDtypes{"f64", "f32", "tf32", "f16", "bf16", "i8"};
inline constexpr std::array kMaths{"strict", "tf32", "split3", "split6"};
inline constexpr std::array kSources{"counter", "simulated", "analytic"};

// `at` is the entry's JSON pointer.
void check_measurement(Checker& check, const nlohmann::json& entry, const std::string& at);

// Fields that other entries of a study have too.
void check_device_kind(Checker& check, const nlohmann::json& entry, const std::string& at);
void check_called(Checker& check, const nlohmann::json& entry, const std::string& at, Presence presence);

}  // namespace gable::bench
