// text/tokenizer/post_processor.h: special tokens around a text ("post_processor").
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "text/tokenizer.h"

namespace danlu::text {

/// Ids put before and after the ids of a single text when add_special is asked for.
struct PostProcessor {
  /// Around and between two texts; kSecondText (base/token_type.h) marks special tokens of the
  /// second one.
  struct Pair {
    std::vector<TokenId> before, between, after;
    bool marks_second = false;  ///< the tokens of the second text have it too
  };
  std::vector<TokenId> prefix, suffix;
  /// Times the text itself appears between them: 1 with every template seen so far.
  bool keeps_text = true;
  std::optional<Pair> pair = {};  ///< where it has a place for each of two texts
};

/// Builds from the JSON value (null: nothing is added).
/// Types: TemplateProcessing BertProcessing RobertaProcessing ByteLevel Sequence.
/// Errors: ModelError naming `origin`.
PostProcessor make_post_processor(const Json& spec, const std::string& origin);

}  // namespace danlu::text
