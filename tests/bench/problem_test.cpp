// The problem descriptor: benchdnn's grammar and defaulting rules, errors that name entry and column, round trips.
#include "bench/workloads/problem.h"

#include <doctest/doctest.h>
#include <gable/error.h>

#include <filesystem>
#include <sstream>
#include <string>

#include "tests/tools/folder.h"

#include "tests/tools/folder.h"

using namespace gable;
using namespace gable::bench;

namespace {

Conv2d conv_of(std::string_view text) { return parse_problem(text).conv; }

/// The error's message, which begins with "unsupported: " for problems that are well formed.
std::string error_of(std::string_view text) {
  try {
    parse_problem(text);
  } catch (const Error& error) {
    return (error.code() == ErrorCode::unsupported ? "unsupported: " : "") + std::string(error.what());
  }
  return "no error";
}

bool contains(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("missing entries take benchdnn's defaults") {
  const Conv2d conv = conv_of("ic3ih32oc8kh3");
  CHECK(conv.input == Shape{2, 3, 32, 32});
  CHECK(conv.weights == Shape{8, 3, 3, 3});
  CHECK(conv.stride == Extent{1, 1});
  CHECK(conv.dilation == Extent{1, 1});
  CHECK(conv.padding == Padding{});
  CHECK(conv.groups == 1);
}

TEST_CASE("every entry reaches its attribute") {
  const Conv2d conv = conv_of("g2mb3ic4ih11iw17oc6oh6ow9kh3kw2sh2sw3ph2pw4dh1dw2");
  CHECK(conv.input == Shape{3, 4, 11, 17});
  CHECK(conv.weights == Shape{6, 2, 3, 2});
  CHECK(conv.stride == Extent{2, 3});
  CHECK(conv.dilation == Extent{2, 3});
  CHECK(conv.groups == 2);
  CHECK(conv.padding == Padding(2, 4, 2, 7));
}

TEST_CASE("order and underscores don't matter") {
  const Conv2d plain = conv_of("g2mb3ic4ih11oc6kh3sh2ph1");
  CHECK(conv_of("g2_mb3_ic4ih11_oc6_kh3_sh2_ph1") == plain);
  CHECK(conv_of("ph1sh2_kh3oc6ih11ic4mb3__g2_") == plain);
}

TEST_CASE("a missing output size follows from the given padding on both sides, and no padding without it") {
  CHECK(conv_output_shape(conv_of("mb1ic1ih10oc1kh3ph1")) == Shape{1, 1, 10, 10});
  CHECK(conv_output_shape(conv_of("mb1ic1ih10oc1kh3")) == Shape{1, 1, 8, 8});
  CHECK(conv_output_shape(conv_of("mb1ic1ih10oc1kh3sh2ph1")) == Shape{1, 1, 5, 5});
}

TEST_CASE("a missing padding follows from the output size") {
  CHECK(conv_of("ic1ih10oc1oh10kh3").padding == Padding(1, 1));
  CHECK(conv_of("ic1ih10oc1oh10kh4").padding == Padding(1, 1, 2, 2));
  CHECK(conv_of("ic1ih10oc1oh10kh3dh1").padding == Padding(2, 2));
}

TEST_CASE("the output size implies the padding below and to the right") {
  CHECK(conv_of("ic1ih10oc1oh11kh3ph1").padding == Padding(1, 1, 2, 2));
  CHECK(conv_of("ic1ih10oc1oh9kh3ph1").padding == Padding(1, 1, 0, 0));
  CHECK(conv_of("ic1ih10oc1oh9kh3ph0").padding == Padding(0, 0, 1, 1));
}

TEST_CASE("rows that no window reaches need no padding") {
  const Conv2d conv = conv_of("ic1ih10oc1oh4kh3sh2");
  CHECK(conv.padding == Padding{});
  CHECK(conv_output_shape(conv) == Shape{2, 1, 4, 4});
}

TEST_CASE("without a width entry everything is square, without a height entry it is 1-D") {
  CHECK(conv_of("ic3ih9oc4oh5kh3sh2ph1dh0") == conv_of("ic3ih9iw9oc4oh5ow5kh3kw3sh2sw2ph1pw1"));
  const Conv2d line = conv_of("ic3iw20oc4kw5sw2pw2");
  CHECK(line.input == Shape{2, 3, 1, 20});
  CHECK(line.weights == Shape{4, 3, 1, 5});
  CHECK(line.padding == Padding(0, 2, 0, 1));
}

TEST_CASE("with iw and kw, the other width entries have defaults of their own") {
  const Conv2d conv = conv_of("ic3ih9iw9oc4kh3kw3sh2ph1");
  CHECK(conv.stride == Extent{2, 1});
  CHECK(conv.padding.left == 0);
}

TEST_CASE("with only one of iw and kw, the height gives the rest") {
  CHECK(conv_of("mb4ic8ih32iw16oc8oh30ow14kh3") == conv_of("mb4ic8ih32iw16oc8oh30ow14kh3kw3"));
  CHECK(conv_of("ic3ih9oc4kh3kw1sh2") == conv_of("ic3ih9iw9oc4kh3kw1sh2sw2"));
}

TEST_CASE("names stand with and without quotes, counts are cut off") {
  CHECK(parse_problem("ic1ih3oc1kh1n\"vgg\"").name == "vgg");
  CHECK(parse_problem("ic1ih3oc1kh1nvgg").name == "vgg");
  CHECK(parse_problem("ic1ih3oc1kh1_n\"resnet:conv1*4\"").name == "resnet:conv1");
  CHECK(parse_problem("ic1ih3oc1kh1_n\"resnet:conv1*4\"").count == 4);
  CHECK(parse_problem("ic1ih3oc1kh1n\"*2\"").count == 2);
  CHECK(parse_problem("ic1ih3oc1kh1n\"a*b\"").name == "a*b");
  CHECK(parse_problem("ic1ih3oc1kh1").name.empty());
}

TEST_CASE("errors name the entry, the column and what is expected") {
  CHECK(error_of("ic3ix5") ==
        "problem 'ic3ix5', column 4: unknown entry 'ix'; known are g, mb, ic, oc, "
        "{i,o,k,s,p,d}{d,h,w} and n\"name\"");
  CHECK(error_of("ic3ihoc4") ==
        "problem 'ic3ihoc4', column 4: unknown entry 'ihoc'; known are g, mb, ic, oc, "
        "{i,o,k,s,p,d}{d,h,w} and n\"name\"");
  CHECK(contains(error_of("ic3ih"), "column 6: 'ih' needs a whole number"));
  CHECK(contains(error_of("ic-3ih4oc1kh1"), "column 3: 'ic' needs a whole number, not '-3'"));
  CHECK(contains(error_of("ic3.5ih4oc1kh1"), "unknown entry '.'"));
  CHECK(contains(error_of("ic3ïh4oc1kh1"), "unknown entry 'ï'"));
  CHECK(contains(error_of("ic99999999999999999999ih4oc1kh1"), "'ic99999999999999999999' is too large"));
  CHECK(contains(error_of("ic1000000001ih4oc1kh1"), "unsupported: "));
  CHECK(contains(error_of("ic1000000001ih4oc1kh1"), "at most 1000000000"));
  CHECK(contains(error_of("ic0ih4oc1kh1"), "'ic0': must be at least 1"));
  CHECK(contains(error_of("ic4ih4oc1kh1sh0"), "'sh0': must be at least 1"));
  CHECK(contains(error_of("ic4ih4oc1kh1kh3"), "column 13: 'kh3' contradicts the kh1 before it; give one of them"));
  CHECK(conv_of("ic4ih4oc1kh1ic4") == conv_of("ic4ih4oc1kh1"));
  CHECK(contains(error_of("ih4oc1kh1"), "'ic' is missing"));
  CHECK(contains(error_of("ic4ih4oc1"), "'kh' is missing"));
  CHECK(contains(error_of("ic4oc1"), "no spatial size"));
  CHECK(contains(error_of("g3ic4oc6ih4kh1"), "g3 must divide both ic4 and oc6"));
  CHECK(contains(error_of("ic1ih4oc1kh7"), "kh7 spans 7"));
  CHECK(contains(error_of("ic1ih4oc1kh1n\"open"), "closing quote"));
  CHECK(contains(error_of("ic1ih4oc1kh1n\"a\"b"), "closing quote"));
  CHECK(contains(error_of("ic1ih4oc1kh1n\"a*0\""), "at least 1"));
  CHECK(contains(error_of("ic1ih4oc1kh1n\"a*-3\""), "the count -3 after '*' must be at least 1"));
  for (const char* name : {"a*-3", "a*3"}) {  // which look like a name with a count
    const Problem named{.name = name, .conv = conv_of("ic1ih4oc1kh1")};
    CHECK(parse_problem(to_string(named)).name == name);
    CHECK(parse_problem(to_string(named)).count == 1);
  }
  CHECK(contains(error_of(""), "empty"));
  CHECK(contains(error_of("_ic1ih4oc1kh1"), "column 1"));
  CHECK(contains(error_of("ic1 ih4oc1kh1"), "unknown entry ' '"));
}

TEST_CASE("the greatest values overflow nothing") {
  CHECK(contains(error_of("ic1ih1000000000oc1kh1000000000dh999999999sh1000000000"), "spans 999999999000000001"));
  CHECK(conv_of("ic1ih1000000000oc1oh1kh1sh1000000000").stride.h == 1000000000);
  for (const char* text : {"ic1ih1000000000oc1oh1000000000kh1000000000dh999999999sh1000000000",
                           "ic1ih9oc1oh9kh1sh999999999", "ic1ih1000000000oc1kh1ph1000000000"}) {
    CHECK(contains(error_of(text), "unsupported: "));
    CHECK(contains(error_of(text), "at most 1000000000 is supported"));  // a descriptor of it could not be read
  }
}

TEST_CASE("a problem that gable can't express is unsupported, not malformed") {
  CHECK(contains(error_of("ic3id8ih8oc4kd3kh3"), "unsupported: problem 'ic3id8ih8oc4kd3kh3': 3-D"));
  CHECK(contains(error_of("mb0ic3ih8oc4kh3"), "unsupported: "));
  CHECK(contains(error_of("ic3ih8oc4oh4kh3"), "unsupported: problem 'ic3ih8oc4oh4kh3': oh4 is smaller than the 6"));
}

TEST_CASE("descriptor() is canonical and reads back as the same convolution") {
  CHECK(descriptor(conv_of("mb1_ic256_ih224_oc256_kh3")) == "mb1ic256ih224oc256oh222kh3");
  CHECK(descriptor(conv_of("mb16ic64ih224oc64oh224kh3")) == "mb16ic64ih224oc64oh224kh3ph1");
  for (const char* text : {"ic3ih32oc8kh3", "g4ic8ih9oc12kh3ph1sh2", "g8mb1ic8ih7oc8oh7kh2", "ic1iw33oc2kw4dw2",
                           "ic2ih5iw9oc3kh2kw5ph1pw0", "ic1ih10oc1oh11kh3ph0", "ic1ih10oc1oh10kh4ph2",
                           "ic1ih12oc1oh4kh3sh3ph0", "ic5ih6iw7oc2kh1kw3sh2sw1dh0dw1pw2", "ic2ih9oc3oh9kh4dh2ph0"}) {
    CAPTURE(text);
    const Problem problem = parse_problem(text);
    CHECK(conv_of(descriptor(problem.conv)) == problem.conv);
    CHECK(descriptor(conv_of(descriptor(problem.conv))) == descriptor(problem.conv));
  }
  const Problem named = parse_problem("ic1ih3oc1kh1n\"conv1*3\"");
  CHECK(to_string(named) == "mb2ic1ih3oc1oh3kh1n\"conv1*3\"");
  CHECK(parse_problem(to_string(named)).count == 3);
}

TEST_CASE("max-pools have sizes and strides; one number means a square") {
  CHECK(parse_max_pool("2") == PoolWindow(2, 2));
  CHECK(parse_max_pool("3x2") == PoolWindow(3, 2));
  CHECK(parse_max_pool("3,2") == PoolWindow({3, 3}, {2, 2}));
  CHECK(parse_max_pool("3x2,1x4") == PoolWindow({3, 2}, {1, 4}));
  for (const char* text : {"", "0", "-1", "2x", "x2", "2,", "2,0", "a", "2 ", "99999999999999999999"}) {
    CAPTURE(text);
    CHECK_THROWS_AS(parse_max_pool(text), Error);
  }
  CHECK(to_string(parse_max_pool("3x2,1x4")) == "3x2,1x4");
  CHECK(to_string(parse_max_pool("2")) == "2x2");
}

TEST_CASE("lists have comments, blank lines, several descriptors a line, and joined words") {
  std::istringstream text(
      "# a comment\n"
      "\n"
      "ic1ih3oc1kh1n\"a\"   # trailing comment\r\n"
      "  ic1ih4oc1kh1n\"b#c\" ic1ih5oc1kh1\n"
      "ic1ih6_\\\n"
      "oc1kh1\n"
      "#ic1ih7oc1kh1\n"
      "ic1ih8oc1kh1");
  const auto entries = parse_list(text);
  REQUIRE(entries.size() == 5);
  CHECK(entries[0].line == 3);
  CHECK(entries[0].problem->name == "a");
  CHECK(entries[1].problem->name == "b#c");
  CHECK(entries[2].line == 4);
  CHECK(entries[3].line == 5);
  CHECK(entries[3].problem->conv.input[2] == 6);
  CHECK(entries[4].problem->conv.input[2] == 8);
}

TEST_CASE("a list drops nothing: what can't run stays with its reason") {
  std::istringstream text(
      "ic3id8ih8oc4kd3kh3\n"
      "--strides=8x1::8x1 ic1ih3oc1kh1\n"
      "--reset\n"
      "ic1ih3oc1kh1\n"
      "garbage\n");
  const auto entries = parse_list(text);
  REQUIRE(entries.size() == 6);
  CHECK(contains(entries[0].refusal, "3-D"));
  CHECK_FALSE(entries[0].malformed);
  CHECK(contains(entries[1].refusal, "option of benchdnn's command"));
  CHECK(contains(entries[2].refusal, "'--strides=8x1::8x1' before it"));
  CHECK_FALSE(entries[3].problem);
  CHECK(entries[4].problem);
  CHECK(entries[5].malformed);
  CHECK(contains(entries[5].refusal, "column 1"));
}

TEST_CASE("a list of a hundred thousand entries is read whole") {
  std::string text;
  for (int i = 1; i <= 100000; ++i) text += "mb1ic" + std::to_string(i % 64 + 1) + "ih14oc32oh14kh3ph1n\"layer\"\n";
  std::istringstream stream(text);
  const auto entries = parse_list(stream);
  REQUIRE(entries.size() == 100000);
  CHECK(entries.back().line == 100000);
  CHECK(entries.back().problem);
}

TEST_CASE("a binary file, such as a model, is refused as a whole") {
  const test::Folder folder("problem_test");
  test::write_text(folder.file("model.onnx"), std::string("\x08\x0a:\0x", 5));
  CHECK_THROWS_WITH_AS(read_list(folder.file("model.onnx")),
                       doctest::Contains("model.onnx': the file is binary, and a list is text"), Error);
}

TEST_CASE("a list that can't be read is an error that names the file") {
  CHECK_THROWS_WITH_AS(read_list("no/such/list"),
                       "problem list 'no/such/list': the file can't be opened: No such file or directory", Error);
  const test::Folder folder("problem_test");
  std::filesystem::create_symlink("loop", folder.file("loop"));
  CHECK_THROWS_WITH_AS(read_list(folder.file("loop")), doctest::Contains("Too many levels of symbolic links"), Error);
}
