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
#include "base/shell_quote.h"
#include "checkpoint/saver.h"
#include "parallel/agree.h"
#include "train/run_dir/hand_over.h"
#include "train/run_dir/resume.h"
#include "weights/native/machine_part.h"

namespace danlu::train {
namespace {

namespace fs = std::filesystem;

/// What a keeper has under the name of a checkpoint.
struct Kept {
  std::string damage;        ///< empty: none
  bool is_finished = false;  ///< a run finished writing it
};

/// Checkpoints by their step, at each keeper that has one of it.
using Steps = std::map<int64_t, std::map<int64_t, Kept>, std::greater<>>;

/// `job`: only those that it has written; empty: all.
Json own_checkpoints(const fs::path& run_dir, const std::string& job) {
  Json own = Json::array();
  for (const checkpoint::Found& found : checkpoint::list(run_dir)) {
    if (found.resumable && is_of_job(found.directory, job)) own.push_back({found.step, "", true});
  }
  for (const checkpoint::Damaged& found : checkpoint::damaged(run_dir)) {
    if (!is_of_job(found.directory, job)) continue;
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
      : config_(config),
        ranks_(ranks),
        run_dir_(run_dir),
        keeper_of_(parallel::numbers_of_all(ranks.all(), run_dir.keeper)) {
    for (const int64_t keeper : run_dir.keepers) hosts_[keeper] = ranks.from(keeper, host_name());
  }

  /// The newest of the run's directory, or of those that `job` has written; the same on every rank.
  /// Errors: IoError where there are finished ones, and none of them is whole or can be made so.
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
        tr("bring back what nobody has, or start anew in another directory") + offered_model(job));
  }

  /// Opens it on every rank. Errors: IoError with what nobody has of it, the same on every rank.
  checkpoint::Loaded open_whole(const fs::path& directory) const {
    std::optional<checkpoint::Loaded> opened;
    const std::string why = complete_and_open(directory, opened);
    if (why.empty()) return std::move(*opened);
    throw IoError(tr("[resume] {}: not every machine can have what it needs of it: {}",
                     directory.string(), why),
                  tr("bring back what nobody has, to {} on the machine that lacks it",
                     fs::absolute(directory).lexically_normal().string()) +
                      offered_model(""));
  }

 private:
  std::string at(int64_t keeper) const { return tr("rank {} on {}", keeper, hosts_.at(keeper)); }

  /// The newest model that rank 0's machine has of the run, as a way to begin with; empty: none.
  std::string offered_model(const std::string& job) const {
    fs::path newest;
    if (ranks_.is_first()) {
      for (const checkpoint::Found& found : checkpoint::list(config_.output.directory)) {
        const auto part = weights::machine_part(found.directory);
        if (is_of_job(found.directory, job) && (!part || part->has_model)) newest = found.directory;
      }
    }
    std::string option = newest.empty() ? "" : checkpoint::option_of_weights(newest);
    option = ranks_.from_first(option);
    newest = ranks_.from_first(newest.string());
    if (newest.empty()) return "";
    return tr(
        "; or begin from the last model, in another --output_dir: copy {} of {} to every "
        "machine and give {} {}",
        newest.string(), at(keeper_of_.front()), option, shell_quoted(newest.string()));
  }

