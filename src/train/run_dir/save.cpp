#include <fmt/format.h>

#include "base/file.h"
#include "base/log.h"
#include "checkpoint/checkpoint.h"
#include "device/dtype.h"
#include "train/loop.h"
#include "train/run_dir/run_dir.h"

namespace danlu::train {

void require_finite_everywhere(const Run& run) {
  run.ranks.check_together([&] { require_finite(run.state); },
                           [&] {
                             throw_diverged(run.state.step,
                                            tr("a weight that another rank holds is not finite"));
                           });
}

void save_checkpoint(Run& run) {
  require_finite_everywhere(run);
  run.last_saved_step = run.state.step;
  if (run.ranks.mesh().data().rank() > 0) return;
  const bool adapter = run.config.tuner == Tuner::kLora;
  checkpoint::SaveRequest request;
  request.mesh = &run.ranks.mesh();
  request.run_dir = run.config.output.directory;
  request.step = run.state.step;
  request.write_model = [&](const std::filesystem::path& directory) {
    write_model_files(*run.state.model, run.config, device::dtype_of(run.state.model->dtype()),
                      directory);
  };
  request.model_bytes = model_file_bytes(*run.state.model, adapter);
  request.optimizer = run.config.output.save_only_model ? nullptr : run.state.optimizer.get();
  // PEFT files may hold adapters in another type than they are trained in.
  request.exact_weights = adapter;
  request.args = run.config.args;
  request.trainer_state =
      trainer_state(run.progress, run.state, run.plan, run.identity, run.stream.epoch());
  request.data_state = data_state(run.data, run.stream.consumed());
  // A checkpoint whose steps the log has lost cannot log them again.
  if (run.ranks.is_first()) sync_path(request.run_dir / "logging.jsonl");
  const std::filesystem::path saved = checkpoint::save(request);
  if (!run.ranks.is_first()) return;
  settle_checkpoints(run, saved);
  log::info("saved {}", saved.string());
}

void settle_checkpoints(const Run& run, const std::filesystem::path& newest) {
  const std::filesystem::path& run_dir = run.config.output.directory;
  checkpoint::point_link(run_dir, "last", newest);
  std::vector<std::filesystem::path> keep = {newest};
  if (run.progress.best_step > 0) {
    const auto best = run_dir / fmt::format("checkpoint-{}", run.progress.best_step);
    if (std::filesystem::exists(best / "DONE")) {
      checkpoint::point_link(run_dir, "best", best);
      keep.push_back(best);
    }
  }
  checkpoint::rotate(run_dir, run.config.output.save_total_limit, keep);
}

}  // namespace danlu::train
