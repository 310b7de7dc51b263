// tests/support/shared_data.h: reference material that lies beside the checkout, not in it.
#pragma once
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>

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

/// A group of archives (tokenizers, eval, instruct, corpora), unpacked once into the build folder.
inline std::filesystem::path unpacked(const std::string& group) {
  const std::filesystem::path to = std::filesystem::path(DANLU_BUILD_DIR) / "shared-data";
  const std::filesystem::path done = to / ("." + group + ".done");
  if (std::filesystem::exists(done)) return to / group;
  std::filesystem::create_directories(to);
  const std::string archive = (shared_dir() / "data" / (group + ".tar.xz")).string();
  // Another test program may unpack the same archive: unpack aside, then rename.
  const std::string command =
      "set -e; d=$(mktemp -d '" + to.string() + "/.unpack-XXXXXX'); tar -C \"$d\" -xJf '" +
      archive + "'; rm -rf '" + (to / group).string() + "'; mv \"$d/" + group + "\" '" +
      (to / group).string() + "' 2>/dev/null || true; rm -rf \"$d\"; touch '" + done.string() + "'";
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
