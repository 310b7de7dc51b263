// What `cmake --install` lays down works wherever it is moved to, and takes nothing from the build
// folder.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "cli/bad_input.h"
#include "cli/run_program.h"

namespace danlu::test {
namespace {

namespace fs = std::filesystem;
using testing::Contains;
using testing::HasSubstr;
using testing::Not;

class Installed : public BadInput {
 protected:
  void SetUp() override {
    BadInput::SetUp();
    // What `cmake --install` runs, but for the list of files that it would leave in the build
    // folder.
    fs::copy_file(DANLU_BUILD_DIR "/cmake_install.cmake", *this / "install.cmake");
    replace_in_file(*this / "install.cmake", "file(WRITE \"" DANLU_BUILD_DIR,
                    "file(WRITE \"" + (*this / "").string());
    const std::string command = "cmake '-DCMAKE_INSTALL_PREFIX=" + (*this / "there").string() +
                                "' -P '" + (*this / "install.cmake").string() + "' >'" +
                                (*this / "log").string() + "' 2>&1";
    ASSERT_EQ(std::system(command.c_str()), 0) << content_of(*this / "log");
    fs::rename(*this / "there", *this / "here");
  }

  /// Runs the moved program; its errors also hold what LD_DEBUG writes.
  ProgramResult run_moved(const std::vector<std::string>& arguments) const {
    return run_danlu(arguments, {.program = *this / "here/bin/danlu",
                                 .environment = {{"PATH", "/usr/bin:/bin"},
                                                 {"LD_LIBRARY_PATH", ""},
                                                 {"DANLU_DUCKDB", ""},
                                                 {"LD_DEBUG", "files"}},
                                 .directory = *this / ""});
  }

  /// The run opened `library` of the installation, and nothing of the build.
  void expect_own(const ProgramResult& result, const std::string& library,
                  int exit_code = 0) const {
    EXPECT_EQ(result.exit_code, exit_code) << result.err.substr(result.err.rfind("error: ") + 1);
    const std::set<std::string> opened = opened_libraries(result);
    EXPECT_THAT(opened, Contains((*this / "here/lib/danlu" / library).string()));
    EXPECT_THAT(opened, Not(Contains(HasSubstr(DANLU_BUILD_DIR))));
    EXPECT_THAT(opened, Not(Contains(HasSubstr("/.deps/"))));
  }
};

TEST_F(Installed, WorksWhereItWasMovedTo) {
  expect_own(run_moved({"--version"}), "libdanlu_core.so");
  std::ofstream(*this / "none.parquet") << "PAR1 no rows PAR1";
  expect_own(run_moved({"inspect", (*this / "none.parquet").string()}), "libduckdb.so", 3);
  expect_own(
      run_moved({"infer", "--model", good("model"), "--prompt", "hi", "--max_new_tokens", "1"}),
      "libdanlu_engine.so");
}

TEST_F(Installed, HoldsPagesCompletionRecipesAndLicences) {
  const fs::path share = *this / "here/share";
  std::vector<std::string> pages{"danlu"};
  for (const std::string& verb : listed_commands()) pages.push_back("danlu-" + verb);
  for (const std::string& page : pages)
    for (const char* section : {"man/man1", "man/zh_CN/man1"})
      EXPECT_TRUE(fs::exists(share / section / (page + ".1.gz"))) << page;
  EXPECT_EQ(content_of(share / "bash-completion/completions/danlu"),
            run_danlu({"completion", "bash"}).out);
  EXPECT_THAT(content_of(share / "doc/danlu/copyright"), HasSubstr("Stichting DuckDB Foundation"));
  EXPECT_FALSE(fs::is_empty(share / "danlu/recipes"));
}

/// A page without roff's escapes.
std::string plain(std::string page) {
  for (const auto& [from, to] : std::map<std::string, std::string>{{"\\-", "-"},
                                                                   {"\\(aq", "'"},
                                                                   {"\\(ga", "`"},
                                                                   {"\\(ti", "~"},
                                                                   {"\\(ha", "^"},
                                                                   {"\\&", ""}}) {
    for (size_t at = 0; (at = page.find(from, at)) != page.npos; at += to.size())
      page.replace(at, from.size(), to);
  }
  return page;
}

TEST(ManPages, SayWhatHelpSays) {
  const TemporaryDirectory directory;
  EXPECT_EQ(run_danlu({"help", "--man", directory / "man"}).exit_code, 0);
  for (const std::string& verb : listed_commands()) {
    const std::string page = plain(content_of(directory / "man" / ("danlu-" + verb + ".1")));
    std::istringstream help(run_danlu({verb, "--help"}).out);
    for (std::string word; help >> word;) {
      const bool in_another_form = word == verb + ":" || word == "Usage:";
      EXPECT_TRUE(in_another_form || page.find(word) != page.npos) << verb << ": " << word;
    }
    for (const char* line : {"\n.SH NAME\ndanlu-", "\n.SH NOTES\n", "\n\\fBdanlu\\fR(1)\n"})
      EXPECT_THAT(page, HasSubstr(line)) << verb;
  }
  EXPECT_THAT(plain(content_of(directory / "man/danlu.1")), HasSubstr("\\fBdanlu sft\\fR\n"));
  run_danlu({"help", "--man", directory / "zh"}, {.environment = {{"DANLU_LANG", "zh"}}});
  EXPECT_THAT(content_of(directory / "zh/danlu.1"), HasSubstr("全部完成"));
  EXPECT_THAT(content_of(directory / "zh/danlu-sft.1"), HasSubstr("为兼容而接受"));
}

}  // namespace
}  // namespace danlu::test
