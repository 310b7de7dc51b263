// A comment begins with what it is about, so that nobody has to look for its subject.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>

#include "house/source_tree.h"

namespace danlu::house {
namespace {

bool is_comment(const std::string& line) {
  const size_t begin = line.find_first_not_of(' ');
  return begin != line.npos && line.compare(begin, 2, "//") == 0;
}

/// "path:line: text" of the comments whose first word leaves the subject out.
std::vector<std::string> without_subject(const std::vector<SourceFile>& files) {
  static const std::regex kBegin(R"(^ *///? (Of|Both|Those)\b)");
  std::vector<std::string> found;
  for (const SourceFile& file : files) {
    for (size_t i = 0; i < file.lines.size(); ++i) {
      const bool goes_on = i > 0 && is_comment(file.lines[i - 1]);
      if (!goes_on && std::regex_search(file.lines[i], kBegin))
        found.push_back(file.path + ":" + std::to_string(i + 1) + ": " + file.lines[i]);
    }
  }
  return found;
}

TEST(Comments, BeginWithWhatTheyAreAbout) {
  for (const char* folder : {"src", "tests", "bench"}) {
    const std::vector<SourceFile> files = source_files(root(), folder);
    EXPECT_FALSE(files.empty()) << folder;
    EXPECT_THAT(without_subject(files), testing::IsEmpty()) << "begin with the noun";
  }
}

TEST(Comments, TheFinderSeesFirstLinesAlone) {
  const SourceFile file = {
      "a.h",
      {"/// Of a layer.", "int x;", "  // The sizes", "  // Of which one is first", "int Of;"}};
  EXPECT_THAT(without_subject({file}), testing::ElementsAre("a.h:1: /// Of a layer."));
}

}  // namespace
}  // namespace danlu::house
