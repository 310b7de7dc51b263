#include "train/run_dir/save.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "checkpoint/checkpoint.h"
#include "device/dtype.h"
#include "models/training_memory.h"
#include "parallel/agree.h"
#include "train/loop.h"
#include "train/run_dir/run_dir.h"

namespace danlu::train {

namespace {

/// Whether a file of a directory that somebody may be removing is there no more.
bool is_gone_for_good(const std::filesystem::path& file) {
  // Whoever removes it may be in the middle of it.
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  std::error_code unknown;
  return !std::filesystem::exists(file, unknown);
}

/// Whether somebody has removed the run's directory of this rank's machine.
bool is_directory_gone(const Run& run) {
  // Other machines' directories hold checkpoints alone.
  const std::filesystem::path& directory = run.config.output.directory;
  return is_gone_for_good(run.ranks.is_first() ? directory / "args.json" : directory);
}

/// work(), which all ranks do together. Where it fails on all of them because somebody has removed
/// the run's directory, what was being saved is lost, which is said, and the run goes on: false.
template <typename Work>
bool outlives_removal(Run& run, const Work& work) {
  std::exception_ptr failure;
  std::string what;
  try {
    work();
    return true;
  } catch (const CommError&) {
    throw;
  } catch (const parallel::BrokenExchange&) {
    throw;
  } catch (const std::exception& error) {
    failure = std::current_exception();
    what = error.what();
  }
  const bool is_gone =
      run.saver.was_removed() || (run.run_dir.keeper == run.ranks.rank() && is_directory_gone(run));
  if (run.ranks.largest(is_gone ? 1 : 0) == 0) std::rethrow_exception(failure);
  log::warning("{}", what);
  run.last_saved_step = 0;
  run.progress.forget_best();
  run.observer.look_after_directory(run.progress.log_history, /*needed=*/true);
  return false;
}

/// Removes the checkpoints of `steps` that are not among `keep`.
void remove_former_best(const std::filesystem::path& run_dir, const std::vector<int64_t>& steps,
                        const std::vector<std::filesystem::path>& keep) {
  for (const int64_t step : steps) {
    const auto former = run_dir / fmt::format("checkpoint-{}", step);
    std::error_code unknown;
    if (!std::filesystem::exists(former, unknown)) continue;
    const bool is_kept = std::any_of(keep.begin(), keep.end(), [&](const auto& kept) {
      std::error_code ignored;
      return std::filesystem::equivalent(kept, former, ignored);
    });
    if (!is_kept) remove_directory_atomic(former);
  }
}

}  // namespace

void require_finite_everywhere(const Run& run) {
  parallel::together(run.ranks.all(), [&] { require_finite(run.state); });
}

void begin_checkpoint(Run& run) {
  const double begun = steady_now_s();
  go_on_saving(run, /*waits=*/true);
  require_finite_everywhere(run);
  run.last_saved_step = run.state.step;
  run.best_when_saved = run.progress.best_step;
  run.as_best_when_saved = run.progress.saved_as_best;
  const bool adapter = run.config.tuner == Tuner::kLora;
  checkpoint::SaveRequest request;
  request.run_dir = run.config.output.directory;
  request.step = run.state.step;
  request.keepers = run.run_dir.keepers;
  request.keeper = run.run_dir.keeper;
  const models::CausalLM& model = *run.state.model;
  model.memory().settle();
  // What is captured outlives the saver.
  request.write_model = [&model, &config = run.config](const std::filesystem::path& directory) {
    write_model_files(model, config, device::dtype_of(model.dtype()), directory);
  };
  request.model_bytes = model_file_bytes(model, adapter);
  request.with_state = !run.config.output.save_only_model;
  // PEFT files may hold adapters in another type than they are trained in.
  request.exact_weights = adapter;
  request.args = run.config.args;
  request.trainer_state =
      trainer_state(run.progress, run.state, run.plan, run.identity, run.stream.epoch());
  if (run.evaluation_is_due) request.trainer_state["evaluation_is_due"] = true;
  // By which a job that begins again knows its own.
  if (const std::string job = restart_from_environment().job; !job.empty())
    request.trainer_state["job"] = job;
  request.data_state = data_state(run.data, run.stream.consumed(), run.stream.state());
  run.observer.look_after_directory(run.progress.log_history, /*needed=*/true);
  // A checkpoint whose steps the log has lost cannot log them again.
  parallel::together(run.ranks.all(), [&] {
    if (!run.ranks.is_first()) return;
    for (const char* name : {"logging.jsonl", "samples.jsonl"}) sync_path(request.run_dir / name);
  });
  // First: a checkpoint that is there is whole.
  const bool is_begun = outlives_removal(run, [&] {
    if (run.critic) run.critic->save(model, request);
    run.saver.begin(std::move(request));
  });
  if (is_begun) {
    log::debug("checkpoint-{}: steps stood still for {:.3f} s", run.state.step,
               steady_now_s() - begun);
  }
}

void go_on_saving(Run& run, bool waits) {
  std::optional<std::filesystem::path> saved;
  outlives_removal(run, [&] { saved = waits ? run.saver.finish() : run.saver.poll(); });
  if (!saved || run.run_dir.keeper != run.ranks.rank()) return;
  // A directory that is gone is said at the next line of the log.
  if (!settle_checkpoints(run.config.output, *saved, run.best_when_saved,
                          run.megatron_copies.sources(), run.as_best_when_saved))
    return;
  log::info("saved {}", saved->string());
  if (run.ranks.is_first()) run.megatron_copies.begin(*saved, run.last_saved_step);
}

bool settle_checkpoints(const OutputConfig& output, const std::filesystem::path& newest,
                        int64_t best_step, std::vector<std::filesystem::path> in_use,
                        const std::vector<int64_t>& as_best) {
  const std::filesystem::path& run_dir = output.directory;
  std::string stays = tr("links and older checkpoints stay as they are");
  bool best_is_whole = false;
  try {
    checkpoint::point_link(run_dir, "last", newest);
    std::vector<std::filesystem::path>& keep = in_use;
    keep.push_back(newest);
    if (best_step > 0) {
      const auto best = run_dir / fmt::format("checkpoint-{}", best_step);
      if (std::filesystem::exists(best / "DONE")) {
        checkpoint::point_link(run_dir, "best", best);
        keep.push_back(best);
        best_is_whole = true;
      }
    }
    stays = tr("older checkpoints stay");
    if (best_is_whole) remove_former_best(run_dir, as_best, keep);
    checkpoint::rotate(run_dir, output.save_total_limit, keep);
  } catch (const std::exception&) {
    const Error error = current_error();
    if (is_gone_for_good(newest / "DONE")) return false;
    log::warning("{}; {} is whole; {}", error.what(), newest.string(), stays);
  }
  return true;
}

}  // namespace danlu::train
