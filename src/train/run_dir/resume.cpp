#include "train/run_dir/resume.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/shell_quote.h"
#include "settings/identity.h"
#include "weights/tensor_source.h"

namespace danlu::train {
namespace {

/// A checkpoint of PPO whose critic is not there.
class NoCritic : public IoError {
 public:
  using IoError::IoError;
};

/// Errors: UsageError if `directory` is a run, not one of its checkpoints.
void refuse_a_run(const fs::path& directory) {
  const std::vector<checkpoint::Found> found = checkpoint::list(directory);
  if (found.empty()) return;
  const std::string newest = found.back().directory.string();
  throw UsageError(
      tr("[train] --resume {}: a run, not one of its checkpoints", directory.string()),
      tr("name one: --resume {}; or resume it as its own command does, without --resume", newest));
}

/// The newest of `found` to go on from, or of those of them that `job` wrote; what turns out
/// damaged is named and passed over. Errors: IoError if every one that a run finished writing is
/// damaged.
std::optional<checkpoint::Loaded> newest_whole(const fs::path& run_dir,
                                               const std::vector<checkpoint::Found>& found,
                                               const std::string& job = "") {
  std::string lost, way_out;
  const auto pass_over = [&](const fs::path& directory, const std::string& why) {
    log::warning("{}; not resumed from", why);
    if (fs::exists(directory / "DONE"))
      lost += fmt::format("{}{}", lost.empty() ? "" : ", ", directory.filename().string());
  };
  for (const checkpoint::Damaged& damaged : checkpoint::damaged(run_dir)) {
    if (!is_of_job(damaged.directory, job)) continue;
    pass_over(damaged.directory, fmt::format("{}: {}", damaged.directory.string(), damaged.what));
  }
  for (auto it = found.rbegin(); it != found.rend(); ++it) {
    if (!it->resumable || !is_of_job(it->directory, job)) continue;
    try {
      return open_with_critic(it->directory);
    } catch (const NoCritic& error) {
      pass_over(it->directory, error.what());
      if (way_out.empty()) way_out = error.hint();
    } catch (const IoError& error) {
      pass_over(it->directory, error.what());
    }
  }
  if (lost.empty()) return std::nullopt;
  if (way_out.empty()) way_out = tr("restore one from a copy, or start anew in another directory");
  throw IoError(tr("[resume] {}: every checkpoint is damaged ({})", run_dir.string(), lost),
                way_out);
}

bool holds_finished_model(const fs::path& directory) {
  return fs::exists(directory / "config.json") || fs::exists(directory / "adapter_config.json") ||
         weights::has_weights(directory);
}

/// The profile that the run began with, where this line has another: the likeliest reason for other
/// settings. Else empty.
std::string other_profile(const fs::path& run_dir, const ProfileInForce& now) {
  std::error_code ignored;
  if (!fs::exists(run_dir / "args.json", ignored)) return "";
  const Json args = read_json_file(run_dir / "args.json");
  const auto earlier_key = json_get<std::string>(args, "profile_name");
  const std::string then =
      json_get<std::string>(args, "profile").value_or(earlier_key.value_or("danlu"));
  return then == now.name ? "" : then;
}

/// Errors: UsageError, always: the run's directory is taken, by `found` or by a model alone.
[[noreturn]] void refuse_taken(const TrainConfig& config,
                               const std::vector<checkpoint::Found>& found) {
  const std::string output =
      fmt::format("{} {}", config.flag("output_dir"), config.output.directory.string());
  std::error_code ignored;
  const std::pair<const char*, fs::path> inputs[] = {{"model", config.model.path},
                                                     {"adapters", config.model.adapter},
                                                     {"tokenizer", config.model.tokenizer}};
  for (const auto& [option, input] : inputs) {
    if (input.empty() || !fs::equivalent(input, config.output.directory, ignored)) continue;
    throw UsageError(tr("[train] {} is what this run reads ({}): it would be replaced", output,
                        config.flag(option)),
                     tr("choose another {}", config.flag("output_dir")));
  }
  if (found.empty()) {
    throw UsageError(tr("[train] {} holds a model already", output),
                     tr("choose another directory, or give --overwrite_output_dir"));
  }
  const bool resumable =
      std::any_of(found.begin(), found.end(), [](const auto& one) { return one.resumable; });
  const bool by_finetune =
      config.given_as.contains("finetune") && !config.given_as.contains("resume");
  throw UsageError(by_finetune
                       ? tr("[train] {} holds checkpoints of an earlier run, and {} begins anew",
                            output, config.flag("finetune"))
                       : tr("[train] {} holds checkpoints of an earlier run", output),
                   resumable ? tr("choose another directory, or go on with them: --resume auto")
                             : tr("none of them holds the optimizer's state (--save_only_model, "
                                  "--no-save-optim), so none is gone on from; choose another "
                                  "directory, and begin with the newest as --model"));
}

/// What to do about a checkpoint of other settings; each way out as it is typed.
std::string ways_out(const fs::path& checkpoint, const TrainConfig& config, bool may_resume,
                     const std::string& profile) {
  const std::string restore = profile.empty() ? tr("restore the settings")
                                              : tr("restore the settings: --profile {}", profile);
  const std::string named = shell_quoted(checkpoint.string());
  if (may_resume)
    return tr("{}; or continue with the changed ones: --resume {}; or choose another {}", restore,
              named, config.flag("output_dir"));
  const std::string weights = checkpoint::option_of_weights(checkpoint);
  if (config.given_as.contains("resume"))
    return tr("{}; or begin a new run from these weights, in another {} and without {}: {} {}",
              restore, config.flag("output_dir"), config.flag("resume"), weights, named);
  return tr("{}; or begin a new run from these weights, in another {}: {} {}", restore,
            config.flag("output_dir"), weights, named);
}

}  // namespace

std::optional<fs::path> critic_of(const checkpoint::Loaded& policy) {
  const Json::json_pointer at("/identity/objective/policy/critic");
  if (!policy.trainer_state.contains(at)) return std::nullopt;
  return policy.directory.parent_path() / settings::kCriticFolder / policy.directory.filename();
}

checkpoint::Loaded open_with_critic(const fs::path& checkpoint) {
  checkpoint::Loaded policy = checkpoint::open(checkpoint);
  const std::optional<fs::path> critic = critic_of(policy);
  if (!critic) return policy;
  std::error_code unknown;
  if (!fs::exists(*critic, unknown)) {
    throw NoCritic(
        tr("[resume] {}: its critic, {}, is not there", checkpoint.string(), critic->string()),
        tr("restore it from a copy, or begin anew from these weights: --model {}",
           checkpoint.string()));
  }
  checkpoint::open(*critic);
  return policy;
}

std::optional<checkpoint::Loaded> find_checkpoint(const TrainConfig& config) {
  const fs::path& run_dir = config.output.directory;
  if (const std::string job = job_to_go_on(config.output); !job.empty()) {
    if (auto own = newest_whole(run_dir, checkpoint::list(run_dir), job)) return own;
  }
  std::optional<checkpoint::Loaded> named;
  if (config.output.resume != "auto" && config.output.resume != "none") {
    refuse_a_run(config.output.resume);
    named = open_with_critic(config.output.resume);
    if (is_of_run(*named, run_dir)) return named;
  }
  const std::vector<checkpoint::Found> found = checkpoint::list(run_dir);
  if (config.output.resume == "auto" && !config.output.overwrite) {
    if (auto whole = newest_whole(run_dir, found)) return whole;
  }
  if ((!found.empty() || holds_finished_model(run_dir)) && !config.output.overwrite) {
    refuse_taken(config, found);
  }
  return named;
}

std::optional<fs::path> run_of_job(const OutputConfig& output, const Restart& restart) {
  if (restart.number == 0 || restart.job.empty()) return std::nullopt;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(output.directory, ignored)) {
    for (const checkpoint::Found& found : checkpoint::list(entry.path())) {
      if (found.resumable && is_of_job(found.directory, restart.job)) return entry.path();
    }
  }
  return std::nullopt;
}

