// tests/durability/campaign.h: a command killed in front of one of its file operations, given
// again, and compared with one that nobody disturbed.
#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace danlu::test {

struct Command {
  std::string name;
  std::vector<std::string> arguments;
  /// Given again after it was done, it answers that its output exists (exit code 2).
  bool refuses_its_result = false;
  /// What lies below the directory before each try; empty: nothing.
  std::filesystem::path before = {};
};

/// What is lost with the process.
enum class Loss {
  kNothing,  ///< the system keeps what the process did
  kPower,    ///< and what it did not sync (kill_at.cpp says what that is)
};

/// What lies below a directory: relative path -> content without what a clock or a process id has a
/// part in; "dir", "-> target".
using Tree = std::map<std::string, std::string>;
Tree tree_of(const std::filesystem::path& root);

/// One command and its directory, which is made anew before each try; what it reads lies elsewhere.
class Campaign {
 public:
  /// Runs the command once undisturbed. Throws std::runtime_error if it fails.
  Campaign(Command command, std::filesystem::path directory);

  const std::string& name() const { return command_.name; }
  /// File operations of the undisturbed run.
  uint64_t operations() const { return operations_; }

  /// Kills the command in front of operation `at` (from 1) and gives it again. Returns what differs
  /// then from the undisturbed run, a line each; nothing if nothing does.
  std::string try_kill(uint64_t at, Loss loss);
  /// How many of these tries killed it: threads take turns in another order each time, so that the
  /// last operations may not come.
  uint64_t kills() const { return kills_; }

 private:
  int run(uint64_t kill_at, Loss loss);
  void make_directory() const;

  Command command_;
  std::filesystem::path directory_, root_;
  uint64_t operations_ = 0, kills_ = 0;
  std::string last_output_;
  Tree whole_;
};

/// "" if they are equal; else a line for each path that differs.
std::string differences(const Tree& expected, const Tree& found);

}  // namespace danlu::test
