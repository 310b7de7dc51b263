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
#include "train/run_dir/hand_over.h"
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

bool is_of_job(const fs::path& checkpoint, const std::string& job) {
  return job.empty() ||
         json_get<std::string>(read_json_file(checkpoint / "trainer_state.json"), "job") == job;
}

/// `job`: only those that it has written; empty: all.
Json own_checkpoints(const fs::path& run_dir, const std::string& job) {
  Json own = Json::array();
  for (const checkpoint::Found& found : checkpoint::list(run_dir)) {
    if (found.resumable && is_of_job(found.directory, job)) own.push_back({found.step, "", true});
  }
  for (const checkpoint::Damaged& found : checkpoint::damaged(run_dir)) {
    const std::string name = found.directory.filename().string();
    own.push_back({std::stoll(name.substr(name.rfind('-') + 1)), found.what,
                   fs::exists(found.directory / "DONE")});
  }
  return own;
}

/// Files of a checkpoint that keepers lack.
struct Lacking {
  std::vector<HandOver> had_elsewhere;
  std::string had_by_nobody;  ///< with who lacks them
};

/// What all keepers have, on every rank.
class Everywhere {
 public:
  Everywhere(const TrainConfig& config, const Ranks& ranks, const Shared& run_dir)
      : config_(config), ranks_(ranks), run_dir_(run_dir) {
    for (int64_t rank = 0; rank < ranks.size(); ++rank)
      keeper_of_.push_back(std::stoll(ranks.from(rank, std::to_string(run_dir.keeper))));
    for (const int64_t keeper : run_dir.keepers) hosts_[keeper] = ranks.from(keeper, host_name());
  }

  /// Of the run's directory, or of those that `job` has written; the same on every rank. Errors:
  /// IoError where there are finished ones, and none of them is whole or can be made so.
  std::optional<checkpoint::Loaded> newest_whole(const std::string& job) const {
    std::vector<std::string> passed_over;
    bool any_finished = false;
    for (const auto& [step, kept] : all_steps(job)) {
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
        tr("bring back what nobody has, or start anew in another directory"));
  }

  /// Opens it on every rank. Errors: IoError with what nobody has of it, the same on every rank.
  checkpoint::Loaded open_whole(const fs::path& directory) const {
    std::optional<checkpoint::Loaded> opened;
    const std::string why = complete_and_open(directory, opened);
    if (why.empty()) return std::move(*opened);
    throw IoError(tr("[resume] {}: not every machine can have what it needs of it: {}",
                     directory.string(), why),
                  tr("bring back what nobody has, to {} on the machine that lacks it",
                     fs::absolute(directory).lexically_normal().string()));
  }

 private:
  std::string at(int64_t keeper) const { return tr("rank {} on {}", keeper, hosts_.at(keeper)); }

  Steps all_steps(const std::string& job) const {
    const Json own = own_checkpoints(config_.output.directory, job);
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
    for (const auto& [keeper, what] : kept) {
      // What has no DONE may be a copy that was not finished.
      if (what.is_finished && !what.damage.empty())
        wrong.push_back(fmt::format("{}: {}", at(keeper), what.damage));
    }
    if (!wrong.empty()) return fmt::format("{}", fmt::join(wrong, "; "));
    const bool any_finished =
        std::any_of(kept.begin(), kept.end(), [](const auto& of) { return of.second.is_finished; });
    return any_finished ? complete_and_open(directory, opened) : kept.begin()->second.damage;
  }

  /// Gives every machine what it lacks of the checkpoint and another has, and opens it.
  std::string complete_and_open(const fs::path& directory,
                                std::optional<checkpoint::Loaded>& opened) const {
    const Lacking lacking = lacking_of(directory);
    if (!lacking.had_by_nobody.empty()) return lacking.had_by_nobody;
    // A dry run opens without what it would copy.
    if (lacking.had_elsewhere.empty() || config_.dry_run) return open_together(directory, opened);
    if (std::string damage = damage_of_own(directory); !damage.empty()) return damage;
    hand_over(directory, lacking.had_elsewhere, ranks_);
    return open_together(directory, opened);
  }

  /// Of what is about to be copied.
  std::string damage_of_own(const fs::path& directory) const {
    std::error_code ignored;
    std::optional<checkpoint::Loaded> opened;
    const bool looks = run_dir_.keeper == ranks_.rank() && fs::exists(directory / "DONE", ignored);
    return first_failure([&] {
      if (looks) opened = checkpoint::open(directory);
    });
  }

