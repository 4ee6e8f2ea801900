// The floating-point operations of one x86 instruction, by a disassembler (Zydis), and of a whole profile: executions
// of every instruction times its operations.
//
// What counts is what the CPUs' own counters count (Intel's FP_ARITH_INST_RETIRED, Intel's manual volume 3 and event
// lists), so that simulated and counted W agree:
//   1 a lane   add, sub, addsub, hadd, hsub, mul, div, sqrt, min, max, reciprocals (rcp, rcp14, rcp28 and rsqrt)
//   2 a lane   fused multiply-add and -subtract in all forms (FMA3, FMA4), dot products of SSE4 (dpps, dppd)
//   0          moves, conversions, compares, rounding, blends, shuffles, logic, and everything on integers
// Scalar forms have one lane; packed forms have the lanes of their first operand, a vector register. Forms with an
// AVX-512 mask count all lanes, as the counters do, and are kept apart: they may have done less. Beyond those counters:
//   x87        1 for arithmetic, sqrt and each transcendental function
//   f16        1 and 2 a lane likewise; 6 and 8 for a product of complex numbers, without and with a sum
//   bf16       vdpbf16ps: 4 for each f32 lane
// AMX' tiles have the size that the program configured at run time: they are reported as unknown.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>

#include "perfcounters/sources/callgrind_profile.h"

namespace gable::perf {

enum class FloatType { f64, f32, f16, bf16, x87 };

/// "f64", "f32", "f16", "bf16", "x87".
const char* to_string(FloatType type);

struct FlopKind {
  FloatType type = FloatType::f64;
  int bits = 0;         ///< of the vector: 128, 256, 512; 0: scalar
  bool masked = false;  ///< only the lanes of an AVX-512 mask were kept, but all are counted
  auto operator<=>(const FlopKind&) const = default;
};

/// "f64 256 bit", "f32 scalar", "f32 512 bit masked".
std::string to_string(const FlopKind& kind);

struct InstructionFlop {
  FlopKind kind{};
  int flop = 0;           ///< of one execution; 0: no floating-point arithmetic
  int bytes = 0;          ///< of memory that its operands read and write
  int length = 0;         ///< of its code, in bytes; 0: no instruction
  std::string unknown{};  ///< not empty: it can't be said; what it is, e.g. "tdpbf16ps"
};

/// Why this build can't disassemble, and the cure; empty where it can.
std::string disassembler_reason();
std::string disassembler_cure();
/// "Zydis 4.0.0"; "no disassembler" without one.
std::string disassembler_version();
inline bool has_disassembler() { return disassembler_reason().empty(); }

/// The FLOP of the first instruction in `code` (64-bit mode). Throws std::logic_error without a disassembler.
InstructionFlop flop_of(std::span<const std::uint8_t> code);

struct InstructionName {
  std::string mnemonic;   ///< "vfmadd231pd"; empty for bytes that are no instruction, and without a disassembler
  std::string extension;  ///< "AVX-512", "AMX", otherwise as Zydis calls it: "FMA", "AVX2"
};
InstructionName name_of(std::span<const std::uint8_t> code);

struct FlopCount {
  std::map<FlopKind, double> by_kind{};
  /// Executions of what may have floating-point operations but is not in by_kind: "tdpbf16ps", "code in no file
  /// (generated at run time)", "/lib/x.so: no such file".
  std::map<std::string, double> unknown{};
  double executions = 0;  ///< of all instructions
  double arithmetic = 0;  ///< of those with floating-point operations
  double bytes = 0;       ///< that they read and write in memory, from whatever cache

  double total() const;   ///< W, masked forms with all their lanes
  double masked() const;  ///< of it, by masked forms
  /// Why total() is no W: more than 1 % of the executed instructions are unknown. Empty: it is.
  std::string refusal() const;
  /// Its limits: masked forms, unknown instructions beyond one in a thousand. Empty: none.
  std::string note() const;
  FlopCount& operator+=(const FlopCount& other);
  FlopCount operator*(double factor) const;
};

/// W of each instruction of each object file, each executed so often. Every file is opened once for all calls of one
/// FlopCounter, and every instruction is disassembled once.
class FlopCounter {
 public:
  FlopCounter();
  ~FlopCounter();
  FlopCounter(const FlopCounter&) = delete;
  FlopCounter& operator=(const FlopCounter&) = delete;
  /// Files with this name, in any folder, count no FLOP: gable's own libraries are not part of the measured program.
  void ignore(const std::string& file_name) { ignored_.insert(file_name); }
  FlopCount count(const LabelledProfile& profile);

 private:
  struct Object;
  Object& object(const std::string& file);
  std::map<std::string, std::unique_ptr<Object>> objects_;
  std::set<std::string> ignored_;
};

}  // namespace gable::perf
