// text/tokenizer/pre_tokenizer.h: how text is cut before the model sees it ("pre_tokenizer").
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "text/tokenizer/function_ref.h"
#include "text/tokenizer/scanners.h"

namespace danlu::text {

/// Receives one piece. The view is valid during the call only. at_start: the piece begins where the
/// text as a whole begins (Metaspace's "first" scheme asks).
using PieceSink = FunctionRef<void(std::string_view piece, bool at_start)>;

/// Cuts text into pieces, in order. Immutable and thread-safe.
class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  /// REQUIRES: text is valid UTF-8. Empty pieces are never given.
  virtual void split(std::string_view text, bool at_start, PieceSink sink) const = 0;
  /// Not kNone: split(text) is Scanner(text).run(this pattern) and nothing else.
  virtual KnownPattern pattern() const { return KnownPattern::kNone; }
};

struct PreTokenizerBuild {
  std::unique_ptr<PreTokenizer> pre_tokenizer;  ///< nullptr: the text is one piece
  /// Pieces are raw bytes where the file means the byte-level alphabet (only if `allow_raw_bytes`).
  bool raw_bytes = false;
};

/// Builds from the JSON value (null: no pre-tokenizer).
/// Types: ByteLevel Split Whitespace WhitespaceSplit Punctuation Digits Metaspace BertPreTokenizer
/// CharDelimiterSplit UnicodeScripts FixedLength Sequence.
/// Errors: ModelError naming `origin` and the type or key.
PreTokenizerBuild make_pre_tokenizer(const Json& spec, bool allow_raw_bytes,
                                     const std::string& origin);

/// What becomes of the matches of a pattern, as HF names it.
enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

/// A stretch of text; `is_match` says whether the pattern matched it.
struct Stretch {
  size_t begin, end;
  bool is_match;
};

/// Applies `behavior` to stretches that cover the text, in order.
std::vector<std::pair<size_t, size_t>> apply_behavior(const std::vector<Stretch>& stretches,
                                                      SplitBehavior behavior);

/// UnicodeScripts, which cuts where the script changes.
std::unique_ptr<PreTokenizer> make_unicode_scripts_pre_tokenizer();

}  // namespace danlu::text