  std::string open_together(const fs::path& directory,
                            std::optional<checkpoint::Loaded>& opened) const {
    return first_failure([&] { opened = checkpoint::open(directory); });
  }

  /// What fails on the first of the ranks where work() does, with the name of its keeper.
  template <typename Work>
  std::string first_failure(const Work& work) const {
    std::string own;
    try {
      work();
    } catch (const IoError& error) {
      own = error.what();
    }
    const int64_t first =
        ranks_.size() - ranks_.largest(own.empty() ? 0 : ranks_.size() - ranks_.rank());
    if (first == ranks_.size()) return "";
    const std::string what = ranks_.from(first, own);
    return fmt::format("{}: {}", at(keeper_of_[static_cast<size_t>(first)]), what);
  }

  Lacking lacking_of(const fs::path& directory) const {
    const int64_t has_done = first_with_done(directory);
    const Json told = told_contents(directory, has_done);
    const std::map<int64_t, std::set<std::string>> kept = kept_everywhere(directory, told.at(0));
    std::map<std::string, HandOver> elsewhere;
    std::string by_nobody;
    for (const int64_t keeper : run_dir_.keepers) {
      std::vector<std::string> missing;
      for (const std::string& file : needed_by(keeper, told, kept.at(keeper).contains("DONE"))) {
        if (file == "DONE" || kept.at(keeper).contains(file)) continue;
        const auto source = std::find_if(kept.begin(), kept.end(), [&](const auto& one) {
          return one.second.contains(file) && one.second.contains("DONE");
        });
        if (source == kept.end()) {
          missing.push_back(tr("{} (nobody has it)", file));
          continue;
        }
        HandOver& copied = elsewhere[file];
        copied.file = file;
        copied.from = source->first;
        copied.to.push_back(keeper);
      }
      if (missing.empty()) continue;
      by_nobody += fmt::format("{}{}", by_nobody.empty() ? "" : "; ",
                               tr("{} lacks {}", at(keeper), fmt::join(missing, ", ")));
    }
    Lacking lacking{{}, std::move(by_nobody)};
    for (auto& [file, copied] : elsewhere) lacking.had_elsewhere.push_back(std::move(copied));
    return lacking;
  }

  int64_t first_with_done(const fs::path& directory) const {
    std::error_code ignored;
    const bool has = run_dir_.keeper == ranks_.rank() && fs::exists(directory / "DONE", ignored);
    return std::max<int64_t>(
        0, ranks_.size() - 1 - ranks_.largest(has ? ranks_.size() - 1 - ranks_.rank() : -1));
  }

  /// The checkpoint's files as rank `asked` knows them: all, those that each rank reads, its own.
  Json told_contents(const fs::path& directory, int64_t asked) const {
    const parallel::Mesh& mesh = ranks_.mesh();
    const bool shares = config_.keeping.sharding != parallel::Sharding::kNone;
    const checkpoint::Holders holders{mesh.tensor().size(), shares ? mesh.sharers().size() : 1};
    Json told;
    if (ranks_.rank() == asked) {
      const auto contents = checkpoint::contents_of(directory, holders, ranks_.size());
      told = {contents.files, contents.read_by, contents.own};
    }
    return parse_json(ranks_.from(asked, told.dump()), "a checkpoint's files");
  }

  /// What a keeper's ranks read, and of a checkpoint that it has not begun to have all that who
  /// tells of it has.
  std::set<std::string> needed_by(int64_t keeper, const Json& told, bool has_done) const {
    std::set<std::string> needed;
    for (size_t rank = 0; rank < keeper_of_.size(); ++rank) {
      if (keeper_of_[rank] == keeper)
        needed.merge(told.at(1).at(rank).get<std::set<std::string>>());
    }
    if (!has_done) needed.merge(told.at(2).get<std::set<std::string>>());
    return needed;
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
  const Restart restart = restart_from_environment();
  if (restart.number > 0) {
    if (auto newest = everywhere.newest_whole(restart.job)) return newest;
  } else if (config.output.resume == "auto" && !config.output.overwrite) {
    if (auto newest = everywhere.newest_whole("")) return newest;
  }
  std::string named;
  if (ranks.is_first()) {
    if (const auto own = find_checkpoint(config)) named = own->directory.string();
  }
  named = ranks.from_first(named);
  if (named.empty()) return std::nullopt;
  return everywhere.open_whole(named);
}

}  // namespace danlu::train