std::string job_to_go_on(const OutputConfig& output) {
  const bool by_rule = output.resume == "auto" && !output.overwrite;
  const Restart restart = restart_from_environment();
  return restart.number == 0 || by_rule ? "" : restart.job;
}

bool is_of_job(const fs::path& checkpoint, const std::string& job) {
  if (job.empty()) return true;
  const fs::path state = checkpoint / "trainer_state.json";
  std::error_code unknown;
  if (!fs::exists(state, unknown)) return false;
  return json_get<std::string>(read_json_file(state), "job") == job;
}

bool is_of_run(const checkpoint::Loaded& checkpoint, const fs::path& run_dir) {
  std::error_code error;
  const fs::path parent = fs::canonical(checkpoint.directory, error).parent_path();
  return !error && fs::equivalent(parent, run_dir, error) && !error;
}

void check_resumable(const checkpoint::Loaded& checkpoint, const TrainConfig& config,
                     const Json& identity, uint64_t data_hash) {
  const bool explicit_checkpoint = config.output.resume != "auto";
  const Json saved = checkpoint.trainer_state.value("identity", Json::object());
  settings::IdentityChange found =
      settings::compare_identities(saved, identity, explicit_checkpoint);
  const std::string hash = fmt::format("{:016x}", data_hash);
  const std::string saved_hash = checkpoint.data_state.value("content_hash", std::string());
  if (hash != saved_hash) {
    found.fatal += tr("{}training data: content {} then, {} now", found.fatal.empty() ? "" : "; ",
                      saved_hash, hash);
  }
  const std::string profile = other_profile(checkpoint.directory.parent_path(), config.profile);
  const std::string cause =
      profile.empty()
          ? ""
          : tr("; it began with the defaults of --profile {}, this line has those of {}", profile,
               config.profile.name);
  if (!found.fatal.empty()) {
    const bool may_resume = !explicit_checkpoint && hash == saved_hash &&
                            settings::compare_identities(saved, identity, true).fatal.empty();
    throw UsageError(tr("[resume] {} is of a run with other settings: {}{}",
                        checkpoint.directory.string(), found.fatal, cause),
                     ways_out(checkpoint.directory, config, may_resume, profile));
  }
  if (!found.tolerable.empty())
    log::warning("[resume] continuing with changed settings: {}{}", found.tolerable, cause);
}

}  // namespace danlu::train
