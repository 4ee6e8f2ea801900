// See instruction_flop.h. Mnemonics are matched by their text, "v" + operation + type, because the names are stable
// between Zydis' versions and the numbers are not.
#include "perfcounters/sources/instruction_flop.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <stdexcept>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "perfcounters/sources/elf_code.h"

#if GABLE_HAS_ZYDIS
#include <Zydis/Zydis.h>
#endif

namespace gable::perf {
namespace {

constexpr std::size_t kLongestInstruction = 15;
// Shares of the executed instructions. Start-up code in sections that valgrind takes for no file is some hundreds of
// instructions.
constexpr double kMaxUnknown = 0.01;
constexpr double kNotedUnknown = 0.001;

#if GABLE_HAS_ZYDIS

struct Operation {
  std::string_view name;
  int flop;
};

/// FLOP of each lane, by mnemonic without the prefix "v" and the type at the end.
constexpr std::array kLaneOperations{
    Operation{"add", 1},     Operation{"sub", 1},     Operation{"mul", 1},      Operation{"div", 1},
    Operation{"min", 1},     Operation{"max", 1},     Operation{"minmax", 1},   Operation{"sqrt", 1},
    Operation{"addsub", 1},  Operation{"hadd", 1},    Operation{"hsub", 1},     Operation{"rcp", 1},
    Operation{"rsqrt", 1},   Operation{"rcp14", 1},   Operation{"rsqrt14", 1},  Operation{"rcp28", 1},
    Operation{"rsqrt28", 1}, Operation{"dp", 2},      Operation{"fmadd", 2},    Operation{"fmsub", 2},
    Operation{"fnmadd", 2},  Operation{"fnmsub", 2},  Operation{"fmaddsub", 2}, Operation{"fmsubadd", 2},
    Operation{"4fmadd", 8},  Operation{"4fnmadd", 8}, Operation{"dpbf16", 4},   Operation{"fmulc", 3},
    Operation{"fcmulc", 3},  Operation{"fmaddc", 4},  Operation{"fcmaddc", 4},
};

constexpr std::array<std::string_view, 28> kX87Operations{
    "fadd",  "faddp", "fiadd",  "fsub",  "fsubp", "fisub",   "fsubr",  "fsubrp", "fisubr", "fmul",
    "fmulp", "fimul", "fdiv",   "fdivp", "fidiv", "fdivr",   "fdivrp", "fidivr", "fsqrt",  "fsin",
    "fcos",  "fptan", "fpatan", "f2xm1", "fyl2x", "fyl2xp1", "fprem",  "fprem1"};
constexpr std::string_view kX87SineAndCosine = "fsincos";

struct ElementType {
  std::string_view suffix;
  FloatType type;
  int bits;
  bool scalar;
};
constexpr std::array kElementTypes{
    ElementType{"pd", FloatType::f64, 64, false}, ElementType{"sd", FloatType::f64, 64, true},
    ElementType{"ps", FloatType::f32, 32, false}, ElementType{"ss", FloatType::f32, 32, true},
    ElementType{"ph", FloatType::f16, 16, false}, ElementType{"sh", FloatType::f16, 16, true},
};

bool ends_with(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

template <std::size_t N>
bool contains(const std::array<std::string_view, N>& names, std::string_view name) {
  for (const std::string_view one : names)
    if (one == name) return true;
  return false;
}

struct Decoded {
  ZydisDecodedInstruction instruction;
  std::array<ZydisDecodedOperand, ZYDIS_MAX_OPERAND_COUNT> operands;
  std::string_view mnemonic;
};

/// False for bytes that are no instruction.
bool decode(std::span<const std::uint8_t> code, Decoded& decoded) {
  static const ZydisDecoder decoder = [] {
    ZydisDecoder made;
    ZydisDecoderInit(&made, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64);
    return made;
  }();
  if (!ZYAN_SUCCESS(
          ZydisDecoderDecodeFull(&decoder, code.data(), code.size(), &decoded.instruction, decoded.operands.data())))
    return false;
  const char* name = ZydisMnemonicGetString(decoded.instruction.mnemonic);
  decoded.mnemonic = name == nullptr ? "" : name;
  return true;
}

bool is_masked(const ZydisDecodedInstruction& instruction) {
  const ZydisRegister mask = instruction.avx.mask.reg;
  return mask != ZYDIS_REGISTER_NONE && mask != ZYDIS_REGISTER_K0;
}

/// Bytes of its memory operands, including the stack's. A gather counts one element.
int memory_bytes(const Decoded& decoded) {
  int bits = 0;
  for (std::size_t i = 0; i < decoded.instruction.operand_count; ++i) {
    const ZydisDecodedOperand& operand = decoded.operands[i];
    if (operand.type == ZYDIS_OPERAND_TYPE_MEMORY && operand.mem.type == ZYDIS_MEMOP_TYPE_MEM) bits += operand.size;
  }
  return bits / 8;
}

/// FLOP of an SSE, AVX or AVX-512 instruction with this element type in its name.
InstructionFlop vector_flop(const Decoded& decoded, const ElementType& element) {
  std::string_view name = decoded.mnemonic;
  name.remove_suffix(element.suffix.size());
  if (!name.empty() && name.front() == 'v') name.remove_prefix(1);
  for (const std::string_view order : {"132", "213", "231"})  // which operand of an FMA is overwritten
    if (ends_with(name, order)) name.remove_suffix(order.size());
  const auto* operation = std::find_if(kLaneOperations.begin(), kLaneOperations.end(),
                                       [&](const Operation& one) { return one.name == name; });
  if (operation == kLaneOperations.end()) return {};
  InstructionFlop result;
  result.kind = {.type = name == "dpbf16" ? FloatType::bf16 : element.type,
                 .bits = element.scalar ? 0 : static_cast<int>(decoded.operands[0].size),
                 .masked = is_masked(decoded.instruction)};
  const bool complex = ends_with(name, "mulc") || ends_with(name, "maddc");
  const int scalar_lanes = complex ? 2 : 1;
  result.flop = operation->flop * (element.scalar ? scalar_lanes : result.kind.bits / element.bits);
  return result;
}

InstructionFlop flop_of(const Decoded& decoded) {
  const std::string_view name = decoded.mnemonic;
  if (contains(kX87Operations, name)) return {.kind = {.type = FloatType::x87}, .flop = 1};
  if (name == kX87SineAndCosine) return {.kind = {.type = FloatType::x87}, .flop = 2};
  // AMX: tdpbf16ps, tdpfp16ps, tcmmimfp16ps, …; how large the tiles are is not in the instruction.
  if ((name.starts_with("tdp") || name.starts_with("tcmm") || name.starts_with("tmmul")) && ends_with(name, "ps"))
    return {.kind = {}, .flop = 0, .unknown = std::string(name)};
  for (const ElementType& element : kElementTypes)
    if (ends_with(name, element.suffix)) return vector_flop(decoded, element);
  return {};
}
#endif

}  // namespace

const char* to_string(FloatType type) {
  constexpr std::array kNames{"f64", "f32", "f16", "bf16", "x87"};
  return kNames.at(static_cast<std::size_t>(type));
}

std::string to_string(const FlopKind& kind) {
  const std::string width = kind.bits == 0 ? "scalar" : fmt::format("{} bit", kind.bits);
  return fmt::format("{} {}{}", to_string(kind.type), width, kind.masked ? " masked" : "");
}

std::string disassembler_reason() {
  return GABLE_HAS_ZYDIS ? "" : "this build of gable can't read instructions: Zydis was not there when it was built";
}

std::string disassembler_cure() {
  return GABLE_HAS_ZYDIS ? "" : "install Zydis 4 (apt-get install libzydis-dev) and build again";
}

std::string disassembler_version() {
#if GABLE_HAS_ZYDIS
  const ZyanU64 version = ZydisGetVersion();
  return fmt::format("Zydis {}.{}.{}", ZYDIS_VERSION_MAJOR(version), ZYDIS_VERSION_MINOR(version),
                     ZYDIS_VERSION_PATCH(version));
#else
  return "no disassembler";
#endif
}

#if GABLE_HAS_ZYDIS
InstructionName name_of(std::span<const std::uint8_t> code) {
  Decoded decoded;
  if (!decode(code, decoded)) return {};
  const char* text = ZydisISAExtGetString(decoded.instruction.meta.isa_ext);
  const std::string_view extension = text == nullptr ? "" : text;
  return {.mnemonic = std::string(decoded.mnemonic),
          .extension = extension.starts_with("AVX512") ? "AVX-512"
                       : extension.starts_with("AMX")  ? "AMX"
                                                       : std::string(extension)};
}

InstructionFlop flop_of(std::span<const std::uint8_t> code) {
  Decoded decoded;
  if (!decode(code, decoded)) return {.kind = {}, .flop = 0, .unknown = "bytes that are no known instruction"};
  InstructionFlop result = flop_of(decoded);
  result.bytes = memory_bytes(decoded);
  result.length = decoded.instruction.length;
  return result;
}
#else
InstructionName name_of(std::span<const std::uint8_t>) { return {}; }
InstructionFlop flop_of(std::span<const std::uint8_t>) { throw std::logic_error(disassembler_reason()); }
#endif

// ---- FlopCount

double FlopCount::total() const {
  double sum = 0;
  for (const auto& [kind, flop] : by_kind) sum += flop;
  return sum;
}

double FlopCount::masked() const {
  double sum = 0;
  for (const auto& [kind, flop] : by_kind) sum += kind.masked ? flop : 0;
  return sum;
}

namespace {

/// "12 % of the executed instructions can't be read: code in no file (generated at run time)"; empty up to `share`.
std::string unknown_beyond(const FlopCount& count, double share) {
  double sum = 0;
  const std::pair<const std::string, double>* most = nullptr;
  for (const auto& one : count.unknown) {
    sum += one.second;
    if (most == nullptr || one.second > most->second) most = &one;
  }
  if (sum <= share * count.executions || most == nullptr) return "";
  return fmt::format("{:.3g} % of the executed instructions can't be read: {}", 100 * sum / count.executions,
                     most->first);
}

}  // namespace

std::string FlopCount::refusal() const { return unknown_beyond(*this, kMaxUnknown); }

std::string FlopCount::note() const {
  std::string text = unknown_beyond(*this, kNotedUnknown);
  if (masked() > 0)
    text += fmt::format("{}{:.3g} % of W by instructions with a mask, of which all lanes are counted",
                        text.empty() ? "" : "; ", 100 * masked() / total());
  return text;
}

FlopCount& FlopCount::operator+=(const FlopCount& other) {
  for (const auto& [kind, flop] : other.by_kind) by_kind[kind] += flop;
  for (const auto& [what, times] : other.unknown) unknown[what] += times;
  executions += other.executions;
  arithmetic += other.arithmetic;
  bytes += other.bytes;
  return *this;
}

FlopCount FlopCount::operator*(double factor) const {
  FlopCount scaled = *this;
  for (auto& [kind, flop] : scaled.by_kind) flop *= factor;
  for (auto& [what, times] : scaled.unknown) times *= factor;
  scaled.executions *= factor;
  scaled.arithmetic *= factor;
  scaled.bytes *= factor;
  return scaled;
}

// ---- FlopCounter

/// An object file, and what is known of its instructions.
struct FlopCounter::Object {
  std::optional<ElfCode> code{};
  std::string reason{};  // why there is no code
  std::unordered_map<std::uint64_t, InstructionFlop> instructions{};

