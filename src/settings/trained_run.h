// settings/trained_run.h: what a training of Danlu's left, as a model or adapter to convert.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace danlu::settings {

struct TrainedRun {
  std::filesystem::path run;    ///< its directory
  std::filesystem::path holds;  ///< where model or adapter lie: the run itself, or a checkpoint
  std::optional<int64_t> step;  ///< of the checkpoint; empty: what the finished run left
  bool is_adapter = false;
};

/// What `path`, a run's directory or one of its checkpoints, holds; nullopt: it is neither. Of a
/// run: what it left at its end, else its newest whole checkpoint. `iteration`: that checkpoint.
/// `with_state`: a checkpoint with the optimizer's state.
/// Errors: ModelError where there is no such checkpoint, which names those there are.
std::optional<TrainedRun> find_trained_run(const std::filesystem::path& path,
                                           const std::string& iteration = "",
                                           bool with_state = false);

struct BaseModel {
  std::filesystem::path path;
  std::filesystem::path config_dir, fallback_dir;  ///< as weights::SourceOptions
};

/// The model that the adapter of `run` was trained on, as the run's own line named it.
/// Errors: ModelError where it is not there any more, or is another one by now.
BaseModel base_of(const TrainedRun& run);

}  // namespace danlu::settings
