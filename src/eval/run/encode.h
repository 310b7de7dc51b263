// eval/run/encode.h: the questions of a benchmark as token ids, by the rules of lm-eval's HFLM.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "eval/item.h"
#include "text/tokenizer.h"

namespace danlu::eval {

struct EncoderSettings {
  int64_t window = 0;  ///< ids the model reads at a time; 0: any number
  /// false: the tokenizer's own special ids are not written around a text. A text that begins with
  /// BOS gets no second one in any case.
  std::optional<bool> add_special;
  /// Stands where a text has no context. Unset: BOS, else EOS.
  std::optional<text::TokenId> prefix_id;
};

/// ids[num_context …] are what is asked for; all of them in a prompt's case.
struct Encoded {
  std::vector<text::TokenId> ids;
  int64_t num_context = 0;
  int64_t num_cut = 0;  ///< of the left side, for which the window has no room
};

/// Thread-safe.
class Encoder {
 public:
  /// Errors: ModelError if neither a prefix id is given nor the tokenizer has BOS or EOS.
  Encoder(std::shared_ptr<const text::Tokenizer> tokenizer, const EncoderSettings& settings);

  /// Context and continuation of a kLikelihood call: white space at the context's end belongs to
  /// the continuation; both are encoded together, and cut where the context alone ends; ids beyond
  /// window + 1 (the last is not read) are left out on the left. Errors: DataError if the
  /// continuation is empty, or the window does not hold it.
  Encoded pair(const Call& call) const;
  /// The context of a kGeneration call, cut on the left to window - max_tokens. Errors: DataError
  /// if nothing is left of it then.
  Encoded prompt(const Call& call) const;
  /// Windows over the whole text of a kRolling call, each id predicted once, with as much before it
  /// as the window holds. The prefix id stands before the first window and is not predicted; the
  /// tokenizer's special ids are written only where add_special says so. Errors: DataError if the
  /// text is empty.
  std::vector<Encoded> rolling(const Call& call) const;

  const text::Tokenizer& tokenizer() const { return *tokenizer_; }
  text::TokenId prefix_id() const { return prefix_id_; }

 private:
  std::vector<text::TokenId> encode(const std::string& text, bool has_own_bos) const;
  std::shared_ptr<const text::Tokenizer> tokenizer_;
  EncoderSettings settings_;
  text::TokenId prefix_id_;
  std::string prefix_text_;
};

}  // namespace danlu::eval
