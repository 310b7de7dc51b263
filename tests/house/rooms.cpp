#include <algorithm>
#include <regex>
#include <sstream>

#include "house/source_tree.h"

namespace danlu::house {
namespace {

bool visit(const std::map<std::string, Room>& rooms, const std::string& name,
           std::map<std::string, int>& colour, std::string& path) {
  if (colour[name] == 2) return false;
  path += (path.empty() ? "" : " -> ") + name;
  if (colour[name] == 1) return true;
  colour[name] = 1;
  const auto at = rooms.find(name);
  if (at != rooms.end()) {
    for (const std::string& next : at->second.may_include) {
      const std::string so_far = path;
      if (visit(rooms, next, colour, path)) return true;
      path = so_far;
    }
  }
  colour[name] = 2;
  return false;
}

bool is_header(const std::string& path) { return path.ends_with(".h"); }

bool is_torch(const std::string& include) {
  for (const char* prefix : {"torch/", "ATen/", "c10/", "caffe2/"}) {
    if (include.starts_with(prefix)) return true;
  }
  return false;
}

/// `cli` is where rooms meet, but only cli/engine is inside the engine library.
bool may_use_torch(const std::string& path, const Room& room) {
  return room.torch && (!path.starts_with("src/cli/") || path.starts_with("src/cli/engine/"));
}

class IncludeChecker {
 public:
  explicit IncludeChecker(const std::map<std::string, Room>& rooms) : rooms_(rooms) {}

  void check(const SourceFile& file) {
    const std::string room = file.path.substr(4, file.path.find('/', 4) - 4);
    const auto own = rooms_.find(room);
    if (own == rooms_.end()) {
      report.violations.push_back(file.path + ": no room '" + room + "' in docs/rooms.txt");
      return;
    }
    static const std::regex pattern(R"re(^\s*#\s*include\s*([<"])([^>"]+)[>"])re");
    for (size_t i = 0; i < file.lines.size(); ++i) {
      std::smatch match;
      if (!std::regex_search(file.lines[i], match, pattern)) continue;
      check_one(file.path, i + 1, room, own->second, match[2], match[1] == "\"");
    }
  }

  IncludeReport report;

 private:
  void check_one(const std::string& path, size_t line, const std::string& room, const Room& own,
                 const std::string& include, bool quoted) {
    const std::string where = path + ":" + std::to_string(line) + ": ";
    if (is_torch(include)) {
      if (!may_use_torch(path, own)) {
        report.violations.push_back(where + "torch header " + include + " in a torch-free room");
      }
      if (is_header(path) && (include == "torch/torch.h" || include == "torch/extension.h")) {
        report.violations.push_back(where + include + " in a header costs every user seconds");
      }
      return;
    }
    if (!quoted) return;
    const std::string target = include.substr(0, include.find('/'));
    const auto other = rooms_.find(target);
    if (other == rooms_.end()) {
      report.violations.push_back(where + "\"" + include + "\" does not begin with a room");
      return;
    }
    if (target == room) return;
    ++report.num_edges;
    if (!own.may_include.contains(target)) {
      report.violations.push_back(where + "room '" + room + "' may not include '" + target + "'");
    } else if (other->second.torch && !may_use_torch(path, own)) {
      report.violations.push_back(where + "'" + target + "' belongs to the engine library");
    }
  }

  const std::map<std::string, Room>& rooms_;
};

}  // namespace

std::map<std::string, Room> read_rooms(const fs::path& rooms_file) {
  std::map<std::string, Room> rooms;
  for (const std::string& line : lines_of(rooms_file)) {
    const size_t colon = line.find(':');
    if (line.starts_with('#') || colon == line.npos) continue;
    std::string name = line.substr(0, colon);
    Room room;
    if (name.ends_with('*')) {
      room.torch = true;
      name.pop_back();
    }
    std::istringstream words(line.substr(colon + 1));
    for (std::string word; words >> word;) room.may_include.insert(word);
    rooms[name] = room;
  }
  return rooms;
}

std::vector<std::string> room_table_violations(const std::map<std::string, Room>& rooms) {
  std::vector<std::string> violations;
  std::map<std::string, int> colour;
  for (const auto& [name, room] : rooms) {
    for (const std::string& target : room.may_include) {
      const auto other = rooms.find(target);
      if (other == rooms.end()) {
        violations.push_back("'" + name + "' may include unknown room '" + target + "'");
      } else if (other->second.torch && !room.torch) {
        violations.push_back("torch-free room '" + name + "' may include '" + target + "'");
      }
    }
    std::string path;
    if (visit(rooms, name, colour, path)) {
      violations.push_back("cycle: " + path);
      break;
    }
  }
  return violations;
}

IncludeReport check_includes(const fs::path& root, const std::map<std::string, Room>& rooms) {
  IncludeChecker checker(rooms);
  for (const SourceFile& file : source_files(root, "src")) checker.check(file);
  return checker.report;
}

std::vector<std::string> seam_violations(const fs::path& root) {
  static const std::regex banned(
      R"(\bkCUDA\b|\bkPrivateUse1\b|\bis_cuda\s*\(|#\s*if.*\bUSE_[A-Z])");
  std::vector<std::string> violations;
  for (const SourceFile& file : source_files(root, "src")) {
    const bool seam = file.path.starts_with("src/device/") || file.path.starts_with("src/npu/") ||
                      file.path.ends_with("_cuda.cu") ||
                      file.path.find("/comm/") != std::string::npos;
    if (seam) continue;
    const std::vector<std::string> code = code_only(file.lines);
    for (size_t i = 0; i < code.size(); ++i) {
      std::smatch match;
      if (!std::regex_search(code[i], match, banned)) continue;
      violations.push_back(file.path + ":" + std::to_string(i + 1) + ": " + match.str() +
                           " outside the device seam");
    }
  }
  return violations;
}

}  // namespace danlu::house