  Steps all_steps(const std::string& job) const {
    const Json own = own_checkpoints(config_.output.directory, job);
    Steps steps;
    for (const int64_t keeper : run_dir_.keepers) {
      const Json theirs = parse_json(ranks_.from(keeper, dump_text(own)), "a keeper's checkpoints");
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

  /// Gives every machine what it lacks of the checkpoint and another has, and opens it; the same
  /// of its critic.
  std::string complete_and_open(const fs::path& directory,
                                std::optional<checkpoint::Loaded>& opened) const {
    std::string why = complete_and_open_one(directory, opened);
    if (!why.empty()) return why;
    const std::optional<fs::path> critic = critic_of(*opened);
    if (!critic) return "";
    if (!is_anywhere(*critic)) return tr("its critic, {}, is not there", critic->string());
    std::optional<checkpoint::Loaded> beside;
    return complete_and_open_one(*critic, beside);
  }

  bool is_anywhere(const fs::path& directory) const {
    std::error_code unknown;
    const bool has = run_dir_.keeper == ranks_.rank() && fs::exists(directory / "DONE", unknown);
    return ranks_.largest(has ? 1 : 0) == 1;
  }

  std::string complete_and_open_one(const fs::path& directory,
                                    std::optional<checkpoint::Loaded>& opened) const {
    if (std::string difference = difference_of_saves(directory); !difference.empty())
      return difference;
    const Lacking lacking = lacking_of(directory);
    if (!lacking.had_by_nobody.empty()) return lacking.had_by_nobody;
    if (lacking.had_elsewhere.empty()) return open_together(directory, opened);
    if (config_.dry_run) return open_from_afar(directory, opened);
    if (std::string damage = damage_of_own(directory); !damage.empty()) return damage;
    hand_over(directory, lacking.had_elsewhere, ranks_);
    return open_together(directory, opened);
  }

  /// Machines may have trained apart under the same names: what two keepers have of two saves.
  std::string difference_of_saves(const fs::path& directory) const {
    const fs::path done = directory / "DONE";
    std::error_code unknown;
    std::string own;
    if (fs::exists(done, unknown))
      own = "save " + read_json_file(done).value("save", std::string());
    std::map<std::string, int64_t> first;
    for (const int64_t keeper : run_dir_.keepers) {
      const std::string theirs = ranks_.from(keeper, own);
      if (!theirs.empty()) first.try_emplace(theirs, keeper);
    }
    if (first.size() < 2) return "";
    return tr("{} and {} have different checkpoints of this name", at(first.begin()->second),
              at(first.rbegin()->second));
  }

  /// Without the state, which a dry run does not read, nor what would be copied first.
  std::string open_from_afar(const fs::path& directory,
                             std::optional<checkpoint::Loaded>& opened) const {
    const int64_t asked = first_with_done(directory);
    const std::string damage = first_damage([&] {
      if (ranks_.rank() == asked) opened = checkpoint::open(directory);
    });
    if (!damage.empty()) return damage;
    Json told;
    if (opened) told = {opened->args, opened->trainer_state, opened->data_state};
    told = parse_json(ranks_.from(asked, dump_text(told)), "a checkpoint's files");
    opened = checkpoint::Loaded{directory, told.at(0), told.at(1), told.at(2), nullptr};
    return "";
  }

  /// The damage of what is about to be copied.
  std::string damage_of_own(const fs::path& directory) const {
    std::error_code ignored;
    std::optional<checkpoint::Loaded> opened;
    const bool looks = run_dir_.keeper == ranks_.rank() && fs::exists(directory / "DONE", ignored);
    return first_damage([&] {
      if (looks) opened = checkpoint::open(directory);
    });
  }

  std::string open_together(const fs::path& directory,
                            std::optional<checkpoint::Loaded>& opened) const {
    const bool keeps = run_dir_.keeper == ranks_.rank();
    return first_damage([&] {
      opened = checkpoint::open(directory,
                                keeps ? checkpoint::Check::kContents : checkpoint::Check::kSizes);
    });
  }

  /// What damage work() finds on the first of the ranks where it does, with the name of its
  /// keeper. Errors: of another kind than IoError, on every rank.
  template <typename Work>
  std::string first_damage(const Work& work) const {
    const auto failure = parallel::first_failure(ranks_.all(), work);
    if (!failure) return "";
    const int64_t keeper = keeper_of_[static_cast<size_t>(failure->rank)];
    const std::string what = fmt::format("{}: {}", at(keeper), failure->error.what());
    if (failure->error.code() == ExitCode::kIo) return what;
    throw_as_kind(Error(failure->error.code(), what, failure->error.hint()));
  }

  Lacking lacking_of(const fs::path& directory) const {
    const int64_t has_done = first_with_done(directory);
    const Json told = told_contents(directory, has_done);
    const std::map<int64_t, std::set<std::string>> kept = kept_everywhere(directory);
    std::map<std::string, HandOver> elsewhere;
    std::string by_nobody;
    for (const int64_t keeper : run_dir_.keepers) {
      std::vector<std::string> missing;
      for (const std::string& file : needed_by(keeper, told)) {
        if (kept.at(keeper).contains(file)) continue;
        const auto source = std::find_if(
            kept.begin(), kept.end(), [&](const auto& one) { return one.second.contains(file); });
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
    const int64_t first = ranks_.size() - ranks_.largest(has ? ranks_.size() - ranks_.rank() : 0);
    return first < ranks_.size() ? first : 0;
  }

  /// The checkpoint's files that each rank reads, as rank `asked` knows them.
  Json told_contents(const fs::path& directory, int64_t asked) const {
    const parallel::Mesh& mesh = ranks_.mesh();
    const bool shares = config_.keeping.sharding != parallel::Sharding::kNone;
    const checkpoint::Holders holders = checkpoint::holders_of(mesh, shares);
    Json told;
    if (ranks_.rank() == asked) told = checkpoint::files_read(directory, holders, ranks_.size());
    return parse_json(ranks_.from(asked, dump_text(told)), "a checkpoint's files");
  }

  std::set<std::string> needed_by(int64_t keeper, const Json& told) const {
    std::set<std::string> needed;
    for (size_t rank = 0; rank < keeper_of_.size(); ++rank) {
      if (keeper_of_[rank] == keeper) needed.merge(told.at(rank).get<std::set<std::string>>());
    }
    return needed;
  }

  /// What each keeper's DONE names: other files may be the beginning of a copy.
  std::map<int64_t, std::set<std::string>> kept_everywhere(const fs::path& directory) const {
    Json own = Json::array();
    std::error_code ignored;
    if (fs::exists(directory / "DONE", ignored)) {
      const Json done = read_json_file(directory / "DONE");
      for (const auto& [file, size] : done.at("files").items()) {
        if (fs::exists(directory / file, ignored)) own.push_back(file);
      }
    }
    std::map<int64_t, std::set<std::string>> kept;
    for (const int64_t keeper : run_dir_.keepers)
      kept[keeper] = parse_json(ranks_.from(keeper, dump_text(own)), "a keeper's files");
    return kept;
  }

  const TrainConfig& config_;
  const Ranks& ranks_;
  const Shared& run_dir_;
  std::vector<int64_t> keeper_of_;        ///< of every rank
  std::map<int64_t, std::string> hosts_;  ///< of keepers
};

/// Finds it in a directory that all ranks see: rank 0 reads all of it, however long that takes.
std::optional<checkpoint::Loaded> find_in_common(const TrainConfig& config, const Ranks& ranks) {
  std::optional<checkpoint::Loaded> found;
  const std::string named = ranks.from_first(ranks.in_turn(0, [&] {
    if (ranks.is_first()) found = find_checkpoint(config);
    return found ? found->directory.string() : std::string();
  }));
  if (!ranks.is_first() && !named.empty())
    found = checkpoint::open(named, checkpoint::Check::kSizes);
  return found;
}

}  // namespace

std::optional<checkpoint::Loaded> find_checkpoint_everywhere(const TrainConfig& config,
                                                             const Ranks& ranks,
                                                             const Shared& run_dir) {
  if (run_dir.by_all()) return find_in_common(config, ranks);
  const Everywhere everywhere(config, ranks, run_dir);
  const std::string job = job_to_go_on(config.output);
  if (!job.empty() || (config.output.resume == "auto" && !config.output.overwrite)) {
    if (auto newest = everywhere.newest_whole(job)) return newest;
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