  const InstructionFlop& at(const std::string& file, std::uint64_t address) {
    const auto [entry, is_new] = instructions.try_emplace(address);
    InstructionFlop& instruction = entry->second;
    if (!is_new) return instruction;
    if (!code) {
      instruction.unknown = reason;
      return instruction;
    }
    const std::vector<std::uint8_t> bytes = code->bytes(address, kLongestInstruction);
    if (bytes.empty())
      instruction.unknown = file + ": no code at an address that ran (was the file replaced?)";
    else
      instruction = flop_of(bytes);
    return instruction;
  }
};

FlopCounter::FlopCounter() {
  if (!has_disassembler()) throw std::logic_error(disassembler_reason());
}
FlopCounter::~FlopCounter() = default;

FlopCounter::Object& FlopCounter::object(const std::string& file) {
  std::unique_ptr<Object>& entry = objects_[file];
  if (entry) return *entry;
  entry = std::make_unique<Object>();
  Object& object = *entry;
  if (file == "???") {
    object.reason = "code in no file (generated at run time)";
    return object;
  }
  try {
    object.code.emplace(file);
  } catch (const std::runtime_error& error) {
    object.reason = error.what();
  }
  return object;
}

FlopCount FlopCounter::count(const LabelledProfile& profile) {
  FlopCount sum;
  for (const auto& [file, executions] : profile.executions) {
    if (ignored_.count(file.substr(file.rfind('/') + 1)) > 0) continue;
    Object& its = object(file);
    for (const auto& [address, times] : executions) {
      const InstructionFlop& instruction = its.at(file, address);
      sum.executions += static_cast<double>(times);
      sum.bytes += static_cast<double>(instruction.bytes) * static_cast<double>(times);
      if (!instruction.unknown.empty()) sum.unknown[instruction.unknown] += static_cast<double>(times);
      if (instruction.flop <= 0) continue;
      sum.arithmetic += static_cast<double>(times);
      sum.by_kind[instruction.kind] += static_cast<double>(instruction.flop) * static_cast<double>(times);
    }
  }
  return sum;
}

}  // namespace gable::perf
