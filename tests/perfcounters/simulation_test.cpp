// Simulated W and Q: callgrind's profiles as text, the FLOP of instructions as bytes, and whole programs of known W and
// Q under valgrind.
#include "perfcounters/program/simulation.h"

#include <doctest/doctest.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "perfcounters/machine/files.h"
#include "perfcounters/program/simulated_parts.h"
#include "perfcounters/sources/callgrind_profile.h"
#include "perfcounters/sources/elf_code.h"
#include "tests/tools/folder.h"

using namespace gable::perf;

namespace {

CallgrindProfile profile_of(const std::string& text) {
  CallgrindProfile profile;
  std::istringstream stream(text);
  add_callgrind_profile(stream, "profile.1", profile);
  return profile;
}

/// What the reader says about a text; empty: it takes it.
std::string complaint(const std::string& text) {
  try {
    profile_of(text);
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "";
}

bool says(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

InstructionFlop flop(std::vector<std::uint8_t> code) { return flop_of(code); }

FlopKind kind(FloatType type, int bits, bool masked = false) { return {.type = type, .bits = bits, .masked = masked}; }

}  // namespace

// ---- Profiles

TEST_CASE("a profile with addresses and lines, relative positions, names used again, calls and jumps") {
  const CallgrindProfile profile = profile_of(
      "# callgrind format\n"
      "version: 1\n"
      "cmd:  ./a b=1 c: 2\n"
      "part: 1\n\n"
      "desc: Trigger: Client Request: gable:a/b c\n\n"
      "positions: instr line\n"
      "events: Ir Dr DLmr\n"
      "summary: 1 2 3\n\n"
      "ob=(1) /bin/app\n"
      "fl=(1) app.c\n"
      "fn=(1) main\n"
      "0x1000 5 10 1 2\n"
      "+4 +1 10\n"
      "cob=(2) /lib/libm.so\n"
      "cfn=(2) sin\n"
      "calls=3 0x40 7\n"
      "* * 999 999 999\n"  // the call's: its position counts, its costs don't
      "-4 5 5\n"           // 0x1000 again
      "jump=2 0x1010 7\n"
      "* *\n"
      "ob=(2)\n"
      "fn=(2)\n"
      "0x40 0 7\n"
      "ob=(1)\n"
      "0x1010 9 1 0 4\n\n"
      "totals: 33 1 6\n");
  const LabelledProfile& dump = profile.at("gable:a/b c");
  CHECK(profile.size() == 1);
  CHECK(dump.dumps == 1);
  CHECK(dump.totals.at("Ir") == 33);
  CHECK(dump.totals.at("DLmr") == 6);
  CHECK(dump.executions.at("/bin/app").at(0x1000) == 15);
  CHECK(dump.executions.at("/bin/app").at(0x1004) == 10);
  CHECK(dump.executions.at("/bin/app").at(0x1010) == 1);
  CHECK(dump.executions.at("/lib/libm.so").at(0x40) == 7);
}

TEST_CASE("several dumps in one file and in several, added up by label; instructions only, and names without numbers") {
  const std::string first =
      "part: 1\ndesc: Trigger: Client Request: x\npositions: instr\nevents: Ir Dr\nob=(1) /a\n0x10 2 1\ntotals: 2 1\n"
      "part: 2\ndesc: Trigger: Program termination\npositions: instr\nevents: Ir Dr\nob=(1)\n0x10 4\n+8 1\ntotals: 5\n";
  const std::string second =
      "desc: Trigger: Client Request: x\npositions: instr\nevents: Ir Dr\nob=/a\nfn=main\n0x10 40\ntotals: 40\n";
  CallgrindProfile profile = profile_of(first);
  std::istringstream more(second);
  add_callgrind_profile(more, "second", profile);
  CHECK(profile.at("x").dumps == 2);
  CHECK(profile.at("x").totals.at("Ir") == 42);
  CHECK(profile.at("x").totals.at("Dr") == 1);
  CHECK(profile.at("x").executions.at("/a").at(0x10) == 42);
  CHECK(profile.at("").executions.at("/a").at(0x10) == 4);
  CHECK(profile.at("").executions.at("/a").at(0x18) == 1);
}

TEST_CASE("a profile of source lines has totals, zeros at their end too, and no executions") {
  const CallgrindProfile profile = profile_of("events: Ir Dr DLdmw\nfn=(1) f\n1 100 50\ntotals: 100 50\n");
  CHECK(profile.at("").totals.at("Ir") == 100);
  CHECK(profile.at("").totals.at("DLdmw") == 0);
  CHECK(profile.at("").executions.empty());
}

TEST_CASE("text that is no profile, is cut off or does not add up is refused, with the line") {
  CHECK(says(complaint(""), "no callgrind profile"));
  CHECK(says(complaint("some text\n"), "line 1 of the callgrind profile is neither a row nor a keyword"));
  CHECK(says(complaint("version: 1\n"), "no line 'events:'"));
  CHECK(says(complaint("12 13\n"), "no line 'events:' before it"));
  CHECK(says(complaint("totals: 1\n"), "no line 'events:' before it"));
  const std::string head = "positions: instr\nevents: Ir Dr\nob=(1) /a\n";
  CHECK(complaint(head + "0x10 1 1\ntotals: 1 1\n").empty());
  CHECK(says(complaint(head + "0x10 1 1\n"), "cut off after line 4"));
  CHECK(says(complaint(head + "0x10 1 1\npart: 2\n"), "the one before has no line 'totals:'"));
  CHECK(says(complaint(head + "0x10 1 1\nevents: Ir\n"), "the one before has no line 'totals:'"));
  CHECK(says(complaint(head + "0x10 1 1\ntotals: 2 1\n"), "Ir = 2, but the rows of that dump add up to 1"));
  CHECK(says(complaint(head + "0x10 1 1 1\ntotals: 1 1\n"), "more costs than the 2 events"));
  CHECK(says(complaint(head + "0x10 one\ntotals: 1 1\n"), "line 4 of the callgrind profile has 'one'"));
  CHECK(says(complaint(head + "0xzz 1\ntotals: 1\n"), "no position where one belongs: '0xzz'"));
  CHECK(says(complaint(head + "+ 1\ntotals: 1\n"), "no position where one belongs"));
  CHECK(says(complaint(head + "0x10 99999999999999999999999\ntotals: 1\n"), "where a cost of Ir belongs"));
  CHECK(says(complaint(head + "ob=(7)\ntotals: 0\n"), "uses the name '(7)' before it is defined"));
  CHECK(says(complaint(head + "ob=(7\ntotals: 0\n"), "without ')'"));
  CHECK(says(complaint(head + "totals: many\n"), "'many' where a total of Ir belongs"));
  CHECK(says(complaint("positions: instr\nevents: Ir\n0x10 1\ntotals: 1\n"), "no line 'ob=' before it"));
  CHECK(says(complaint("events:\n"), "names no events"));
  CHECK(says(complaint("positions: a b c\nevents: Ir\n"), "one or two positions"));
  CHECK_THROWS_AS(
      [] {
        CallgrindProfile none;
        add_callgrind_profile("/nowhere/profile", none);
      }(),
      std::runtime_error);
}

TEST_CASE("a region's part has the regions below it, the residue is apart, and everything else is outside") {
  const auto dump = [](double instructions) { return LabelledProfile{.dumps = 1, .totals = {{"Ir", instructions}}}; };
  const CallgrindProfile profile{{"", dump(1)},          {"gable-end", dump(10)},     {"gable:", dump(100)},
                                 {"gable:a", dump(1e3)}, {"gable:a/b", dump(1e4)},    {"gable:ab", dump(1e5)},
                                 {"other", dump(1e6)},   {"gable-residue", dump(1e7)}};
  const SimulatedParts parts = parts_of(profile, nullptr);
  CHECK(parts.is_swept);
  CHECK(parts.residue.events.at("Ir") == 1e7);
  CHECK(parts.regions.at("").events.at("Ir") == 1000111);
  CHECK(inclusive_part(parts, "a").events.at("Ir") == 11000);
  CHECK(inclusive_part(parts, "a/b").events.at("Ir") == 10000);
  CHECK(inclusive_part(parts, "").events.at("Ir") == 1111111);
  CHECK((inclusive_part(parts, "a/b") * 1.5).events.at("Ir") == 15000);
  CHECK(inclusive_part(parts, "nowhere").events.empty());
}

// ---- Instructions

TEST_CASE("the FLOP of an instruction are those that the CPUs' counters count, by type and width") {
  if (!has_disassembler()) {
    CHECK_FALSE(disassembler_cure().empty());
    CHECK_THROWS_AS(flop({0x90}), std::logic_error);
    MESSAGE("skipped: ", disassembler_reason());
    return;
  }
  struct Expected {
    const char* text;
    std::vector<std::uint8_t> code;
    int flop;
    FlopKind kind;
  };
  const std::vector<Expected> all{
      {"addsd xmm0, xmm1", {0xf2, 0x0f, 0x58, 0xc1}, 1, kind(FloatType::f64, 0)},
      {"mulss xmm0, [rax]", {0xf3, 0x0f, 0x59, 0x00}, 1, kind(FloatType::f32, 0)},
      {"addps xmm0, xmm1", {0x0f, 0x58, 0xc1}, 4, kind(FloatType::f32, 128)},
      {"maxpd xmm0, xmm1", {0x66, 0x0f, 0x5f, 0xc1}, 2, kind(FloatType::f64, 128)},
      {"haddps xmm0, xmm1", {0xf2, 0x0f, 0x7c, 0xc1}, 4, kind(FloatType::f32, 128)},
      {"addsubpd xmm0, xmm1", {0x66, 0x0f, 0xd0, 0xc1}, 2, kind(FloatType::f64, 128)},
      {"rsqrtps xmm0, xmm1", {0x0f, 0x52, 0xc1}, 4, kind(FloatType::f32, 128)},
      {"dpps xmm0, xmm1, 0xf1", {0x66, 0x0f, 0x3a, 0x40, 0xc1, 0xf1}, 8, kind(FloatType::f32, 128)},
      {"vdivpd ymm0, ymm1, ymm2", {0xc5, 0xf5, 0x5e, 0xc2}, 4, kind(FloatType::f64, 256)},
      {"vsqrtps ymm0, ymm1", {0xc5, 0xfc, 0x51, 0xc1}, 8, kind(FloatType::f32, 256)},
      {"vfmadd231pd ymm0, ymm1, ymm2", {0xc4, 0xe2, 0xf5, 0xb8, 0xc2}, 8, kind(FloatType::f64, 256)},
      {"vfmadd231ps ymm0, ymm1, ymm2", {0xc4, 0xe2, 0x75, 0xb8, 0xc2}, 16, kind(FloatType::f32, 256)},
      {"vfnmadd213sd xmm0, xmm1, xmm2", {0xc4, 0xe2, 0xf1, 0xad, 0xc2}, 2, kind(FloatType::f64, 0)},
      {"vfmaddsub132ps xmm0, xmm1, xmm2", {0xc4, 0xe2, 0x71, 0x96, 0xc2}, 8, kind(FloatType::f32, 128)},
      {"vfmaddpd xmm1, xmm2, xmm3, xmm4 (FMA4)", {0xc4, 0xe3, 0xe9, 0x69, 0xcb, 0x40}, 4, kind(FloatType::f64, 128)},
      {"vfmadd231ps zmm0, zmm1, zmm2", {0x62, 0xf2, 0x75, 0x48, 0xb8, 0xc2}, 32, kind(FloatType::f32, 512)},
      {"vfmadd231pd zmm0{k1}, zmm1, zmm2", {0x62, 0xf2, 0xf5, 0x49, 0xb8, 0xc2}, 16, kind(FloatType::f64, 512, true)},
      {"vaddps zmm0{k1}{z}, zmm1, zmm2", {0x62, 0xf1, 0x74, 0xc9, 0x58, 0xc2}, 16, kind(FloatType::f32, 512, true)},
      {"vaddpd zmm0, zmm1, zmm2, {rz-sae}", {0x62, 0xf1, 0xf5, 0x78, 0x58, 0xc2}, 8, kind(FloatType::f64, 512)},
      {"vaddpd ymm0{k1}, ymm1, ymm2", {0x62, 0xf1, 0xf5, 0x29, 0x58, 0xc2}, 4, kind(FloatType::f64, 256, true)},
      {"vrcp14ps zmm0, zmm1", {0x62, 0xf2, 0x7d, 0x48, 0x4c, 0xc1}, 16, kind(FloatType::f32, 512)},
      {"vmulph zmm0, zmm1, zmm2", {0x62, 0xf5, 0x74, 0x48, 0x59, 0xc2}, 32, kind(FloatType::f16, 512)},
      {"vaddsh xmm0, xmm1, xmm2", {0x62, 0xf5, 0x76, 0x08, 0x58, 0xc2}, 1, kind(FloatType::f16, 0)},
      {"vfmaddcph xmm0, xmm1, xmm2", {0x62, 0xf6, 0x76, 0x08, 0x56, 0xc2}, 32, kind(FloatType::f16, 128)},
      {"vfmulcsh xmm0, xmm1, xmm2", {0x62, 0xf6, 0x76, 0x08, 0xd7, 0xc2}, 6, kind(FloatType::f16, 0)},
      {"vdpbf16ps zmm0, zmm1, zmm2", {0x62, 0xf2, 0x76, 0x48, 0x52, 0xc2}, 64, kind(FloatType::bf16, 512)},
      {"fadd st0, st1", {0xd8, 0xc1}, 1, kind(FloatType::x87, 0)},
      {"fmulp st1, st0", {0xde, 0xc9}, 1, kind(FloatType::x87, 0)},
      {"fidiv dword [rax]", {0xda, 0x30}, 1, kind(FloatType::x87, 0)},
      {"fsincos", {0xd9, 0xfb}, 2, kind(FloatType::x87, 0)},
      {"fld st1", {0xd9, 0xc1}, 0, {}},
      {"movaps xmm0, xmm1", {0x0f, 0x28, 0xc1}, 0, {}},
      {"movsd xmm0, [rax]", {0xf2, 0x0f, 0x10, 0x00}, 0, {}},
      {"cmpltps xmm0, xmm1", {0x0f, 0xc2, 0xc1, 0x01}, 0, {}},
      {"ucomisd xmm0, xmm1", {0x66, 0x0f, 0x2e, 0xc1}, 0, {}},
      {"cvtdq2ps xmm0, xmm1", {0x0f, 0x5b, 0xc1}, 0, {}},
      {"cvtps2pd xmm0, xmm1", {0x0f, 0x5a, 0xc1}, 0, {}},
      {"andps xmm0, xmm1", {0x0f, 0x54, 0xc1}, 0, {}},
      {"blendps xmm0, xmm1, 3", {0x66, 0x0f, 0x3a, 0x0c, 0xc1, 0x03}, 0, {}},
      {"roundps xmm0, xmm1, 3", {0x66, 0x0f, 0x3a, 0x08, 0xc1, 0x03}, 0, {}},
      {"paddd xmm0, xmm1", {0x66, 0x0f, 0xfe, 0xc1}, 0, {}},
      {"vpdpbusd zmm0, zmm1, zmm2", {0x62, 0xf2, 0x75, 0x48, 0x50, 0xc2}, 0, {}},
      {"imul eax, ebx", {0x0f, 0xaf, 0xc3}, 0, {}},
      {"nop", {0x90}, 0, {}},
  };
  for (const Expected& one : all) {
    CAPTURE(one.text);
    const InstructionFlop found = flop(one.code);
    CHECK(found.unknown.empty());
    CHECK(found.flop == one.flop);
    CHECK(to_string(found.kind) == to_string(one.kind));
  }
  CHECK(flop({0xc4, 0xe2, 0x6a, 0x5c, 0xc1}).unknown == "tdpbf16ps");  // of AMX: the tiles' size is not in it
  CHECK(flop({0xc4, 0xe2, 0x6b, 0x5e, 0xc1}).unknown.empty());         // tdpbssd: integers
  CHECK_FALSE(flop({0x06}).unknown.empty());
  CHECK_FALSE(flop({}).unknown.empty());
  CHECK(to_string(kind(FloatType::f32, 512, true)) == "f32 512 bit masked");
}

TEST_CASE(
    "W of a profile is executions times FLOP of the file's code; what can't be read is named, and refused if much") {
  if (!has_disassembler()) return;
  const TemporaryFolder folder("gable_simulation_test");
  const std::string program = GABLE_SIMULATED_APP;
  CHECK_THROWS_AS(ElfCode("/nowhere"), std::runtime_error);
  const std::string text = folder.path() + "/text";
  std::ofstream(text) << "#!/bin/sh\n";
  CHECK_THROWS_AS(ElfCode{text}, std::runtime_error);
  const std::string cut = folder.path() + "/cut";
  std::ifstream whole(program, std::ios::binary);
  std::string head(80, ' ');
  whole.read(head.data(), 80);
  std::ofstream(cut, std::ios::binary) << head;
  CHECK_THROWS_AS(ElfCode{cut}, std::runtime_error);
  ElfCode code(program);
  CHECK(code.bytes(~std::uint64_t{0}, 4).empty());

  LabelledProfile profile;
  profile.executions["???"][0x1000] = 5;
  profile.executions["/nowhere/libx.so"][0x40] = 2;
  profile.executions["/lib/libgable_listen.so"][0x40] = 1'000'000;
  FlopCounter counter;
  counter.ignore("libgable_listen.so");
  const FlopCount count = counter.count(profile);
  CHECK(count.total() == 0);
  CHECK(count.executions == 7);
  CHECK(count.unknown.at("code in no file (generated at run time)") == 5);
  CHECK(count.unknown.count("/nowhere/libx.so: No such file or directory") == 1);
  CHECK(says(count.refusal(), "100 % of the executed instructions can't be read: code in no file"));
  FlopCount sum{.by_kind = {{kind(FloatType::f64, 512, true), 30}, {kind(FloatType::f64, 256), 70}},
                .executions = 3500};
  sum += count;
  CHECK(sum.total() == 100);
  CHECK(sum.refusal().empty());
  CHECK(says(sum.note(), "0.2 % of the executed instructions"));
  CHECK(says(sum.note(), "30 % of W by instructions with a mask"));
  CHECK((sum * 2).total() == 200);
}

TEST_CASE("what valgrind prints about an instruction that it can't run becomes a reason and a cure") {
  const std::string printed =
      "vex amd64->IR: unhandled instruction bytes: 0x62 0xF2 0x7D 0x48 0x7C 0xC7 0xB8 0x1 0x0 0x0\n"
      "vex amd64->IR:   REX=0 REX.W=0 REX.R=0 REX.X=0 REX.B=0\n"
      "==7097== valgrind: Unrecognised instruction at address 0x109059.\n"
      "==7097==    at 0x109059: dgemm_kernel (in /usr/lib/libopenblas.so.0)\n"
      "==7097== Process terminating with default action of signal 4 (SIGILL)\n";
  const auto found = find_unknown_instruction(printed);
  REQUIRE(found.has_value());
  if (has_disassembler()) CHECK(says(found->reason, "vpbroadcastd (AVX-512)"));
  CHECK(says(found->reason, "at 0x109059 in dgemm_kernel (in /usr/lib/libopenblas.so.0)"));
  CHECK(says(found->cure, "OPENBLAS_CORETYPE=Haswell"));
  const auto own = find_unknown_instruction("unhandled instruction bytes: 0xFF\n");
  REQUIRE(own.has_value());
  CHECK(says(own->cure, "-march=haswell"));
  CHECK_FALSE(find_unknown_instruction("==1== Command: ./app\n").has_value());
}

// ---- Programs

namespace {

/// Caches small enough that a small program's arrays (512 KiB each) don't fit them.
const CacheGeometries kSmallCaches{.l1i = CacheGeometry{32 << 10, 8},
                                   .l1d = CacheGeometry{16 << 10, 8},
                                   .l2 = CacheGeometry{64 << 10, 8},
                                   .l3 = CacheGeometry{256 << 10, 16}};
constexpr double kElements = 1 << 16;

SimulatedProgram simulate(const std::string& what, std::vector<Metric> metrics = {Metric::flop, Metric::dram_bytes}) {
  SimulationRequest request;
  request.argv = {GABLE_SIMULATED_APP, what};
  request.metrics = std::move(metrics);
  request.caches = kSmallCaches;
  request.seconds_limit = 1200;
  return simulate_program(request);
}

double value(const SimulatedWork& work, Metric metric) {
  CAPTURE(work.quantities.at(metric).reason);
  CHECK(work.quantities.at(metric).value.has_value());
  return work.quantities.at(metric).value.value_or(-1);
}

bool can_simulate() {
  const SourceStatus status = simulation_status(kSmallCaches);
  if (ability(status, Metric::flop).available && ability(status, Metric::dram_bytes).available) return true;
  CHECK_FALSE(status.cure.empty());
  MESSAGE("skipped: simulated programs: ", status.reason);
  return false;
}

bool any_says(const std::vector<std::string>& texts, const std::string& part) {
  for (const std::string& text : texts)
    if (says(text, part)) return true;
  return false;
}

}  // namespace

TEST_CASE("a triad: W within 1 %, Q of every level within 2 % of the known bytes beyond what a start takes") {
  if (!can_simulate()) return;
  const std::vector<Metric> all{Metric::flop, Metric::dram_bytes, Metric::l3_bytes, Metric::l2_bytes};
  const SimulatedProgram start = simulate("nothing", all);
  const SimulatedProgram triad = simulate("triad", all);
  CHECK(start.runs == 3);
  CHECK(value(triad.whole, Metric::flop) == doctest::Approx(2 * kElements).epsilon(0.01));
  CHECK(triad.whole.flop.by_kind.at(kind(FloatType::f64, 256)) == 2 * kElements);
  // Both fill the arrays. The triad then reads two, and reads and writes one.
  for (const Metric metric : {Metric::dram_bytes, Metric::l3_bytes, Metric::l2_bytes}) {
    const double bytes = value(triad.whole, metric) - value(start.whole, metric);
    CHECK(bytes == doctest::Approx(32 * kElements).epsilon(0.02));
  }
  // Three arrays are filled: read and written. Without the sweep at the end, 256 KiB would be missing.
  CHECK(value(start.whole, Metric::dram_bytes) == doctest::Approx(48 * kElements).epsilon(0.1));
  CHECK(value(start.whole, Metric::dram_bytes) > 48 * kElements);
}

TEST_CASE("daxpy, a stencil, a naive and a blocked matrix product: W within 1 %, Q(dram) within 2 %") {
  if (!can_simulate()) return;
  const double start = value(simulate("nothing").whole, Metric::dram_bytes);
  struct Known {
    const char* what;
    double flop, bytes;
  };
  const double matrix = 80 * 80 * 8;
  for (const Known& known :
       {Known{"daxpy", 2 * kElements, 24 * kElements},
        // Rows of 320 bytes: all but the edges of the cube are read, the inner ones also written.
        Known{"stencil", 8 * 38 * 38 * 38, 320 * (40 * 40 - 4 + 2 * 38 * 38)},
        Known{"naive", 2 * 80 * 80 * 80, 4 * matrix}, Known{"blocked", 2 * 80 * 80 * 80, 4 * matrix}}) {
    CAPTURE(known.what);
    const SimulatedWork work = simulate(known.what).whole;
    CHECK(value(work, Metric::flop) == doctest::Approx(known.flop).epsilon(0.01));
    CHECK(value(work, Metric::dram_bytes) - start == doctest::Approx(known.bytes).epsilon(0.02));
  }
}

TEST_CASE("regions have what is inside of them, scaled where not every call was counted") {
  if (!can_simulate()) return;
  const SimulatedProgram program = simulate("regions");
  const double triad = 2 * kElements;
  REQUIRE(program.regions.count("outer/inner") == 1);
  CHECK(value(program.regions.at("outer"), Metric::flop) == 4 * triad);
  CHECK(value(program.regions.at("outer/inner"), Metric::flop) == 2 * triad);
  CHECK(value(program.regions.at("outer/inner"), Metric::dram_bytes) ==
        doctest::Approx(2 * 32 * kElements).epsilon(0.02));
  CHECK(value(program.regions.at("fill"), Metric::flop) < 0.01 * triad);
  const SimulatedWork& often = program.regions.at("often");
  CHECK(often.calls == 1200);
  CHECK(often.counted_calls == 1000);
  CHECK(often.flop.by_kind.at(kind(FloatType::f64, 0)) == doctest::Approx(1200 * 256).epsilon(0.01));
  CHECK(says(often.quantities.at(Metric::flop).note, "1000 of 1200 calls"));
  CHECK(value(program.whole, Metric::flop) >= 4 * triad + 1200 * 256);
}

TEST_CASE("children are counted with the program; lines that _exit() leaves dirty are said to be missing") {
  if (!can_simulate()) return;
  const SimulatedProgram forked = simulate("fork");
  CHECK(value(forked.whole, Metric::flop) == doctest::Approx(4 * kElements).epsilon(0.01));
  CHECK_FALSE(any_says(forked.notes, "without exit()"));
  const SimulatedProgram left = simulate("leave");
  CHECK(value(left.whole, Metric::flop) == doctest::Approx(2 * kElements).epsilon(0.01));
  CHECK(any_says(left.notes, "1 process ended without exit()"));
  CHECK(left.end.status() == 7);
}

TEST_CASE("what a process did before it replaced itself is not simulated, and no number says so") {
  if (!can_simulate()) return;
  const SimulatedProgram replaced = simulate("exec");
  REQUIRE(replaced.regions.count("before") == 1);
  for (const SimulatedWork* work : {&replaced.whole, &replaced.regions.at("before")}) {
    for (const Metric metric : {Metric::flop, Metric::dram_bytes}) {
      CHECK_FALSE(work->quantities.at(metric).value);
      CHECK(says(work->quantities.at(metric).reason, "replaced itself (exec)"));
    }
  }
  CHECK(replaced.regions.at("before").calls == 1);
}

namespace {

/// An environment variable, until the object's end.
class Variable {
 public:
  Variable(const char* name, const std::string& value) : name_(name) {
    if (const char* before = std::getenv(name)) before_ = before;
    ::setenv(name, value.c_str(), 1);
  }
  ~Variable() {
    if (before_)
      ::setenv(name_, before_->c_str(), 1);
    else
      ::unsetenv(name_);
  }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
  std::optional<std::string> before_;
};

}  // namespace

#if defined(GABLE_PRELOADED)
TEST_CASE("lines that are dirty at the end are counted wherever gable lies, or it is said that they are not") {
  if (!can_simulate()) return;
  const gable::test::Folder folder("simulation_test");
  const double swept = value(simulate("nothing").whole, Metric::dram_bytes);
  const std::string blank = folder.file("a blank");
  std::filesystem::create_directories(blank + "/counters");
  std::filesystem::create_symlink(GABLE_PRELOADED, blank + "/counters/libgable_preload.so");
  const Variable plugins("GABLE_BACKEND_PATH", blank);
  const SimulatedProgram start = simulate("nothing");
  CHECK_FALSE(any_says(start.notes, "without exit()"));
  CHECK(value(start.whole, Metric::dram_bytes) == doctest::Approx(swept).epsilon(0.02));
  const Variable temporary("TMPDIR", blank);
  const SimulatedProgram unswept = simulate("nothing");
  CHECK(any_says(unswept.notes, blank + "/counters/libgable_preload.so' can't be loaded"));
  CHECK(value(unswept.whole, Metric::dram_bytes) < swept);
}
#endif

TEST_CASE("options of valgrind in the environment, and a TMPDIR with its placeholders, change nothing") {
  if (!can_simulate()) return;
  const gable::test::Folder folder("simulation_test");
  const std::string percent = folder.file("100%q{HOME}%");
  std::filesystem::create_directories(percent);
  const Variable options("VALGRIND_OPTS", "--leak-check=full --trace-children=no");
  const Variable temporary("TMPDIR", percent);
  CHECK(value(simulate("triad").whole, Metric::flop) == doctest::Approx(2 * kElements).epsilon(0.01));
}

TEST_CASE("signals of Go's scheduler, after which callgrind fails, are turned off") {
  if (!can_simulate()) return;
  SimulationRequest request;
  request.argv = {"sh", "-c", "test \"$GODEBUG\" = gctrace=0,asyncpreemptoff=1"};
  request.caches = kSmallCaches;
  const Variable others("GODEBUG", "gctrace=0");
  CHECK(simulate_program(request).end.status() == 0);
}

TEST_CASE("a failure of valgrind itself is told by its own words about it") {
  if (!can_simulate()) return;
  const gable::test::Folder folder("simulation_test");
  const Variable path("PATH", folder.path().string() + ":" + std::getenv("PATH"));
  const auto reason_after = [&](const std::string& log) {
    gable::test::write_text(folder.file("valgrind"),
                            "#!/bin/sh\n"
                            "for word; do case $word in --log-file=*) log=${word#--log-file=};; esac; done\n"
                            "cat >${log%??}1 <<'end'\n" +
                                log + "\nend\nexit 1\n");
    std::filesystem::permissions(folder.file("valgrind"), std::filesystem::perms::owner_all);
    return simulate("nothing").whole.quantities.at(Metric::flop).reason;
  };
  CHECK(says(reason_after("Callgrind: threads.c:247 (post_signal): Assertion 'a == b' failed.\n"
                          "the version, and what OS and version you are using.  Thanks."),
             "valgrind failed: Callgrind: threads.c:247 (post_signal): Assertion 'a == b' failed."));
  CHECK(says(reason_after("==1== Error: can not open cache simulation output file `/tmp/a/profile.1'\n"
                          "==1== could not unlink /tmp/vgdb-pipe-from-vgdb-to-1-by-someone"),
             "could no longer write into gable's folder in TMPDIR (after setuid() or chroot(), for example)"));
}

TEST_CASE("a program that valgrind does not start for its rights is refused with this reason") {
  if (!can_simulate()) return;
  const gable::test::Folder folder("simulation_test");
  const std::filesystem::path program = folder.file("program");
  std::filesystem::copy_file(GABLE_SIMULATED_APP, program);
  using std::filesystem::perms;
  std::filesystem::permissions(program, perms::owner_all | perms::set_uid);
  SimulationRequest request;
  request.argv = {program.string(), "nothing"};
  CHECK(says(simulate_program(request).whole.quantities.at(Metric::flop).reason,
             "runs with the rights of another user (setuid or setgid)"));
  if (geteuid() == 0) {
    MESSAGE("skipped in part: root may read files that nobody may");
    return;
  }
  std::filesystem::permissions(program, perms::owner_exec);
  CHECK(says(simulate_program(request).whole.quantities.at(Metric::flop).reason, "may be executed but not read"));
}

TEST_CASE("what can't be simulated is refused with the reason and the cure") {
  CHECK_THROWS_AS(simulate_program({}), std::invalid_argument);
  SimulationRequest nothing;
  nothing.argv = {"true"};
  nothing.metrics = {};
  CHECK_THROWS_AS(simulate_program(nothing), std::invalid_argument);
  SimulationRequest blind;
  blind.argv = {"true"};
  blind.metrics = {Metric::dram_bytes, Metric::l1_bytes};
  blind.caches = {};
  const SimulatedProgram none = simulate_program(blind);
  CHECK(none.runs == 0);
  CHECK_FALSE(none.whole.quantities.at(Metric::dram_bytes).reason.empty());
  CHECK(says(none.whole.quantities.at(Metric::l1_bytes).reason, "callgrind does not know of Q(l1)"));
  if (!can_simulate()) return;
  const SimulatedProgram wide = simulate("avx512");
  const std::string reason = wide.whole.quantities.at(Metric::flop).reason;
  CHECK(says(reason, "valgrind can't run the instruction vpbroadcastd (AVX-512)"));
  CHECK(says(wide.cure, "-march=haswell"));
  SimulationRequest endless;
  endless.argv = {GABLE_SIMULATED_APP, "endless"};
  endless.seconds_limit = 1;
  const SimulatedProgram stopped = simulate_program(endless);
  CHECK(says(stopped.whole.quantities.at(Metric::flop).reason, "stopped under valgrind after 1 s"));
  SimulationRequest missing;
  missing.argv = {"/nowhere/app"};
  CHECK(says(simulate_program(missing).whole.quantities.at(Metric::flop).reason, "'/nowhere/app' did not start"));
}
