// Plugins share classes with libgable: their virtual functions and their layout are what GABLE_PLUGIN_ABI numbers. The
// number stands in gable/abi.h beside a checksum of the headers that it was given for.
#include <doctest/doctest.h>
#include <gable/abi.h>

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <string_view>

namespace {

/// The source without comments and without blanks. Literals stay as they are.
std::string code_of(const std::string& source) {
  std::string code;
  char literal = 0;
  for (std::size_t i = 0; i < source.size(); ++i) {
    const std::string_view rest = std::string_view(source).substr(i);
    if (literal != 0) {
      code += source[i];
      if (source[i] == '\\' && i + 1 < source.size()) {
        code += source[++i];
      } else if (source[i] == literal) {
        literal = 0;
      }
    } else if (rest.starts_with("//")) {
      i = std::min(source.find('\n', i), source.size());
    } else if (rest.starts_with("/*")) {
      i = std::min(source.find("*/", i + 2), source.size()) + 1;
    } else if (std::isspace(static_cast<unsigned char>(source[i])) == 0) {
      code += source[i];
      const bool separates_digits =
          source[i] == '\'' && i > 0 && std::isdigit(static_cast<unsigned char>(source[i - 1]));
      if (source[i] == '"' || (source[i] == '\'' && !separates_digits)) literal = source[i];
    }
  }
  return code;
}

std::string read(const std::string& path) {
  std::ifstream file(path);
  REQUIRE_MESSAGE(file, path);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// The public header and those that it includes. abi.h has the checksum; the version is compared for itself.
void collect(const std::string& header, std::set<std::string>& headers) {
  if (header == "gable/abi.h" || header == "gable/version.h" || !headers.insert(header).second) return;
  const std::string source = read(std::string(GABLE_TEST_INCLUDE) + "/" + header);
  constexpr std::string_view kInclude = "#include <gable/";
  for (std::size_t at = source.find(kInclude); at != std::string::npos; at = source.find(kInclude, at + 1)) {
    const std::size_t begin = source.find('<', at) + 1;
    collect(source.substr(begin, source.find('>', begin) - begin), headers);
  }
}

std::set<std::string> plugin_headers() {
  std::set<std::string> headers;
  collect("gable/backend.h", headers);
  collect("gable/study_backend.h", headers);
  return headers;
}

std::string checksum(std::string_view text) {
  std::uint64_t hash = 14695981039346656037ull;  // FNV-1a
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ull;
  char hex[19];
  std::snprintf(hex, sizeof(hex), "0x%016llx", static_cast<unsigned long long>(hash));
  return hex;
}

TEST_CASE("comments and blanks don't count, code does") {
  CHECK(code_of("int a;  // one\n/* two */ int  b;") == "inta;intb;");
  CHECK(code_of("\"a // b\" 'c' 1'000 // d") == "\"a // b\"'c'1'000");
  CHECK(code_of("\"\\\"//\" x /* y") == "\"\\\"//\"x");
  CHECK(checksum(code_of("int a;")) != checksum(code_of("int b;")));
}

TEST_CASE("the headers that plugins share with libgable are those that the ABI number was given for") {
  const std::set<std::string> headers = plugin_headers();
  for (const char* known :
       {"gable/backend.h", "gable/study_backend.h", "gable/plan.h", "gable/tensor.h", "gable/problem.h"}) {
    CAPTURE(known);
    CHECK(headers.contains(known));
  }
  std::string code;
  std::string names;
  for (const std::string& header : headers) {
    code += code_of(read(std::string(GABLE_TEST_INCLUDE) + "/" + header));
    names += " " + header;
  }
  const std::string now = checksum(code);
  const std::string abi = read(std::string(GABLE_TEST_INCLUDE) + "/gable/abi.h");
  CHECK_MESSAGE(abi.find("Checksum of the headers: " + now) != std::string::npos, "one of", names,
                " has changed. Plugins built with the headers before would be accepted and crash. In "
                "api/include/gable/abi.h raise GABLE_PLUGIN_ABI to ",
                GABLE_PLUGIN_ABI + 1, " and write: Checksum of the headers: ", now);
}

}  // namespace
