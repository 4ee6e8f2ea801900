// Lets a piece of work run out of memory at each of its allocations, one after the other.
#pragma once

#include <doctest/doctest.h>
#include <gable/error.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <exception>
#include <new>
#include <string>

#include "tests/tools/allocation_counter.h"

namespace gable::conformance {

/// Beyond so many allocations not each one fails, but every hundredth of what came before: the failures of a loop's
/// tenth round are those of its first.
constexpr long kAllOfThem = 400;

/// What `work` threw other than a lack of memory; empty if nothing.
template <class Work>
std::array<char, 256> wrong_error_of(const Work& work) {
  std::array<char, 256> text{};  // no string: there may be no memory for one
  const auto keep = [&](const char* what) { std::snprintf(text.data(), text.size(), "%s", what); };
  try {
    work();
  } catch (const Error& error) {
    if (error.code() != ErrorCode::out_of_memory) keep(error.what());
  } catch (const std::bad_alloc&) {
  } catch (const std::exception& error) {
    keep(error.what());
  }
  return text;
}

/// One call of `work` that ran out of memory.
struct Shortage {
  bool failed = false;                  ///< it came to the allocation that fails
  long left = 0;                        ///< allocations that were not freed
  std::array<char, 256> wrong_error{};  ///< empty: none, or one that says out of memory
};

template <class Work>
Shortage run_short(const Work& work, long nth, Failing failing) {
  Shortage shortage;
  const long live = live_allocations();
  fail_allocation(nth, failing);
  shortage.wrong_error = wrong_error_of(work);
  shortage.failed = allocation_failed();
  shortage.left = live_allocations() - live;
  return shortage;
}

/// Calls `work` with its first allocation failing, then its second, and so on until it needs no more; then the same
/// with all allocations failing from there on. Returns how many it needs. Each failure must be reported as a lack of
/// memory or done without (a sort needs no buffer), and leave no memory behind, except what is kept once (a cache).
/// `works_after` must hold after each.
template <class Work, class After>
long out_of_memory_everywhere(const Work& work, const After& works_after) {
  work();  // allocates what stays for the life of the process
  long most = 0;
  for (const Failing failing : {Failing::one, Failing::from_there_on}) {
    for (long nth = 0;; nth += nth < kAllOfThem ? 1 : nth / 100) {
      const Shortage shortage = run_short(work, nth, failing);
      const bool leaks = shortage.left > 0 && run_short(work, nth, failing).left > 0;
      INFO("allocation number ", nth, std::string(failing == Failing::one ? "" : " and all that follow"));
      CHECK(std::string(shortage.wrong_error.data()) == "");
      CHECK_FALSE(leaks);
      most = std::max(most, nth);
      if (!shortage.failed) break;
      CHECK(works_after());
    }
  }
  return most;
}

template <class Work>
long out_of_memory_everywhere(const Work& work) {
  return out_of_memory_everywhere(work, [] { return true; });
}

}  // namespace gable::conformance
