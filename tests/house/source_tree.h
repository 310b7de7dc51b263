// tests/house/source_tree.h: the files of the tree and the rules read from docs/, for tests about
// them.
#pragma once
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace danlu::house {

namespace fs = std::filesystem;

/// The checkout that the tests were built from.
inline fs::path root() { return DANLU_SOURCE_DIR; }

struct SourceFile {
  std::string path;  ///< relative to the root, e.g. "src/ops/rms_norm.cpp"
  std::vector<std::string> lines;
};

/// Every .h, .cpp and .cu below root/<folder>, sorted by path.
std::vector<SourceFile> source_files(const fs::path& root, const std::string& folder);

/// The lines with comments and the contents of strings blanked, so that only code is searched.
std::vector<std::string> code_only(const std::vector<std::string>& lines);

std::vector<std::string> lines_of(const fs::path& path);

/// docs/rooms.txt.
struct Room {
  std::set<std::string> may_include;
  bool torch = false;  ///< starred: may include torch
};
std::map<std::string, Room> read_rooms(const fs::path& rooms_file);

/// What is wrong with the room table itself: unknown names, a cycle.
std::vector<std::string> room_table_violations(const std::map<std::string, Room>& rooms);

struct IncludeReport {
  int num_edges = 0;  ///< includes from one room into another
  std::vector<std::string> violations;
};
/// Checks every #include below root/src against the table.
IncludeReport check_includes(const fs::path& root, const std::map<std::string, Room>& rooms);

/// Device names outside the device seam.
std::vector<std::string> seam_violations(const fs::path& root);

/// "name: paths" of names that stand in the anonymous namespaces of several sources of a room.
/// Sources that are compiled as one unit would overload or redefine them.
std::vector<std::string> names_met_twice(const fs::path& root);

/// "path: lines" of files over `max_lines`, and "path:function: lines" of functions over
/// `max_function_lines`. Functions are recognised by the project's formatting.
std::map<std::string, int> long_files(const fs::path& root, int max_lines);
std::map<std::string, int> long_functions(const fs::path& root, int max_function_lines);

}  // namespace danlu::house
