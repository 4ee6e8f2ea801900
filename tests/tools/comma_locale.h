// A locale that writes 1.5 as "1,5", as many do. It is made for the test, since few machines have one.
#pragma once

#include <clocale>
#include <cstdint>
#include <cstdlib>
#include <fstream>

#include "tests/tools/folder.h"

namespace gable::test {

/// The process has it while this lives. glibc's file of LC_NUMERIC: its number, 6 fields, where each of them begins.
class CommaLocale {
 public:
  CommaLocale() {
    std::filesystem::create_directories(folder_.file("comma"));
    constexpr std::uint32_t kHeader[] = {0x20031115U ^ LC_NUMERIC, 6, 32, 34, 35, 36, 40, 44};
    constexpr char kFields[] = ",\0\0\0,\0\0\0\0\0\0\0UTF-8";
    std::ofstream file(folder_.file("comma/LC_NUMERIC"), std::ios::binary);
    file.write(reinterpret_cast<const char*>(kHeader), sizeof(kHeader));
    file.write(kFields, sizeof(kFields));
    file.close();
    ::setenv("LOCPATH", folder_.path().c_str(), 1);
    std::setlocale(LC_NUMERIC, "comma");
    ::unsetenv("LOCPATH");
  }
  ~CommaLocale() { std::setlocale(LC_NUMERIC, "C"); }
  CommaLocale(const CommaLocale&) = delete;
  CommaLocale& operator=(const CommaLocale&) = delete;

  static bool works() { return std::strtod("1,5", nullptr) == 1.5; }

 private:
  Folder folder_{"comma_locale"};
};

}  // namespace gable::test
