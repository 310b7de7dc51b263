// text/tokenizer/added_tokens.h: tokens that are recognised in text before the model sees it.
#pragma once
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/json.h"
#include "text/tokenizer.h"
#include "text/tokenizer/function_ref.h"
#include "text/tokenizer/normalizer.h"

namespace danlu::text {

/// One entry of "added_tokens".
struct AddedToken {
  std::string content;
  TokenId id = -1;
  bool single_word = false;  ///< only where no word character stands beside it
  bool lstrip = false;       ///< takes the white space before it along
  bool rstrip = false;       ///< … after it
  bool normalized = false;   ///< looked for in normalized text
  bool special = false;
};

/// Where the white space that ends at text[at], or begins there, begins or ends. REQUIRES: valid
/// UTF-8, `at` between characters.
size_t space_before(std::string_view text, size_t at);
size_t space_after(std::string_view text, size_t at);

/// As tokenizer.json spells it.
Json json_of(const AddedToken& token);

/// Finds a set of strings in a text: leftmost first, the longest of those that begin there.
class TokenMatcher {
 public:
  void add(std::string_view content, const AddedToken* token);
  bool empty() const { return nodes_.size() == 1; }
  struct Match {
    size_t begin = 0, end = 0;
    const AddedToken* token = nullptr;
  };
  /// The next match at or after `from`; token is nullptr if there is none.
  Match find(std::string_view text, size_t from) const;

 private:
  struct Node {
    uint32_t first_child = 0, next_sibling = 0;
    unsigned char byte = 0;
    const AddedToken* token = nullptr;
  };
  uint32_t child(uint32_t node, unsigned char byte) const;
  std::vector<Node> nodes_{1};
  uint32_t roots_[256] = {};
  int num_first_bytes_ = 0;
  char only_first_byte_ = 0;  // valid if num_first_bytes_ == 1
};

/// The added tokens of a tokenizer. Immutable after build; thread-safe then.
class AddedTokens {
 public:
  /// Registers a token; one with the same content is replaced. Empty contents are ignored.
  void add(AddedToken token);
  /// Prepares searching. `normalizer` (may be nullptr) is applied to the tokens that are looked for
  /// in normalized text.
  void build(const Normalizer* normalizer);

  const std::vector<AddedToken>& tokens() const { return tokens_; }
  const AddedToken* by_content(std::string_view content) const;
  const AddedToken* by_id(TokenId id) const;
  bool is_special(TokenId id) const;
  Tokenizer::BlanksTaken blanks_taken_by(TokenId id) const;

  /// Cuts `text`: calls on_text(stretch, begin) for text between tokens, on_token(id) for tokens.
  /// raw: search for the tokens with normalized == false, else for the others.
  void split(std::string_view text, bool raw,
             FunctionRef<void(std::string_view stretch, size_t begin)> on_text,
             FunctionRef<void(TokenId)> on_token) const;
  bool has_normalized_tokens() const { return !normalized_matcher_.empty(); }

 private:
  std::vector<AddedToken> tokens_;
  std::unordered_map<std::string, size_t> index_of_content_;
  std::unordered_map<TokenId, size_t> index_of_id_;
  TokenMatcher raw_matcher_, normalized_matcher_;
};

}  // namespace danlu::text
