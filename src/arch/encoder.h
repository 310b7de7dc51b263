// arch/encoder.h: models that read a text in both directions (BERT, XLM-RoBERTa) and give hidden
// states of it, and no text.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>

#include "base/error.h"

namespace danlu::arch {

struct ModelConfig;

/// What the vector of a text is, or what its head reads.
enum class Pooling {
  kFirst,  ///< the first token's hidden state ([CLS], <s>)
  kMean,   ///< the mean over its tokens
  kLast,
};

/// What sets an encoder's network apart: every token sees all of its text, norms stand after the
/// sums, and nothing follows the last layer. Heads read the first token through a dense layer
/// with tanh.
struct EncoderConfig {
  int64_t token_types = 1;             ///< rows of the table of token types (base/token_type.h)
  int64_t first_position = 0;          ///< row of the table of positions of a text's first token
  Pooling pooling = Pooling::kFirst;   ///< of vectors
  std::string dense = {}, score = {};  ///< modules of a head in files
};

/// Reads what sentence-transformers' 1_Pooling/config.json in `directory` says; kFirst without such
/// a file. Errors: ModelError for another way of pooling.
Pooling pooling_in(const std::filesystem::path& directory);

/// Whether the config.json in this directory is an encoder's; false where none can be read.
bool is_encoder_in(const std::filesystem::path& directory);

/// Refuses an encoder where text is to be made. Errors: ModelError.
void require_answers(const ModelConfig& config);

}  // namespace danlu::arch
