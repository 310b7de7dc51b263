// train/run_dir.h: what a run directory holds and how its parts are written.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>

#include "base/file_lock.h"
#include "models/causal_lm.h"
#include "train/config.h"

namespace danlu::train {

/// <output_dir>/<model>/vN-YYYYMMDD-HHMMSS with the smallest free N.
std::filesystem::path versioned_run_dir(const std::filesystem::path& output_dir,
                                        const std::string& model_name);

/// Held while a run writes into `directory`: two at once would spoil each other's files.
/// Errors: IoError naming the directory and the process that holds it.
FileLock lock_run_directory(const std::filesystem::path& directory);

/// Bytes of the model files of one checkpoint.
uint64_t model_file_bytes(const models::CausalLM& model, bool adapter_only);

/// Model or adapter, tokenizer, generation_config into `directory`, in `dtype` (full models).
void write_model_files(const models::CausalLM& model, const TrainConfig& config, DType dtype,
                       const std::filesystem::path& directory);

/// Makes the run directory itself a model (or PEFT) directory: links the model files of
/// `checkpoint` into it (copies where the file system has no links).
void publish_model(const std::filesystem::path& checkpoint, const std::filesystem::path& run_dir);

}  // namespace danlu::train
