// The page in a real browser: Debian's chromium, driven by playwright-core (tests/board/browser).
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "support/temporary_directory.h"

namespace danlu::board {
namespace {

const std::string playwright =
    std::string(DANLU_SOURCE_DIR) + "/.deps/oracles/node_modules/playwright-core";

bool has_browser() {
  return std::filesystem::exists(playwright) && std::system("command -v node >/dev/null") == 0 &&
         std::system("command -v chromium >/dev/null") == 0;
}

class Browser : public ::testing::TestWithParam<const char*> {};

/// Flows of one part; each is said by name, and what it saw where it failed.
TEST_P(Browser, DoesWhatUsersDo) {
  if (!has_browser()) {
    const char* ci = std::getenv("CI");
    if (ci && std::string(ci) == "true") FAIL() << "chromium, node or playwright-core is missing";
    GTEST_SKIP() << "tools/deps.sh --oracles fetches playwright-core; apt install chromium";
  }
  const test::TemporaryDirectory folder;
  const std::string command = fmt::format(
      "node '{}/tests/board/browser/flows.mjs' {} '{}' '{}' '{}' >'{}' 2>&1", DANLU_SOURCE_DIR,
      GetParam(), DANLU_BUILD_DIR, playwright, folder.path().string(), (folder / "said").string());
  const int status = std::system(command.c_str());
  std::ifstream said(folder / "said");
  EXPECT_EQ(status, 0) << std::string(std::istreambuf_iterator<char>(said), {});
}

INSTANTIATE_TEST_SUITE_P(Page, Browser, ::testing::Values("chat", "runs", "hostile", "looks"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace danlu::board
