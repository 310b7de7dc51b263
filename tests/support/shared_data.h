// tests/support/shared_data.h: reference material that lies beside the checkout, not in it.
#pragma once
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "support/temporary_directory.h"

namespace danlu::test {

/// DANLU_SHARED, else ../shared beside the source tree.
inline std::filesystem::path shared_dir() {
  if (const char* set = std::getenv("DANLU_SHARED")) return set;
  return std::filesystem::path(DANLU_SOURCE_DIR) / ".." / "shared";
}

inline bool shared_must_exist() {
  const char* ci = std::getenv("CI");
  return ci && std::string(ci) == "true";
}

/// A group of archives (tokenizers, eval, instruct, corpora), unpacked once into the build folder;
/// where that is another user's, once for this process. Nobody changes what lies there.
inline std::filesystem::path unpacked(const std::string& group) {
  std::filesystem::path to = std::filesystem::path(DANLU_BUILD_DIR) / "shared-data";
  if (std::filesystem::exists(to / group)) return to / group;
  std::error_code ignored;
  std::filesystem::create_directories(to, ignored);
  if (::access(to.c_str(), W_OK) != 0) {
    static const TemporaryDirectory kOwn;
    to = kOwn;
    if (std::filesystem::exists(to / group)) return to / group;
  }
  const std::string archive = (shared_dir() / "data" / (group + ".tar.xz")).string();
  // Unpacked aside and renamed: whoever else does the same at this moment leaves it whole.
  const std::string command = "cd '" + to.string() + "' && d=$(mktemp -d .unpack-XXXXXX) && " +
                              "tar -C $d -xJf '" + archive + "' && " + "{ mv -T $d/" + group + " " +
                              group + " 2>/dev/null; rm -rf $d; }";
  if (std::system(command.c_str()) != 0) ADD_FAILURE() << "cannot unpack " << archive;
  return to / group;
}

}  // namespace danlu::test

/// First line of a test that needs reference material: skips (by name) where it is absent, fails
/// under CI=true.
#define DANLU_REQUIRES_SHARED()                                                     \
  do {                                                                              \
    if (!std::filesystem::exists(::danlu::test::shared_dir() / "golden")) {         \
      if (::danlu::test::shared_must_exist())                                       \
        FAIL() << "reference material is missing: " << ::danlu::test::shared_dir(); \
      GTEST_SKIP() << "no reference material at " << ::danlu::test::shared_dir();   \
    }                                                                               \
  } while (0)
