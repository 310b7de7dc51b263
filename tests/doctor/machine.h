// tests/doctor/machine.h: a folder that says it is a machine.
#pragma once
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "doctor/check.h"
#include "support/temporary_directory.h"

namespace danlu::doctor {

inline std::string fixture(const std::string& name) {
  const auto text = text_in(fs::path(DANLU_SOURCE_DIR) / "tests/doctor/fixtures" / name);
  EXPECT_TRUE(text) << name;
  return text.value_or("");
}

/// Nothing is in it but what a test writes.
class Machine : public ::testing::Test {
 protected:
  fs::path write(const std::string& path, const std::string& text) const {
    fs::create_directories((folder_ / path).parent_path());
    std::ofstream(folder_ / path) << text;
    return folder_ / path;
  }
  /// A program that prints `text`, whatever it is asked, and ends with `code`.
  void write_program(const std::string& name, const std::string& text, int code = 0) const {
    write(name + ".txt", text);
    write_script(name, "cat '" + (folder_ / (name + ".txt")).string() + "'; exit " +
                           std::to_string(code) + "\n");
  }
  void write_script(const std::string& name, const std::string& body) const {
    const fs::path program = write("bin/" + name, "#!/bin/sh\n" + body);
    fs::permissions(program, fs::perms::owner_all);
  }
  const test::TemporaryDirectory folder_;
  SystemRoots roots_ = SystemRoots::below(folder_);
};

}  // namespace danlu::doctor
