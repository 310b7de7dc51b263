// settings/model_changes.h: what a line makes of a model before it is trained or asked: positions
// that are stretched, tokens that it gains.
#pragma once
#include <filesystem>
#include <vector>

#include "arch/config_change.h"
#include "text/new_tokens.h"
#include "weights/convert/checkpoint_source.h"
#include "weights/hf/new_rows.h"

namespace danlu::settings {

struct ModelChanges {
  arch::PositionChange positions;
  std::vector<text::NewToken> tokens;  ///< that the tokenizer gains
  weights::NewRows rows;               ///< that they stand for
  bool empty() const { return positions.empty() && tokens.empty() && rows.empty(); }
};

/// Makes `opened` the changed model: its config, and the rows of its tensors where it has any.
/// Errors: as arch::with_positions, arch::with_vocabulary and weights::with_new_rows; ModelError
/// where rows are new to a model whose files have layers that predict further ahead.
void make_changes(const ModelChanges& changes, weights::CheckpointSource& opened);

/// rope_scaling with what a line leaves open, as ms-swift completes it from the model's lengths:
/// original_max_position_embeddings, and a factor from `length`, the tokens that are to be read.
/// Errors: UsageError naming `flag` where there is neither a factor nor a length, or the model does
/// not say how long its texts were.
arch::PositionChange completed_positions(const arch::ModelConfig& model, Json scaling,
                                         std::optional<int64_t> length, const std::string& flag);

/// The rows that new tokens need: none where they fit, else a multiple of `multiple` in all.
weights::NewRows rows_of_tokens(const arch::ModelConfig& model, const text::GrownTokenizer& grown,
                                int64_t multiple);

/// Tokens that a record (args.json, ms-swift's or LLaMA-Factory's names) says the run gained.
std::vector<text::NewToken> recorded_tokens(const Json& record);

/// What the base of these adapters was made into while they were trained: their args.json says
/// which positions and tokens, and the rows of the table that they bring say how many. Nothing for
/// an empty path, and for adapters that say nothing. `base` is the model as its files have it.
/// Errors: as text::read_record, and as reading the adapters' headers.
ModelChanges recorded_changes(const std::filesystem::path& adapter, const arch::ModelConfig& base);

/// Whether a tokenizer may be read from the directory.
bool has_tokenizer_files(const std::filesystem::path& directory);

/// Where the tokenizer of a model with these adapters is: theirs, where they bring tokens or a
/// table of embeddings and have one beside them, else the model's `companions`, else theirs.
std::filesystem::path tokenizer_beside(const std::filesystem::path& companions,
                                       const std::filesystem::path& adapter);

}  // namespace danlu::settings
