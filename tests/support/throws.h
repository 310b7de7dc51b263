// tests/support/throws.h: the text of the error a call throws, for assertions on it.
#pragma once
#include <gtest/gtest.h>

#include <string>

#include "base/error.h"

namespace danlu::test {

/// what() and the English hint of the Error that `call` throws; a test failure and "" if it throws
/// none.
template <typename Expected = Error, typename Call>
std::string error_of(const Call& call) {
  try {
    call();
  } catch (const Expected& e) {
    return std::string(e.what()) + (e.hint().empty() ? "" : " | " + e.hint());
  } catch (const std::exception& e) {
    ADD_FAILURE() << "another kind of error: " << e.what();
    return e.what();
  }
  ADD_FAILURE() << "no error";
  return {};
}

}  // namespace danlu::test
