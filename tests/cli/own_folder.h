// tests/cli/own_folder.h: lines of the program in an empty folder of the test's own.
#pragma once
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "cli/run_program.h"
#include "support/temporary_directory.h"

namespace danlu::test {

class OwnFolder : public ::testing::Test {
 protected:
  std::filesystem::path operator/(const std::string& name) const { return folder_ / name; }
  ProgramResult run(const std::vector<std::string>& words, const std::string& input = {}) const {
    return run_danlu(words, {.input = input, .directory = folder_.path()});
  }
  /// A line that is to succeed.
  ProgramResult ok(const std::vector<std::string>& words) const {
    ProgramResult result = run(words);
    EXPECT_EQ(result.exit_code, 0) << words[0] << "\n" << result.err << result.out;
    return result;
  }
  void expect_same(const std::string& a, const std::string& b) const {
    const ProgramResult result = run({"diff", a, b});
    EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  }
  std::filesystem::path write(const std::string& name, const std::string& content) const {
    std::filesystem::create_directories((folder_ / name).parent_path());
    std::ofstream(folder_ / name) << content;
    return folder_ / name;
  }

  const TemporaryDirectory folder_;
};

}  // namespace danlu::test
