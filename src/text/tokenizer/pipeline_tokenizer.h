// text/tokenizer/pipeline_tokenizer.h: the tokenizer.json pipeline, from whatever files it is
// built.
#pragma once
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "text/tokenizer.h"
#include "text/tokenizer/added_tokens.h"
#include "text/tokenizer/bpe_model.h"
#include "text/tokenizer/companions.h"
#include "text/tokenizer/decoder.h"
#include "text/tokenizer/model.h"
#include "text/tokenizer/normalizer.h"
#include "text/tokenizer/post_processor.h"
#include "text/tokenizer/pre_tokenizer.h"
#include "text/tokenizer/scratch_pool.h"

namespace danlu::text {

/// The parts of a tokenizer. normalizer, pre_tokenizer and decoder may be nullptr.
struct Pipeline {
  std::unique_ptr<Normalizer> normalizer;
  std::unique_ptr<PreTokenizer> pre_tokenizer;
  std::unique_ptr<Model> model;
  std::unique_ptr<Decoder> decoder;
  PostProcessor post_processor;
  AddedTokens added;  ///< as the vocabulary file lists them; not yet built
};

/// Runs a Pipeline. Order: added tokens on raw text, normalizer, added tokens on normalized text,
/// pre-tokenizer, model, post-processor.
class PipelineTokenizer final : public Tokenizer {
 public:
  /// `vocabulary_files`: what content_hash covers and files() lists first. `content`, where there
  /// is any, is hashed instead of the files.
  PipelineTokenizer(Pipeline pipeline, Companions companions,
                    const std::vector<std::filesystem::path>& vocabulary_files,
                    std::string_view content = {});

  void encode_append(std::string_view text, bool add_special,
                     std::vector<TokenId>& ids) const override;
  std::optional<std::vector<TokenId>> encode_two(std::string_view first,
                                                 std::string_view second) const override;
  std::string decode(std::span<const TokenId> ids, bool skip_special) const override;
  size_t size() const override { return size_; }
  std::optional<TokenId> token_to_id(std::string_view token) const override;
  std::optional<std::string> id_to_token(TokenId id) const override;
  bool is_special(TokenId id) const override { return pipeline_.added.is_special(id); }
  BlanksTaken blanks_taken_by(TokenId id) const override {
    return pipeline_.added.blanks_taken_by(id);
  }
  bool is_text_final_after(TokenId id) const override;

 private:
  void follow_class_flags(const Companions& companions);
  void encode_stretch(std::string_view text, bool at_start, Scratch& scratch) const;
  void encode_pieces(std::string_view text, bool at_start, Scratch& scratch) const;
  std::string_view token_view(TokenId id) const;
  std::string decode_bytes(std::span<const TokenId> ids, bool skip_special) const;

  Pipeline pipeline_;
  const BpeModel* bpe_ = nullptr;  ///< model, if it is BPE
  KnownPattern pattern_ = KnownPattern::kNone;
  size_t size_ = 0;
  mutable ScratchPool scratches_;
};

/// Reads tokenizer.json. Errors: ModelError naming file, line and the unknown or broken part.
std::shared_ptr<const Tokenizer> load_tokenizer_json(const std::filesystem::path& path);
/// The same from text in memory, without companion files (tests, fuzzing). origin: for errors.
std::shared_ptr<const Tokenizer> parse_tokenizer_json(std::string_view text,
                                                      const std::string& origin);
/// Texts of tokenizer.json and tokenizer_config.json that stand for what lies in `file`.
std::shared_ptr<const Tokenizer> make_tokenizer_json(std::string_view text, Companions companions,
                                                     const std::filesystem::path& file);
/// vocab.json + merges.txt, byte-level; Qwen2's pre-tokenizer if tokenizer_class says so, else
/// GPT-2's.
std::shared_ptr<const Tokenizer> load_vocab_and_merges(const std::filesystem::path& vocab,
                                                       const std::filesystem::path& merges);
/// tokenizer.model: a SentencePiece model. Errors: ModelError naming the file and what is wrong.
std::shared_ptr<const Tokenizer> load_sentencepiece(const std::filesystem::path& path);
/// Makes of a tokenizer.model what make_tokenizer_json makes of a tokenizer.json.
std::shared_ptr<const Tokenizer> make_sentencepiece(std::string_view bytes, Companions companions,
                                                    const std::filesystem::path& file);
/// The same from bytes in memory, without companion files (tests, fuzzing). origin: for errors.
std::shared_ptr<const Tokenizer> parse_sentencepiece(std::string_view bytes,
                                                     const std::string& origin);

}  // namespace danlu::text
