// train/run_dir/run_dir.h: what a run directory holds and how its parts are written.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>

#include "base/file_lock.h"
#include "models/causal_lm.h"
#include "train/settings.h"

namespace danlu::train {

/// Where a versioned run goes, below <output_dir>/<model>, which config.output.directory names: the
/// newest version that began with the same settings (config.yaml), holds a checkpoint to go on
/// from, was not finished and is not being trained, unless config.output says not to resume; else
/// vN-YYYYMMDD-HHMMSS, one above the largest N there.
std::filesystem::path choose_version(const TrainConfig& config);

/// What a run whose line says --finetune finds in a directory that it names: a run of the same line
/// (config.yaml, but for what a start decides), to go on with or finished; or, without a checkpoint
/// that tells how far it came, what such a run left at its end.
enum class OwnRun { kNone, kUnfinished, kFinished, kModelAlone };
/// kNone also where somebody trains there.
OwnRun own_run(const TrainConfig& config);

/// own_run, which is told to the user: a script that says --finetune and is given again means its
/// own run. kNone on other ranks than the first, which decides for all.
OwnRun find_own_run(const TrainConfig& config);

/// args.json as it is read back, a copy under ms-swift's name, and config.yaml with what was set.
void write_run_settings(const TrainConfig& config);

/// Held while a run writes into `directory`: two at once would spoil each other's files.
/// Errors: IoError naming the directory and the process that holds it.
FileLock lock_run_directory(const std::filesystem::path& directory);

/// Bytes of the model files of one checkpoint.
uint64_t model_file_bytes(const models::CausalLM& model, bool adapter_only);

/// Model or adapter, tokenizer, generation_config into `directory`, in `dtype` (full models).
void write_model_files(const models::CausalLM& model, const TrainConfig& config, DType dtype,
                       const std::filesystem::path& directory);

/// Writes what sentence-transformers opens a model by: of a whole one that embeds texts as they
/// stand. Errors: IoError.
void write_embedding_files(const TrainConfig& config, const arch::ModelConfig& model,
                           const std::filesystem::path& directory);

/// Makes the run directory itself a model (or PEFT) directory: links the model files of
/// `checkpoint` into it (copies where the file system has no links).
void publish_model(const std::filesystem::path& checkpoint, const std::filesystem::path& run_dir);
/// The same of a full model of `config`, whose weights are written in another type.
void publish_model_in_type(const std::filesystem::path& checkpoint, const arch::ModelConfig& config,
                           DType dtype, const std::filesystem::path& run_dir);

/// Removes what an earlier run wrote and this one need not write again: checkpoints, the model,
/// event files, results. Files that no run writes stay.
void clear_run_directory(const std::filesystem::path& run_dir);

/// Errors: UsageError if the run's directory holds a checkpoint of another format, which would be
/// read in place of what this run leaves there.
void refuse_other_format(const std::filesystem::path& run_dir);

/// Checks what a run that begins would remove or write over. Errors: UsageError if it overwrites
/// its directory and would thereby remove a model, tokenizer, adapter, template, data set or
/// checkpoint that it reads; if it does not, and the directory is no run's but holds a file that
/// this one would write over: somebody's README.md.
void refuse_to_lose_files(const TrainConfig& config);

/// RUN/DONE says that the run took all its steps and that its model and reports are in place.
void mark_finished(const std::filesystem::path& run_dir, int64_t step);
void mark_unfinished(const std::filesystem::path& run_dir);
bool is_finished(const std::filesystem::path& run_dir);

}  // namespace danlu::train
