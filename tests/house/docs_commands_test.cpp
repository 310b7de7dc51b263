// The commands that README and docs show are run, page by page, in a folder that looks like a
// checkout.
//
// Every ```sh block is run unless the line above it is `<!-- not run: reason -->`. The blocks of a
// page share one shell and one folder, in order, so that a page may build on what it made before.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "house/source_tree.h"
#include "support/temporary_directory.h"

namespace danlu::house {
namespace {

struct Page {
  std::string script;
  int num_run = 0, num_skipped = 0;
  std::vector<std::string> complaints;
};

Page read_page(const fs::path& path) {
  Page page;
  std::string marker;
  bool in_shell = false, runs = false;
  for (const std::string& line : lines_of(path)) {
    if (in_shell) {
      if (line.starts_with("```")) {
        in_shell = false;
      } else if (runs) {
        page.script += line + "\n";
      }
      continue;
    }
    if (line.starts_with("```sh")) {
      in_shell = true;
      runs = !marker.starts_with("<!-- not run: ");
      ++(runs ? page.num_run : page.num_skipped);
    } else if (line.starts_with("```bash") || line.starts_with("```console")) {
      page.complaints.push_back("use ```sh, which is run: " + line);
    }
    if (!line.empty()) marker = line;
  }
  return page;
}

/// A folder with links to everything in the checkout; `build` leads to the build under test.
struct GuideDirectory : test::TemporaryDirectory {
  GuideDirectory() {
    for (const auto& entry : fs::directory_iterator(root())) {
      const std::string name = entry.path().filename();
      if (name.starts_with("build") || name == "output" || name == ".git") continue;
      fs::create_symlink(entry.path(), *this / name);
    }
    fs::create_symlink(DANLU_BUILD_DIR, *this / "build");
    fs::create_directory(*this / ".home");
  }
};

class DocsCommands : public testing::TestWithParam<const char*> {};

TEST_P(DocsCommands, Run) {
  const fs::path path = root() / GetParam();
  ASSERT_TRUE(fs::exists(path)) << path;
  const Page page = read_page(path);
  EXPECT_THAT(page.complaints, testing::IsEmpty());
  if (page.num_run == 0) return;
  const GuideDirectory directory;
  std::ofstream(directory / ".page.sh") << page.script;
  const std::string command =
      "cd '" + directory.path().string() +
      "' && HOME=\"$PWD/.home\" PATH=\"$PWD/build:$PATH\" timeout 1200 bash "
      "-eux -o pipefail .page.sh >.page.log 2>&1 </dev/null";
  const int status = std::system(command.c_str());
  std::ostringstream log;
  log << std::ifstream(directory / ".page.log").rdbuf();
  const std::string text = log.str();
  const size_t tail = text.size() > 4000 ? text.size() - 4000 : 0;  // the failing command is last
  EXPECT_EQ(WEXITSTATUS(status), 0) << GetParam() << ":\n" << text.substr(tail);
}

INSTANTIATE_TEST_SUITE_P(Pages, DocsCommands,
                         testing::Values("README.md", "README.zh-CN.md", "CONTRIBUTING.md",
                                         "docs/architecture.md", "docs/decisions/README.md",
                                         "docs/features.md", "docs/download.md",
                                         "docs/evaluation.md", "docs/eval_tasks/generation.md",
                                         "docs/eval_tasks/multiple_choice.md",
                                         "docs/eval_tasks/perplexity.md"),
                         [](const auto& info) {
                           std::string name = info.param;
                           for (char& c : name) {
                             if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
                           }
                           return name;
                         });

TEST(DocsCommandsReader, RunsBlocksUnlessMarkedWithAReason) {
  const test::TemporaryDirectory directory;
  const fs::path path = directory / "page.md";
  std::ofstream(path) << "```sh\necho one\n```\n<!-- not run: takes hours -->\n```sh\nexit 1\n```\n"
                         "text\n```sh\necho two\n```\n```text\nnothing\n```\n```bash\nx\n```\n";
  const Page page = read_page(path);
  EXPECT_EQ(page.script, "echo one\necho two\n");
  EXPECT_EQ(page.num_run, 2);
  EXPECT_EQ(page.num_skipped, 1);
  EXPECT_EQ(page.complaints.size(), 1u);
}

}  // namespace
}  // namespace danlu::house
