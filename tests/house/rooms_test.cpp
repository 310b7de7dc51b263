// docs/rooms.txt is law: every #include in src/ is checked against it, and the checker against
// planted faults.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <regex>
#include <sstream>

#include "house/source_tree.h"
#include "support/temporary_directory.h"

namespace danlu::house {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

/// A small tree of its own for each planted fault.
class PlantedTree : public testing::Test {
 protected:
  void write(const std::string& path, const std::string& text) const {
    fs::create_directories((dir_ / path).parent_path());
    std::ofstream(dir_ / path) << text;
  }
  std::map<std::string, Room> rooms(const std::string& text) const {
    write("rooms.txt", text);
    return read_rooms(dir_ / "rooms.txt");
  }
  const test::TemporaryDirectory dir_;
};

TEST(Rooms, TheTableHasNoCycleAndNoUnknownRoom) {
  EXPECT_THAT(room_table_violations(read_rooms(root() / "docs/rooms.txt")), IsEmpty());
}

TEST(Rooms, EveryIncludeIsAllowed) {
  const IncludeReport report = check_includes(root(), read_rooms(root() / "docs/rooms.txt"));
  EXPECT_THAT(report.violations, IsEmpty());
  EXPECT_GT(report.num_edges, 50) << "an empty tree would pass: the check itself is broken";
}

TEST(Rooms, CMakeLinksNoMoreThanTheTableAllows) {
  const auto rooms = read_rooms(root() / "docs/rooms.txt");
  std::string text;
  for (const std::string& line : lines_of(root() / "CMakeLists.txt")) text += line + " ";
  static const std::regex call(R"(danlu_room\((\w+)([^)]*)\))");
  int num_rooms = 0;
  for (std::sregex_iterator at(text.begin(), text.end(), call), end; at != end; ++at) {
    const std::string name = (*at)[1];
    ASSERT_TRUE(rooms.contains(name)) << name;
    EXPECT_EQ(rooms.at(name).torch, (*at)[2].str().find("TORCH") != std::string::npos) << name;
    std::istringstream words((*at)[2]);
    bool in_deps = false;
    for (std::string word; words >> word;) {
      if (word == "DEPS") {
        in_deps = true;
      } else if (word == "LIBS" || word == "TORCH") {
        in_deps = false;
      } else if (in_deps) {
        EXPECT_TRUE(rooms.at(name).may_include.contains(word)) << name << " links " << word;
      }
    }
    ++num_rooms;
  }
  EXPECT_GT(num_rooms, 10);
}

TEST_F(PlantedTree, AnIllegalIncludeIsNamedWithFileAndLine) {
  write("src/parallel/bad.h", "#pragma once\n#include \"models/x.h\"\n#include \"base/error.h\"\n");
  const auto report = check_includes(dir_, rooms("base:\nparallel*: base\nmodels*: parallel\n"));
  EXPECT_THAT(report.violations,
              ElementsAre("src/parallel/bad.h:2: room 'parallel' may not include 'models'"));
  EXPECT_EQ(report.num_edges, 2);
}

TEST_F(PlantedTree, ATorchHeaderInATorchFreeRoom) {
  write("src/text/a.cpp", "#include <ATen/ATen.h>\n");
  write("src/ops/a.cpp", "#include <ATen/ATen.h>\n");
  write("src/ops/a.h", "#include <torch/torch.h>\n");
  write("src/cli/main.cpp", "#include \"ops/a.h\"\n");
  write("src/cli/engine/sft.cpp", "#include \"ops/a.h\"\n#include <ATen/ATen.h>\n");
  const auto report = check_includes(dir_, rooms("text:\nops*:\ncli*: text ops\n"));
  EXPECT_THAT(report.violations,
              ElementsAre("src/cli/main.cpp:1: 'ops' belongs to the engine library",
                          "src/ops/a.h:1: torch/torch.h in a header costs every user seconds",
                          "src/text/a.cpp:1: torch header ATen/ATen.h in a torch-free room"));
}

TEST_F(PlantedTree, ACyclicTableAndUnknownRooms) {
  EXPECT_THAT(room_table_violations(rooms("a: b\nb: c\nc: a\n")),
              ElementsAre("cycle: a -> b -> c -> a"));
  EXPECT_THAT(room_table_violations(rooms("a: z\n")),
              ElementsAre("'a' may include unknown room 'z'"));
  EXPECT_THAT(room_table_violations(rooms("a: b\nb*:\n")),
              ElementsAre("torch-free room 'a' may include 'b'"));
}

TEST_F(PlantedTree, AFolderThatIsNoRoomAndAnIncludeWithoutRoom) {
  write("src/misc/a.cpp", "int x;\n");
  write("src/base/b.cpp", "#include \"error.h\"\n");
  EXPECT_THAT(check_includes(dir_, rooms("base:\n")).violations,
              ElementsAre("src/base/b.cpp:1: \"error.h\" does not begin with a room",
                          "src/misc/a.cpp: no room 'misc' in docs/rooms.txt"));
}

TEST(Seams, JsonIsParsedInOnePlace) {
  // parse_json limits the nesting; what goes round it overflows the stack later, in a copy.
  static const std::regex around(R"([Jj]son::(parse|accept)\()");
  for (const SourceFile& file : source_files(root(), "src")) {
    const bool counts_keys = file.path == "src/settings/options/deepspeed.cpp";  // after parse_json
    if (file.path == "src/base/json.cpp" || counts_keys) continue;
    for (const std::string& line : code_only(file.lines)) {
      EXPECT_FALSE(std::regex_search(line, around)) << file.path << ": " << line;
    }
  }
}

TEST(Seams, NoDeviceNameOutsideTheDeviceSeam) { EXPECT_THAT(seam_violations(root()), IsEmpty()); }

TEST_F(PlantedTree, DeviceNamesAreFoundInCodeOnly) {
  write("src/ops/a.cpp", "// is_cuda() in a comment\nbool f(T x) { return x.is_cuda(); }\n");
  write("src/ops/b.cpp", "#ifdef USE_NPU\n#endif\nauto s = \"kCUDA\"; /* kCUDA\nkCUDA */ int y;\n");
  write("src/ops/c_cuda.cu", "auto d = at::kCUDA;\n");
  write("src/device/cuda/d.cpp", "auto d = at::kCUDA;\n");
  write("src/parallel/comm/e.cpp", "auto d = at::kCUDA;\n");
  write("src/parallel/f.cpp", "auto d = at::kCUDA;\n");
  EXPECT_THAT(seam_violations(dir_), ElementsAre(HasSubstr("src/ops/a.cpp:2: is_cuda("),
                                                 HasSubstr("src/ops/b.cpp:1: #ifdef USE_N"),
                                                 HasSubstr("src/parallel/f.cpp:1: kCUDA")));
}

}  // namespace
}  // namespace danlu::house
