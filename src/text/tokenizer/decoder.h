// text/tokenizer/decoder.h: from token texts back to text ("decoder").
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "base/json.h"

namespace danlu::text {

/// One step: rewrites the list of token texts; the final text is their concatenation. Thread-safe.
class Decoder {
 public:
  virtual ~Decoder() = default;
  virtual void decode(std::vector<std::string>& tokens) const = 0;
  /// "<0xHH>" tokens are joined into characters: text is final only after the last of a run.
  virtual bool joins_byte_tokens() const { return false; }
  /// The end of the text is treated unlike its middle: nothing is final before the last token.
  virtual bool depends_on_end() const { return false; }
  /// Tokens are spelled in the byte-level alphabet and simply put together.
  virtual bool is_byte_level() const { return false; }
};

/// Builds from the JSON value; null gives nullptr (tokens are joined by spaces).
/// Types: ByteLevel ByteFallback Fuse Strip Replace Metaspace WordPiece BPEDecoder CTC Sequence.
/// Errors: ModelError naming `origin` and the type or key.
std::unique_ptr<Decoder> make_decoder(const Json& spec, const std::string& origin);

}  // namespace danlu::text
