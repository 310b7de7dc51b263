#include "train/run_dir/storage.h"

#include <chrono>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/descriptor.h"
#include "base/error.h"
#include "base/file.h"
#include "base/temporary.h"
#include "parallel/agree.h"

namespace danlu::train {
namespace {

namespace fs = std::filesystem;

/// A file that tells the machine of its rank from others, in a directory that is made for it. Both
/// go with it: what makes the directory to stay asks for more.
class Token {
 public:
  explicit Token(const fs::path& directory) {
    try {
      made_.emplace(directory);
      file_.emplace(directory / "storage", Temporary::Kind::kFile);
    } catch (const std::exception&) {  // said by who has to write there
    }
  }
  /// "": it could not be made.
  std::string name() const {
    return file_ && file_->fd() >= 0 ? file_->path().filename().string() : "";
  }

 private:
  std::optional<MadeDirectory> made_;
  std::optional<Temporary> file_;
};

/// The first of `leads` whose token is in the directory; -1: none. A network's file system may
/// remember for a while that something was not.
int64_t first_seen(const fs::path& directory, const std::vector<int64_t>& leads,
                   const std::vector<std::string>& tokens) {
  constexpr int kLooks = 10;
  int64_t seen = -1;
  for (int look = 0; look < kLooks; ++look) {
    if (look > 0) std::this_thread::sleep_for(std::chrono::milliseconds(100));
    for (const int64_t lead : leads) {
      if (lead == seen) break;
      const std::string& token = tokens[static_cast<size_t>(lead)];
      std::error_code unknown;
      if (token.empty() || !fs::exists(directory / token, unknown)) continue;
      seen = lead;
      break;
    }
    if (seen == leads.front()) break;
  }
  return seen;
}

/// Every rank's keeper. Errors, on every rank: IoError naming one that does not see the directory
/// of its own machine.
std::vector<int64_t> keepers_of(const fs::path& directory, const Ranks& ranks, int64_t keeper) {
  const std::vector<int64_t> said = parallel::numbers_of_all(ranks.all(), keeper);
  std::vector<int64_t> keepers;
  for (size_t rank = 0; rank < said.size(); ++rank) {
    if (said[rank] < 0) {
      const auto blind = static_cast<int64_t>(rank);
      throw IoError(tr("{}: rank {} on {} does not see it, and others of its machine do",
                       directory.string(), blind, ranks.from(blind, host_name())),
                    tr("all processes of a machine must see one --output_dir and one cache"));
    }
    // Whose keeper has seen an earlier one, which it has not, shares that one too.
    int64_t first = said[rank];
    while (said[static_cast<size_t>(first)] >= 0 && said[static_cast<size_t>(first)] < first)
      first = said[static_cast<size_t>(first)];
    keepers.push_back(first);
  }
  return keepers;
}

}  // namespace

Shared find_shared(const fs::path& directory, const Ranks& ranks,
                   const std::function<void()>& make) {
  if (ranks.size() == 1) {
    make();
    return {};
  }
  const bool is_lead = ranks.rank() == ranks.lead();
  int64_t seen = -1;
  {
    std::optional<Token> token;
    if (is_lead) token.emplace(directory);
    const std::vector<std::string> tokens =
        parallel::texts_of_all(ranks.all(), token ? token->name() : "");
    seen = first_seen(directory, ranks.leads(), tokens);
    const bool is_told = !tokens[static_cast<size_t>(ranks.lead())].empty();
    if (seen < 0 && (is_lead || !is_told)) seen = ranks.lead();
    ranks.wait_for_all();
  }
  const std::vector<int64_t> keepers = keepers_of(directory, ranks, seen);
  const std::set<int64_t> all(keepers.begin(), keepers.end());
  const int64_t keeper = keepers[static_cast<size_t>(ranks.rank())];
  ranks.wait_for_all();  // no token is left that make() would meet
  if (ranks.rank() == keeper) make();
  ranks.wait_for_all();
  return {keeper, {all.begin(), all.end()}};
}

}  // namespace danlu::train
