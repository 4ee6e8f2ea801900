// A hash of a launch's arguments, without addresses. Launches of one kernel with one grid and one block may do
// different work (the layers of a network); their hashes then differ. The same launch has the same hash in another run,
// whose addresses are different.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <set>

namespace gable::cupti {

class ArgumentHash {
 public:
  /// One argument; structures may hold addresses too. `is_address` is asked for words that may be one.
  template <typename IsAddress>
  void add(const void* argument, std::size_t size, const IsAddress& is_address) {
    const auto* bytes = static_cast<const unsigned char*>(argument);
    if (size == 1) {  // a truth value, or a function object without members, whose byte may be anything
      mix(std::min<std::uint64_t>(*bytes, 2));
      return;
    }
    for (std::size_t at = 0; at < size; at += kWord) {
      std::uint64_t word = 0;
      std::memcpy(&word, bytes + at, std::min(kWord, size - at));
      if (may_be_address(word) && is_address(word)) word = kAddress;
      mix(word);
    }
    mix(size);
  }

  /// Never 0, which stands for arguments that are not known.
  std::uint64_t value() const { return std::max<std::uint64_t>(1, state_); }

 private:
  static constexpr std::size_t kWord = 8;
  static constexpr std::uint64_t kAddress = 0x61646472657373;

  /// Two small integers side by side look like one as well.
  static bool may_be_address(std::uint64_t word) { return word >> 32 != 0 && word >> 57 == 0; }

  void mix(std::uint64_t word) {
    state_ ^= word;
    state_ *= 0x9e3779b97f4a7c15;
    state_ ^= state_ >> 29;
  }

  std::uint64_t state_ = 0xcbf29ce484222325;
};

/// Keeps a kernel's first few different hashes and replaces further ones by 0, so that a kernel whose arguments change
/// at each launch (a seed, a step) is not counted again and again.
template <typename Kernel>
class FirstArguments {
 public:
  std::uint64_t limited(const Kernel& kernel, std::uint64_t arguments) {
    std::set<std::uint64_t>& known = known_[kernel];
    if (known.contains(arguments)) return arguments;
    if (known.size() >= kMost) return 0;
    known.insert(arguments);
    return arguments;
  }
  /// The number of different hashes of a kernel so far.
  std::size_t number(const Kernel& kernel) const {
    const auto found = known_.find(kernel);
    return found != known_.end() ? found->second.size() : 0;
  }

 private:
  static constexpr std::size_t kMost = 32;
  std::map<Kernel, std::set<std::uint64_t>> known_;
};

}  // namespace gable::cupti
