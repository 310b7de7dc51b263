// settings/options/change_options.h: what flags make of a model's config.json and tokenizer.
#pragma once
#include <filesystem>

#include "base/options.h"
#include "settings/config.h"
#include "settings/model_changes.h"

namespace danlu::settings {

/// What a training line changes: --rope_scaling and --max_model_len as ms-swift has them, or
/// LLaMA-Factory where its profile holds, whose length is --max_length; --new_special_tokens;
/// --add_tokens,
/// --add_special_tokens and --resize_vocab. Where the line says nothing, what adapters that are
/// trained further were trained with. `model` is what the files have.
/// Errors: UsageError for words and tokens that cannot be; as completed_positions,
/// text::load_with_tokens and recorded_changes. is_planned: a tokenizer need not be there.
ModelChanges changes_to_train(const Options& options, const ModelSource& source,
                              const arch::ModelConfig& model, bool is_planned);

/// What a line that asks a model changes: --rope_scaling, --rope_theta and --hf_overrides, else
/// what `adapter` was trained with; tokens are always the adapter's. Errors: likewise.
ModelChanges changes_to_ask(const Options& options, const std::filesystem::path& adapter,
                            const arch::ModelConfig& model);

/// Writes into args.json what recorded_changes reads.
void record_changes(const ModelChanges& changes, Json& args);

/// With adapters, rows of new tokens are trained whole: the table and a head of its own join
/// modules_to_save, which is said.
void save_new_rows(const arch::ModelConfig& model, TrainConfig& config);

}  // namespace danlu::settings
