// weights/hf/value_head.h: where TRL and LLaMA-Factory keep the head of a reward model beside its
// decoder, or beside an adapter (arch::ScoreForm::kBeside): in value_head.safetensors or
// value_head.bin; TRL's own save_pretrained puts it among a model's weights, and beside an adapter
// into a pytorch_model.bin that holds nothing else.
#pragma once
#include <filesystem>
#include <memory>
#include <string>

#include "weights/tensor_source.h"

namespace danlu::weights {

/// What its names begin with in an adapter, where it is a module that is trained whole.
inline constexpr const char* kWholeModulePrefix = "base_model.model.";

/// The file with that head alone in a directory; empty: there is none.
std::filesystem::path value_head_file(const std::filesystem::path& directory);
bool has_value_head(const std::filesystem::path& directory);

/// `source` with the tensors of that file, under `prefix`; `source` itself where there is none.
/// Errors: as open_weights, and ModelError for a tensor that no such head has.
std::shared_ptr<const TensorSource> with_value_head(std::shared_ptr<const TensorSource> source,
                                                    const std::filesystem::path& directory,
                                                    const std::string& prefix = "");

/// Whether the weights of a model hold such a head too, and the same without it.
bool holds_value_head(const TensorSource& source);
/// The same of a directory of Hugging Face's form; false for any other.
bool holds_value_head(const std::filesystem::path& directory);
std::shared_ptr<const TensorSource> without_value_head(std::shared_ptr<const TensorSource> source);

/// Whether a directory holds an adapter beside which TRL left a head: its pytorch_model.bin is no
/// model then.
bool is_adapter_with_head(const std::filesystem::path& directory);

}  // namespace danlu::weights
