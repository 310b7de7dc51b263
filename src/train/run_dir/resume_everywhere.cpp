#include "train/run_dir/resume_everywhere.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/descriptor.h"
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "checkpoint/state_index.h"
#include "train/run_dir/resume.h"

namespace danlu::train {
namespace resume_everywhere_detail {

namespace fs = std::filesystem;

/// What a keeper has under the name of a checkpoint.
struct Kept {
  std::string damage;        ///< empty: none
  bool is_finished = false;  ///< a run finished writing it
};

/// Checkpoints by their step, at each keeper that has one of it.
using Steps = std::map<int64_t, std::map<int64_t, Kept>, std::greater<>>;

Json own_checkpoints(const fs::path& run_dir) {
  Json own = Json::array();
  for (const checkpoint::Found& found : checkpoint::list(run_dir)) {
    if (found.resumable) own.push_back({found.step, "", true});
  }
  for (const checkpoint::Damaged& found : checkpoint::damaged(run_dir)) {
    const std::string name = found.directory.filename().string();
    own.push_back({std::stoll(name.substr(name.rfind('-') + 1)), found.what,
                   fs::exists(found.directory / "DONE")});
  }
  return own;
}

/// What all keepers have, on every rank.
class Everywhere {
 public:
  Everywhere(const TrainConfig& config, const Ranks& ranks, const Shared& run_dir)
      : config_(config), ranks_(ranks), run_dir_(run_dir) {
    for (int64_t rank = 0; rank < ranks.size(); ++rank)
      keeper_of_.push_back(std::stoll(ranks.from(rank, std::to_string(run_dir.keeper))));
    for (const int64_t keeper : run_dir.keepers) hosts_[keeper] = ranks.from(keeper, host_name());
  }

  /// Of the run's directory. Errors: IoError where there are finished ones, and none of them is
  /// whole everywhere.
  std::optional<checkpoint::Loaded> newest_whole() const {
    std::vector<std::string> passed_over;
    bool any_finished = false;
    for (const auto& [step, kept] : all_steps()) {
      const fs::path directory = config_.output.directory / fmt::format("checkpoint-{}", step);
      std::optional<checkpoint::Loaded> opened;
      const std::string why = try_one(directory, kept, opened);
      if (why.empty()) {
        for (const std::string& one : passed_over) log::warning("{}; not resumed from", one);
        return opened;
      }
      passed_over.push_back(fmt::format("{}: {}", directory.string(), why));
      for (const auto& [keeper, what] : kept) any_finished |= what.is_finished;
    }
    if (!any_finished) return std::nullopt;
    throw IoError(
        tr("[resume] no checkpoint is whole on every machine: {}", fmt::join(passed_over, "; ")),
        tr("copy the files from there, to the same directory on the machine that lacks them; or "
           "start anew in another directory"));
  }

  /// Errors: IoError with what every machine lacks, the same on every rank.
  void require_files(const fs::path& directory) const {
    const std::string lacking = lacking_of(directory);
    if (lacking.empty()) return;
    throw IoError(tr("[resume] {}: not every machine has what it needs of it: {}",
                     directory.string(), lacking),
                  tr("copy the files from there, to {} on the machine that lacks them",
                     fs::absolute(directory).lexically_normal().string()));
  }

 private:
  std::string at(int64_t keeper) const { return tr("rank {} on {}", keeper, hosts_.at(keeper)); }

  Steps all_steps() const {
    const Json own = own_checkpoints(config_.output.directory);
    Steps steps;
    for (const int64_t keeper : run_dir_.keepers) {
      const Json theirs = parse_json(ranks_.from(keeper, own.dump()), "a keeper's checkpoints");
      for (const Json& one : theirs) steps[one.at(0)][keeper] = {one.at(1), one.at(2)};
    }
    return steps;
  }

  /// Opens the checkpoint on every rank; else what is wrong with it, the same on all.
  std::string try_one(const fs::path& directory, const std::map<int64_t, Kept>& kept,
                      std::optional<checkpoint::Loaded>& opened) const {
    std::vector<std::string> wrong;
    for (const int64_t keeper : run_dir_.keepers) {
      const auto found = kept.find(keeper);
      if (found == kept.end()) {
        wrong.push_back(tr("{} does not have it ({} has)", at(keeper), at(kept.begin()->first)));
      } else if (!found->second.damage.empty()) {
        wrong.push_back(fmt::format("{}: {}", at(keeper), found->second.damage));
      }
    }
    if (wrong.empty()) {
      if (const std::string lacking = lacking_of(directory); !lacking.empty()) return lacking;
      return open_together(directory, opened);
    }
    return fmt::format("{}", fmt::join(wrong, "; "));
  }

