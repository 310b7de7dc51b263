// Tests meet neither each other nor another user's: only one file makes temporary directories.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>

#include "house/source_tree.h"

namespace danlu::house {
namespace {

TEST(Tests, WriteOnlyIntoDirectoriesOfTheirOwn) {
  const std::regex by_hand(R"(\b(mk[ds]?temps?|tmpnam|tmpfile|temp_directory_path|TempDir)\s*\()");
  std::vector<std::string> found;
  for (const SourceFile& file : source_files(DANLU_SOURCE_DIR, "tests")) {
    // The second keeps its directory when it is asked to.
    if (file.path == "tests/support/temporary_directory.h" ||
        file.path == "tests/durability/inputs.h")
      continue;
    for (const std::string& line : code_only(file.lines)) {
      if (std::regex_search(line, by_hand)) found.push_back(file.path + ": " + line);
    }
  }
  EXPECT_THAT(found, testing::IsEmpty()) << "use support/temporary_directory.h";
}

}  // namespace
}  // namespace danlu::house
