// The tables of families in docs/features.md have the families that there are, and each of these
// stands in the tests of every column.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <regex>
#include <set>

#include "house/source_tree.h"
#include "support/family_table.h"

namespace danlu::house {
namespace {

/// Families of linear attention have a table of their own, whose cells tests/cli/hybrid_test.cpp
/// asks.
bool has_linear_attention(const std::string& family) {
  return family == "qwen3_next" || family.starts_with("qwen3_5");
}

/// The names in src/arch/registry.cpp's list, without those that see pictures and without encoders,
/// which answer nothing.
std::set<std::string> families_in_code() {
  static const std::regex made(R"((\w+)_family\(\))");
  std::set<std::string> names;
  for (const std::string& line : lines_of(root() / "src/arch/registry.cpp")) {
    for (std::sregex_iterator at(line.begin(), line.end(), made), end; at != end; ++at) {
      const std::string name = (*at)[1];
      const bool is_encoder = name == "bert" || name.ends_with("roberta");
      if (!name.ends_with("_vl") && !is_encoder && !has_linear_attention(name)) names.insert(name);
    }
  }
  return names;
}

/// Whether a string in these sources of tests is the family's name, or a path that ends with it.
bool is_named_in(const std::string& family, const std::vector<std::string>& paths) {
  const std::regex quoted("\"([a-z0-9_]+/)?" + family + "\"");
  for (const SourceFile& file : source_files(root(), "tests")) {
    const bool counts = std::any_of(paths.begin(), paths.end(), [&](const std::string& path) {
      return file.path.starts_with(path);
    });
    if (counts && std::any_of(file.lines.begin(), file.lines.end(), [&](const std::string& line) {
          return std::regex_search(line, quoted);
        }))
      return true;
  }
  return false;
}

TEST(Families, TheTablesHaveEachFamilyOfTextOnce) {
  std::vector<std::string> in_tables;
  for (const test::FamilyRow& row : test::family_rows()) in_tables.push_back(row.family);
  EXPECT_THAT(in_tables, testing::UnorderedElementsAreArray(families_in_code()));
  EXPECT_GT(in_tables.size(), 20u) << "the tables were not found";
}

TEST(Families, EveryCellOfTheTablesIsAskedOfTheProgram) {
  std::string asked;
  for (const std::string& line : lines_of(root() / "tests/cli/family_table_test.cpp"))
    asked += line;
  EXPECT_THAT(asked, testing::HasSubstr("ValuesIn(family_rows())"));
  for (const test::FamilyRow& row : test::family_rows()) {
    for (const auto& [title, cell] : row.cells)
      EXPECT_THAT(asked, testing::HasSubstr("\"" + title + "\"")) << "no test of this column";
  }
}

TEST(Families, EachIsComparedTrainedOnMeshesAndCutByItsName) {
  for (const test::FamilyRow& row : test::family_rows()) {
    EXPECT_TRUE(is_named_in(row.family, {"tests/models/"})) << row.family;
    EXPECT_TRUE(
        is_named_in(row.family, {"tests/train/mesh_cases.cpp", "tests/train/expert_mesh_test.cpp"}))
        << row.family << " is on no mesh";
    EXPECT_TRUE(is_named_in(row.family, {"tests/weights/", "tests/support/tiny_model.h"}))
        << row.family;
    if (row.has_experts()) {
      EXPECT_TRUE(is_named_in(row.family, {"tests/cli/family_chain_test.cpp"}))
          << row.family << " has no script of MindSpeed-LLM";
    }
  }
}

}  // namespace
}  // namespace danlu::house
