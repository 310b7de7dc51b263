#include "train/run_dir/storage.h"

#include <chrono>
#include <optional>
#include <set>
#include <string>
#include <thread>

#include "base/descriptor.h"
#include "base/error.h"
#include "base/temporary.h"
#include "parallel/agree.h"

namespace danlu::train {
namespace {

namespace fs = std::filesystem;

/// Whether the file is there. A network's file system may remember for a while that something was
/// not; making the directory asks its server anew, and is undone.
bool sees(const fs::path& directory, const std::string& name, bool may_make) {
  constexpr int kLooks = 10;
  for (int look = 0; look < kLooks; ++look) {
    std::error_code ignored;
    const bool made = may_make && fs::create_directory(directory, ignored);
    const bool is_there = fs::exists(directory / name, ignored);
    if (made) fs::remove(directory, ignored);
    if (is_there) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  return false;
}

/// Every rank's keeper. Errors, on every rank: IoError naming one that does not see the directory
/// of its own machine.
std::set<int64_t> keepers_of(const std::filesystem::path& directory, const Ranks& ranks,
                             int64_t keeper) {
  std::set<int64_t> keepers;
  int64_t blind = -1;
  const std::vector<int64_t> said = parallel::numbers_of_all(ranks.all(), keeper);
  for (size_t rank = 0; rank < said.size(); ++rank) {
    if (said[rank] < 0) blind = static_cast<int64_t>(rank);
    keepers.insert(said[rank]);
  }
  if (blind < 0) return keepers;
  throw IoError(tr("{}: rank {} on {} does not see it, and others of its machine do",
                   directory.string(), blind, ranks.from(blind, host_name())),
                tr("all processes of a machine must see one --output_dir and one cache"));
}

}  // namespace

Shared find_shared(const std::filesystem::path& directory, const Ranks& ranks,
                   const std::function<void()>& make) {
  Shared shared;
  shared.keeper = -1;
  for (const int64_t lead : ranks.leads()) {
    std::optional<Temporary> token;
    if (ranks.rank() == lead && shared.keeper < 0) {
      make();
      token.emplace(directory / "storage", Temporary::Kind::kFile);
      shared.keeper = lead;
    }
    const bool told = token && token->fd() >= 0;
    const std::string name = ranks.from(lead, told ? token->path().filename().string() : "");
    if (shared.keeper < 0 && !name.empty() && sees(directory, name, ranks.rank() == ranks.lead()))
      shared.keeper = lead;
    ranks.wait_for_all();
  }
  const std::set<int64_t> keepers = keepers_of(directory, ranks, shared.keeper);
  shared.keepers.assign(keepers.begin(), keepers.end());
  return shared;
}

}  // namespace danlu::train