  std::string open_together(const fs::path& directory,
                            std::optional<checkpoint::Loaded>& opened) const {
    std::string own;
    try {
      opened = checkpoint::open(directory);
    } catch (const IoError& error) {
      own = error.what();
    }
    const int64_t first =
        ranks_.size() - ranks_.largest(own.empty() ? 0 : ranks_.size() - ranks_.rank());
    if (first == ranks_.size()) return "";
    const std::string what = ranks_.from(first, own);
    return fmt::format("{}: {}", at(keeper_of_[static_cast<size_t>(first)]), what);
  }

  /// What keepers lack of the files that rank 0 knows of; empty: nothing.
  std::string lacking_of(const fs::path& directory) const {
    const parallel::Mesh& mesh = ranks_.mesh();
    const bool shares = config_.keeping.sharding != parallel::Sharding::kNone;
    const checkpoint::Holders holders{mesh.tensor().size(), shares ? mesh.sharers().size() : 1};
    Json told;
    if (ranks_.is_first()) {
      const auto contents = checkpoint::contents_of(directory, holders, ranks_.size());
      told = {contents.files, contents.read_by};
    }
    told = parse_json(ranks_.from_first(told.dump()), "a checkpoint's files");
    const std::map<int64_t, std::set<std::string>> kept = kept_everywhere(directory, told.at(0));
    std::string lacking;
    for (const int64_t keeper : run_dir_.keepers) {
      std::set<std::string> needed;
      for (size_t rank = 0; rank < keeper_of_.size(); ++rank) {
        if (keeper_of_[rank] == keeper)
          needed.merge(told.at(1).at(rank).get<std::set<std::string>>());
      }
      std::vector<std::string> missing;
      for (const std::string& file : needed) {
        if (!kept.at(keeper).contains(file)) missing.push_back(with_source(file, kept));
      }
      if (missing.empty()) continue;
      lacking += fmt::format("{}{}", lacking.empty() ? "" : "; ",
                             tr("{} lacks {}", at(keeper), fmt::join(missing, ", ")));
    }
    return lacking;
  }

  std::map<int64_t, std::set<std::string>> kept_everywhere(
      const fs::path& directory, const std::vector<std::string>& files) const {
    Json own = Json::array();
    std::error_code ignored;
    for (const std::string& file : files) {
      if (fs::exists(directory / file, ignored)) own.push_back(file);
    }
    std::map<int64_t, std::set<std::string>> kept;
    for (const int64_t keeper : run_dir_.keepers)
      kept[keeper] = parse_json(ranks_.from(keeper, own.dump()), "a keeper's files");
    return kept;
  }

  std::string with_source(const std::string& file,
                          const std::map<int64_t, std::set<std::string>>& kept) const {
    const auto source = std::find_if(
        kept.begin(), kept.end(), [&](const auto& keeper) { return keeper.second.contains(file); });
    return source == kept.end() ? tr("{} (nobody has it)", file)
                                : tr("{} ({} has it)", file, at(source->first));
  }

  const TrainConfig& config_;
  const Ranks& ranks_;
  const Shared& run_dir_;
  std::vector<int64_t> keeper_of_;        ///< of every rank
  std::map<int64_t, std::string> hosts_;  ///< of keepers
};

}  // namespace resume_everywhere_detail

std::optional<checkpoint::Loaded> find_checkpoint_everywhere(const TrainConfig& config,
                                                             const Ranks& ranks,
                                                             const Shared& run_dir) {
  if (run_dir.by_all()) return find_checkpoint(config);
  const resume_everywhere_detail::Everywhere everywhere(config, ranks, run_dir);
  if (config.output.resume == "auto" && !config.output.overwrite) {
    if (auto newest = everywhere.newest_whole()) return newest;
  }
  std::optional<checkpoint::Loaded> own;
  std::string named;
  if (ranks.is_first()) {
    own = find_checkpoint(config);
    if (own) named = own->directory.string();
  }
  named = ranks.from_first(named);
  if (named.empty()) return std::nullopt;
  everywhere.require_files(named);
  return own ? std::move(own) : checkpoint::open(named);
}

}  // namespace danlu::train
