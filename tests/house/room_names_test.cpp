// A name in an anonymous namespace stands in one source of its room: sources are compiled together.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "house/source_tree.h"
#include "support/temporary_directory.h"

namespace danlu::house {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(RoomNames, NoTwoSourcesOfARoomHaveAnAnonymousNameInCommon) {
  EXPECT_THAT(names_met_twice(root()), IsEmpty()) << "rename one of them, or put it into a header";
}

/// A source of a room with `declarations` in its anonymous namespace.
void plant(const fs::path& tree, const std::string& path, const std::string& declarations,
           const std::string& outer = "x") {
  fs::create_directories((tree / path).parent_path());
  std::ofstream(tree / path) << "namespace " << outer << " {\nnamespace {\n\n"
                             << declarations
                             << "\n}  // namespace\n\nint open() { return 0; }\n\n}\n";
}

TEST(RoomNames, FunctionsTypesAndConstantsAreSeen) {
  const test::TemporaryDirectory tree;
  plant(tree, "src/a/one.cpp",
        "struct Span {\n  int at;\n};\nconstexpr int kMost = 1;\nint sum(int a,\n        int b) {\n"
        "  return twice(a);\n}\ntemplate <typename T>\nT shown(T t) {\n  return t;\n}\n");
  plant(tree, "src/a/b/two.cpp",
        "class Span;\nconst double kMost[2] = {1, 2};\nstd::vector<int> sum() { return {}; }\n"
        "template <typename T>\nvoid shown() {}\n");
  EXPECT_THAT(names_met_twice(tree), ElementsAre("x: Span in src/a/b/two.cpp, src/a/one.cpp",
                                                 "x: kMost in src/a/b/two.cpp, src/a/one.cpp",
                                                 "x: shown in src/a/b/two.cpp, src/a/one.cpp",
                                                 "x: sum in src/a/b/two.cpp, src/a/one.cpp"));
}

TEST(RoomNames, OtherRoomsOtherNamespacesAndWhatIsNoDeclarationAreLeftAlone) {
  const test::TemporaryDirectory tree;
  const std::string declarations =
      "// sum(1)\nusing base::sum;\nint sum() {\n  return other(\"sum(\");\n}\n";
  plant(tree, "src/a/one.cpp", declarations);
  plant(tree, "src/b/one.cpp", declarations);
  plant(tree, "src/a/two.cpp", declarations, "x::y");
  plant(tree, "src/a/three.cpp", "using base::sum;\n// int sum() {\nint open_one();\n");
  EXPECT_THAT(names_met_twice(tree), IsEmpty());
}

}  // namespace
}  // namespace danlu::house
