// tests/support/slow.h: tests that take long and have a quicker one of their kind beside them, or
// whose parts are tested alone: `make test-slow` runs them.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <initializer_list>
#include <string_view>
#include <vector>

namespace danlu::test {

/// With DANLU_SLOW.
inline bool is_slow() { return std::getenv("DANLU_SLOW") != nullptr; }

/// Whether the case of a TEST_P that runs is called so.
inline bool runs_case(std::initializer_list<std::string_view> names) {
  const std::string_view test = testing::UnitTest::GetInstance()->current_test_info()->name();
  return std::find(names.begin(), names.end(), test.substr(test.find('/') + 1)) != names.end();
}

/// Every fifth of a list; all with DANLU_SLOW. The numbers of values that loops run through are
/// seldom multiples of five, so that each value comes up, beside others each time.
template <typename Case>
std::vector<Case> some_of(std::vector<Case> all) {
  if (is_slow()) return all;
  size_t turn = 0;
  std::erase_if(all, [&](const Case&) { return turn++ % 5 != 0; });
  return all;
}

}  // namespace danlu::test

/// First of a test, or of a fixture's SetUp.
#define DANLU_SLOW_TEST() \
  if (!::danlu::test::is_slow()) GTEST_SKIP() << "slow; DANLU_SLOW=1 runs it"
/// The same for all cases of a TEST_P but these.
#define DANLU_SLOW_BUT_FOR(...)                                              \
  if (!::danlu::test::is_slow() && !::danlu::test::runs_case({__VA_ARGS__})) \
  GTEST_SKIP() << "slow; DANLU_SLOW=1 runs it"
