// Plain types shared by the CPU kernels. Nothing here knows of tensors or devices: pointers, sizes and these enums.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gable::cpu {

/// Storage type of activations and weights. Arithmetic and accumulation are always f32.
enum class Type { f32, f16, bf16 };

constexpr std::size_t bytes_of(Type type) { return type == Type::f32 ? 4 : 2; }

constexpr const char* name_of(Type type) { return type == Type::f32 ? "f32" : type == Type::f16 ? "f16" : "bf16"; }

/// relu keeps NaN; tanh errs by at most 4 * 2^-23 of its value.
enum class Activation { none, relu, tanh };

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }
constexpr std::int64_t round_up(std::int64_t a, std::int64_t b) { return ceil_div(a, b) * b; }

}  // namespace gable::cpu
