// The cache beside what npm's @huggingface/hub makes of the same hub: two writers, one layout.
#include <cstdlib>
#include <set>

#include "hub/hub_test.h"

namespace danlu::hub {
namespace {

namespace fs = std::filesystem;

class SameAsNpm : public HubTest {
 protected:
  const fs::path package =
      fs::path(DANLU_SOURCE_DIR) / ".deps" / "oracles" / "node_modules" / "@huggingface" / "hub";

  bool is_there() const {
    return fs::exists(package / "dist" / "index.js") &&
           std::system("node --version >/dev/null 2>&1") == 0;
  }
  int snapshot_download(const fs::path& cache, const std::string& repository) const {
    const std::string command = "node '" DANLU_SOURCE_DIR "/tests/hub/snapshot_download.mjs' '" +
                                package.string() + "' " + fake.url() + " '" + cache.string() +
                                "' " + repository + " >'" + (folder / "said").string() + "' 2>&1";
    return std::system(command.c_str());
  }
  /// Path -> what it is: "-> target" of a link, the content of a file.
  static std::map<std::string, std::string> tree_of(const fs::path& root) {
    std::map<std::string, std::string> tree;
    for (const auto& entry : fs::recursive_directory_iterator(root)) {
      const std::string name = entry.path().lexically_relative(root).string();
      if (name.starts_with(".locks")) continue;  // it takes none
      if (entry.is_symlink()) {
        tree[name] = "-> " + fs::read_symlink(entry.path()).string();
      } else if (entry.is_regular_file()) {
        tree[name] = text_of(entry.path());
      }
    }
    return tree;
  }
};

#define REQUIRE_NPM_PACKAGE()                                                        \
  if (!is_there()) {                                                                 \
    const char* ci = std::getenv("CI");                                              \
    if (ci && std::string(ci) == "true") FAIL() << package << " or node is missing"; \
    GTEST_SKIP() << "tools/deps.sh --oracles fetches " << package;                   \
  }

TEST_F(SameAsNpm, TheCacheIsTheSameFileForFile) {
  REQUIRE_NPM_PACKAGE();
  fake.files["a/b/c.txt"] = {"deep"};
  fake.files["vocab.json"] = {std::string(40'000, 'v'), /*is_lfs=*/true};
  ASSERT_EQ(snapshot_download(folder / "npm", "org/tiny"), 0) << text_of(folder / "said");
  download(request());
  const auto theirs = tree_of(folder / "npm");
  EXPECT_EQ(theirs.size(), 5u + 5u + 1u);  // blobs, links, refs/main
  EXPECT_EQ(tree_of(folder / "cache"), theirs);
}

TEST_F(SameAsNpm, WhatEitherFetchedTheOtherFinds) {
  REQUIRE_NPM_PACKAGE();
  ASSERT_EQ(snapshot_download(folder / "cache", "org/tiny"), 0) << text_of(folder / "said");
  fake.forget_requests();
  EXPECT_EQ(download(request()).num_fetched, 0u);
  fs::remove_all(folder / "cache");
  download(request());
  fake.forget_requests();
  ASSERT_EQ(snapshot_download(folder / "cache", "org/tiny"), 0) << text_of(folder / "said");
  EXPECT_TRUE(fake.requests_for("/resolve/").empty());
}

}  // namespace
}  // namespace danlu::hub
