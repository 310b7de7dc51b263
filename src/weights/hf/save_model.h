// weights/hf/save_model.h: a model of any source as a Hugging Face directory, written as a stream.
#pragma once
#include <filesystem>
#include <vector>

#include "arch/model_config.h"
#include "weights/tensor_source.h"

namespace danlu::weights {

/// Says in a config.json whether head and embedding are one tensor; also in its text_config, which
/// counts where both say something.
void set_tied(Json& config_json, bool is_tied);

/// config.json of a model whose weights are stored in `dtype`: what `config` was read from, with
/// the dtype and tie_word_embeddings as they are now, in a text_config too where that has them.
/// Errors: UsageError for types that weights are not stored in.
Json saved_config(const arch::ModelConfig& config, DType dtype);

/// What a directory of `model` in `dtype` holds: the parameters of `config`, and the tensors of
/// layers that predict further ahead where `model` has them and the config leaves them out. Those
/// of arch::wide_parameters keep the type that `model` has them in.
std::vector<TensorInfo> saved_tensors(const TensorSource& model, const arch::ModelConfig& config,
                                      DType dtype);

/// Writes saved_tensors, each cast to its type, and config.json into an existing directory that has
/// none of them: one file, or shards and their index. Other tensors of `model` stay behind. Memory:
/// some megabytes a thread.
/// Errors: IoError; ModelError for a number that `dtype` cannot hold, and as reading `model`.
void save_model(const TensorSource& model, const arch::ModelConfig& config, DType dtype,
                const std::filesystem::path& directory,
                uint64_t max_shard_bytes = SaveOptions{}.max_shard_bytes);

}  // namespace danlu::weights
