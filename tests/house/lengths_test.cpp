// Files stay under 600 lines and functions under 60, or docs/long_files.txt says why not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "house/source_tree.h"
#include "support/temporary_directory.h"

namespace danlu::house {
namespace {

constexpr int kMaxFileLines = 600;
constexpr int kMaxFunctionLines = 60;

/// docs/long_files.txt: "path: reason" or "path:function: reason".
std::map<std::string, std::string> exceptions() {
  std::map<std::string, std::string> out;
  for (const std::string& line : lines_of(root() / "docs/long_files.txt")) {
    const size_t split = line.find(": ");
    if (line.starts_with('#') || split == line.npos) continue;
    out[line.substr(0, split)] = line.substr(split + 2);
  }
  return out;
}

TEST(Lengths, LongFilesAndFunctionsHaveAReason) {
  const auto allowed = exceptions();
  std::map<std::string, int> found = long_files(root(), kMaxFileLines);
  found.merge(long_functions(root(), kMaxFunctionLines));
  for (const auto& [where, length] : found) {
    EXPECT_TRUE(allowed.contains(where))
        << where << " has " << length << " lines: split it, or add it to docs/long_files.txt";
  }
  for (const auto& [where, reason] : allowed) {
    EXPECT_TRUE(found.contains(where)) << where << " is not long (any more): remove its exception";
    EXPECT_GT(reason.size(), 10u) << where << ": give a reason";
  }
}

TEST(Lengths, TheFinderSeesFunctionsAndMembersButNotTables) {
  const test::TemporaryDirectory tree;
  fs::create_directories(tree / "src/a");
  std::string text = "namespace x {\nint long_one(int a,\n             int b) {\n";
  for (int i = 0; i < 70; ++i) text += "  ++a;\n";  // 70 statements
  text += "}\nclass C {\n public:\n  void member() {\n";
  for (int i = 0; i < 70; ++i) text += "    f();\n";
  text += "  }\n  void brief() { f(); }\n};\nconst std::vector<int (*)(int)> kTable = {\n";
  for (int i = 0; i < 70; ++i) text += "    f,\n";
  text += "};\nstd::vector<int> table() {\n  return {\n";
  for (int i = 0; i < 70; ++i) text += "      1,\n";
  text += "  };\n}\nint brief() {\n  return 1;\n}\n}\n";
  std::ofstream(tree / "src/a/b.cpp") << text;
  EXPECT_THAT(long_functions(tree, 60),
              testing::ElementsAre(testing::Pair("src/a/b.cpp:long_one", 73),
                                   testing::Pair("src/a/b.cpp:member", 72)));
  EXPECT_THAT(long_files(tree, 100), testing::SizeIs(1));
  EXPECT_THAT(long_files(tree, 600), testing::IsEmpty());
}

}  // namespace
}  // namespace danlu::house
