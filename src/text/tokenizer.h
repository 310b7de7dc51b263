// text/tokenizer.h: text <-> token ids, for every tokenizer file format Danlu reads.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/json.h"

namespace danlu::text {

using TokenId = int32_t;

/// Special tokens as tokenizer_config.json / special_tokens_map.json / the model file name them.
struct SpecialTokens {
  std::optional<std::string> bos, eos, pad, unk;
  std::vector<std::string> additional;
};

/// Nothing of a tokenizer lies where one was looked for. A kind of its own: who can do without one
/// (rows of token ids) catches it.
class MissingTokenizer : public ModelError {
 public:
  using ModelError::ModelError;
};

/// `named`, or the tokenizer.json beside it where it is a tokenizer.model that is not there: newer
/// models have that file alone, and command lines still name the other. Says so in a notice.
std::filesystem::path existing_tokenizer(const std::filesystem::path& named);

/// Immutable after loading; every method is thread-safe.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  /// Loads from a HF model directory (tokenizer.json, else tokenizer.model, else
  /// vocab.json+merges.txt, else vocab.txt) or from one such file, as existing_tokenizer, or from a
  /// GGUF file. tokenizer_config.json, special_tokens_map.json, added_tokens.json,
  /// generation_config.json beside it are read when present. Errors: ModelError naming file and the
  /// unsupported or broken part; MissingTokenizer if nothing is there.
  static std::shared_ptr<const Tokenizer> load(const std::filesystem::path& path);

  /// Ids of `text`. Special and added tokens written in the text are recognised, as HF does by
  /// default. add_special: apply the post-processor (BOS/EOS and the like). Invalid UTF-8: each
  /// offending byte sequence becomes U+FFFD first (WHATWG maximal-subpart rule).
  std::vector<TokenId> encode(std::string_view text, bool add_special = true) const {
    std::vector<TokenId> ids;
    encode_append(text, add_special, ids);
    return ids;
  }
  virtual void encode_append(std::string_view text, bool add_special,
                             std::vector<TokenId>& ids) const = 0;

  /// Ids of two texts that are read together, as the tokenizer's own template sets them apart:
  /// BERT's [CLS] a [SEP] b [SEP]. Where it says so, the tokens of the second have kSecondText
  /// (base/token_type.h) added. nullopt: it has no template that ends each of them.
  virtual std::optional<std::vector<TokenId>> encode_two(
      [[maybe_unused]] std::string_view first, [[maybe_unused]] std::string_view second) const {
    return std::nullopt;
  }

  /// Text of `ids`. skip_special drops special tokens. Incomplete UTF-8 becomes U+FFFD.
  /// Errors: ModelError for an id outside [0, size()).
  virtual std::string decode(std::span<const TokenId> ids, bool skip_special = false) const = 0;

  /// Base vocabulary plus added tokens: largest id + 1.
  virtual size_t size() const = 0;
  virtual std::optional<TokenId> token_to_id(std::string_view token) const = 0;
  /// The token as written in the vocabulary ("Ġthe", "<0x0A>"); empty optional for a hole.
  virtual std::optional<std::string> id_to_token(TokenId id) const = 0;
  /// True for tokens flagged special (control tokens), false for added but ordinary ones.
  virtual bool is_special(TokenId id) const = 0;
  /// Whether a special token takes the white space beside it along, as added tokens with lstrip and
  /// rstrip do: no other token then holds it, and decoding does not give it back.
  struct BlanksTaken {
    bool before = false, after = false;
  };
  virtual BlanksTaken blanks_taken_by([[maybe_unused]] TokenId id) const { return {}; }
  /// False if ids that follow could still change the text of `id` ("<0xHH>" tokens, decoders that
  /// treat the end of a text apart): DecodeStream then waits. A half character at the end of
  /// decode's result is not meant here.
  virtual bool is_text_final_after([[maybe_unused]] TokenId id) const { return true; }

  const SpecialTokens& special_tokens() const { return special_; }
  std::optional<TokenId> bos_id() const { return id_of(special_.bos); }
  std::optional<TokenId> eos_id() const { return id_of(special_.eos); }
  std::optional<TokenId> pad_id() const { return id_of(special_.pad); }
  std::optional<TokenId> unk_id() const { return id_of(special_.unk); }
  /// The chat template the files carry ("" if none): chat_template.jinja, else
  /// tokenizer_config.json (a list of named ones: "default", others by name).
  const std::string& chat_template() const { return chat_template_; }
  /// The one named "tool_use" beside it, for conversations with tools ("" if none): from the list
  /// in tokenizer_config.json, or additional_chat_templates/tool_use.jinja.
  const std::string& tool_template() const { return tool_template_; }
  /// tokenizer_config.json as read (empty object if absent).
  const Json& config() const { return config_; }
  /// Files that belong to this tokenizer and are to be copied beside a saved model.
  const std::vector<std::filesystem::path>& files() const { return files_; }
  /// Hash of the vocabulary-defining files: part of cache keys.
  uint64_t content_hash() const { return content_hash_; }

 protected:
  SpecialTokens special_;
  std::string chat_template_, tool_template_;
  Json config_ = Json::object();
  std::vector<std::filesystem::path> files_;
  uint64_t content_hash_ = 0;

 private:
  std::optional<TokenId> id_of(const std::optional<std::string>& token) const {
    return token ? token_to_id(*token) : std::nullopt;
  }
};

/// Decodes a growing sequence piece by piece. Concatenating all results equals Tokenizer::decode of
/// the whole; no result ever ends inside a UTF-8 character. Not thread-safe.
class DecodeStream {
 public:
  explicit DecodeStream(std::shared_ptr<const Tokenizer> tokenizer, bool skip_special = true);
  /// Text that became final with this id; empty while a character is incomplete.
  std::string push(TokenId id);
  /// Whatever is left (incomplete bytes as U+FFFD); the stream is then empty again.
  std::string finish();

 private:
  std::string window_text(size_t end) const;
  std::string take(const std::string& text);
  std::string take_all_but_last(const std::string& text);
  std::shared_ptr<const Tokenizer> tokenizer_;
  bool skip_special_;
  std::vector<TokenId> ids_;  ///< the last ids that gave text, then those that have not yet
  size_t read_end_ = 0;       ///< how many of ids_ gave their text already
  size_t given_ = 0;          ///< bytes of the text of ids_ that were given
};

}  // namespace danlu::text
