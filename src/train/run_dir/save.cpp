#include <fmt/format.h>

#include "base/log.h"
#include "checkpoint/checkpoint.h"
#include "device/dtype.h"
#include "train/loop.h"
#include "train/run_dir/run_dir.h"

namespace danlu::train {

void save_checkpoint(Run& run) {
  require_finite(run.state);
  const bool adapter = run.config.tuner == Tuner::kLora;
  checkpoint::SaveRequest request;
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
  const std::filesystem::path saved = checkpoint::save(request);
  run.last_saved_step = run.state.step;

  checkpoint::point_link(request.run_dir, "last", saved);
  std::vector<std::filesystem::path> keep = {saved};
  if (run.progress.best_step > 0) {
    const auto best = request.run_dir / fmt::format("checkpoint-{}", run.progress.best_step);
    if (std::filesystem::exists(best / "DONE")) {
      checkpoint::point_link(request.run_dir, "best", best);
      keep.push_back(best);
    }
  }
  checkpoint::rotate(request.run_dir, run.config.output.save_total_limit, keep);
  log::info("saved {}", saved.string());
}

}  // namespace danlu::train
