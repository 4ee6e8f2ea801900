// What is fuzzed: each function takes any bytes and returns. Whatever the bytes are, gable answers with a result or
// with a gable::Error; anything else (another exception, a broken property, a sanitizer's finding) ends the process.
//
// `./run fuzz` builds a libFuzzer program of each one; the test fuzz_test runs all of them on the corpus.
#pragma once

#include <array>
#include <string_view>

namespace gable::fuzz {

void problem(std::string_view data);     ///< a descriptor, there and back
void list(std::string_view data);        ///< a list file
void npy(std::string_view data);         ///< an .npy file
void study(std::string_view data);       ///< a study's JSON, or changes of one; the report's texts, `diff`
void choices(std::string_view data);     ///< the cache of measured choices: a file, or lines with right checksums
void device_uri(std::string_view data);  ///< a device's URI, there and back
void conv2d(std::string_view data);   ///< a convolution's attributes: validate(), shapes, work, every kernel's answer
void kernels(std::string_view data);  ///< a seed: a random problem on a random kernel against the oracle

struct Target {
  const char* name;
  void (*run)(std::string_view data);
};
inline constexpr std::array kTargets{Target{"problem", problem}, Target{"list", list},
                                     Target{"npy", npy},         Target{"study", study},
                                     Target{"choices", choices}, Target{"device_uri", device_uri},
                                     Target{"conv2d", conv2d},   Target{"kernels", kernels}};

/// Ends the process: gable broke a promise on this input.
[[noreturn]] void fail(std::string_view what);

}  // namespace gable::fuzz
