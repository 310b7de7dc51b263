// text/tokenizer/simple_models.h: the models besides BPE: Unigram, WordPiece, WordLevel.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "text/tokenizer/model.h"

namespace danlu::text {

struct UnigramOptions {
  std::optional<TokenId> unk_id;
  bool byte_fallback = false;
};
/// The most probable segmentation (Viterbi). scores[id]: log probability.
/// Errors: ModelError if there is not one score for each id, or unk_id is not a token; at encode
/// time if an unknown character has no unk_id.
std::unique_ptr<Model> make_unigram_model(Vocabulary vocabulary, std::vector<double> scores,
                                          UnigramOptions options, const std::string& origin);

struct WordPieceOptions {
  std::string unk_token = "[UNK]";
  std::string continuing_subword_prefix = "##";
  size_t max_input_chars_per_word = 100;
};
/// Longest match first. Errors: ModelError at encode time if unk_token is needed and not a token.
std::unique_ptr<Model> make_wordpiece_model(Vocabulary vocabulary, WordPieceOptions options,
                                            const std::string& origin);

/// Whole pieces only. Pieces that are no token give unk_token, or nothing if that is no token
/// either.
std::unique_ptr<Model> make_wordlevel_model(Vocabulary vocabulary, const std::string& unk_token);

}  // namespace danlu::text
