// docs/features.md: every path it names exists, and every feature has a test or says that it has
// none. tests/serve/README.md: every test that it names exists.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <regex>
#include <set>

#include "house/source_tree.h"

namespace danlu::house {
namespace {

std::vector<std::string> cells_of(const std::string& row) {
  std::vector<std::string> cells;
  std::string cell;
  for (size_t i = 1; i < row.size(); ++i) {
    if (row[i] == '|') {
      cells.push_back(cell);
      cell.clear();
    } else {
      cell += row[i];
    }
  }
  return cells;
}

std::vector<std::string> paths_in(const std::string& cell) {
  static const std::regex quoted("`([^`]+)`");
  std::vector<std::string> paths;
  for (std::sregex_iterator at(cell.begin(), cell.end(), quoted), end; at != end; ++at) {
    paths.push_back((*at)[1]);
  }
  return paths;
}

TEST(Features, EveryPathInTheTableExists) {
  int num_rows = 0;
  for (const std::string& line : lines_of(root() / "docs/features.md")) {
    if (!line.starts_with("| ") || line.starts_with("| feature")) continue;
    const std::vector<std::string> cells = cells_of(line);
    ASSERT_EQ(cells.size(), 4u) << "feature | file | test | status: " << line;
    for (const int column : {1, 2}) {
      for (const std::string& path : paths_in(cells[column])) {
        EXPECT_TRUE(fs::exists(root() / path)) << path << " in: " << line;
      }
    }
    EXPECT_THAT(paths_in(cells[1]), testing::Not(testing::IsEmpty())) << "no file: " << line;
    const bool tested = !paths_in(cells[2]).empty();
    const bool honest = cells[3].find("not tested") != std::string::npos;
    EXPECT_TRUE(tested || honest) << "no test, and the status does not say 'not tested': " << line;
    ++num_rows;
  }
  EXPECT_GT(num_rows, 10) << "the table was not found";
}

/// UTF-8's characters.
size_t characters(const std::string& text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

TEST(Features, NoCellIsAPage) {
  constexpr size_t kMost = 202;  // 200 and the spaces beside them
  for (const std::string& line : lines_of(root() / "docs/features.md")) {
    if (!line.starts_with("| ")) continue;
    for (const std::string& cell : cells_of(line))
      EXPECT_LE(characters(cell), kMost) << "say it in 200 characters: " << cell;
  }
}

TEST(Features, EveryRelativeLinkInTheDocsLeadsSomewhere) {
  static const std::regex link(R"(\]\(([^)#:]+)(#[^)]*)?\))");
  int num_links = 0;
  std::vector<fs::path> pages = {root() / "README.md", root() / "README.zh-CN.md",
                                 root() / "CONTRIBUTING.md", root() / "CHANGELOG.md"};
  for (const auto& entry : fs::recursive_directory_iterator(root() / "docs")) {
    if (entry.path().extension() == ".md") pages.push_back(entry.path());
  }
  for (const fs::path& page : pages) {
    EXPECT_TRUE(fs::exists(page)) << page;
    for (const std::string& line : lines_of(page)) {
      for (std::sregex_iterator at(line.begin(), line.end(), link), end; at != end; ++at) {
        EXPECT_TRUE(fs::exists(page.parent_path() / (*at)[1].str())) << page << ": " << (*at)[1];
        ++num_links;
      }
    }
  }
  EXPECT_GT(num_links, 3);
}

/// "Suite.Test" of gtest, and "script.mjs: check", of all tests.
std::set<std::string> names_of_tests() {
  static const std::regex test(R"(TEST(?:_F|_P)?\((\w+), (\w+)\))"), check(R"(^  async (\w+)\()");
  std::set<std::string> names;
  for (const SourceFile& file : source_files(root(), "tests")) {
    for (const std::string& line : file.lines) {
      std::smatch found;
      if (std::regex_search(line, found, test)) names.insert(found.str(1) + "." + found.str(2));
    }
  }
  for (const auto& entry : fs::directory_iterator(root() / "tests/cli")) {
    if (entry.path().extension() != ".mjs") continue;
    for (const std::string& line : lines_of(entry.path())) {
      std::smatch found;
      if (std::regex_search(line, found, check))
        names.insert(entry.path().filename().string() + ": " + found.str(1));
    }
  }
  return names;
}

TEST(Lists, EveryTestThatIsNamedBesideAnothersIsThere) {
  const std::set<std::string> names = names_of_tests();
  int num_named = 0;
  for (const std::string& line : lines_of(root() / "tests/serve/README.md")) {
    if (!line.starts_with("| ") || line.starts_with("| it asserts")) continue;
    const std::vector<std::string> cells = cells_of(line);
    ASSERT_EQ(cells.size(), 2u) << "what it asserts | our tests: " << line;
    EXPECT_THAT(paths_in(cells[1]), testing::Not(testing::IsEmpty())) << line;
    for (const std::string& name : paths_in(cells[1])) {
      EXPECT_TRUE(names.contains(name)) << name << " in: " << line;
      ++num_named;
    }
  }
  EXPECT_GT(num_named, 100) << "the tables were not found";
}

}  // namespace
}  // namespace danlu::house
