// tokenizer.model as SentencePiece's own library reads it, with added tokens handled as
// transformers' slow LlamaTokenizer does: they are cut out first, and each stretch between is
// encoded by itself.
#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "text/sentencepiece/joiner.h"
#include "text/sentencepiece/rules.h"
#include "text/sentencepiece/segmenter.h"
#include "text/tiktoken.h"
#include "text/tokenizer/added_tokens.h"
#include "text/tokenizer/companions.h"
#include "text/tokenizer/pipeline_tokenizer.h"
#include "text/tokenizer/scratch_pool.h"
#include "text/tokenizer/utf8.h"

namespace danlu::text {

namespace {

/// Llama 3 and Qwen 1 ship tiktoken's ranks (base64, space, number) under names like this one.
void refuse_tiktoken(std::string_view text, const std::string& origin) {
  if (is_tiktoken(text)) {
    throw ModelError(tr("{}: this is a tiktoken vocabulary, not a SentencePiece model", origin),
                     tr("take tokenizer.json from the Hugging Face form of the model"));
  }
}

SentencePieceFile read_checked(std::string_view bytes, const std::string& origin, bool modern) {
  refuse_tiktoken(bytes, origin);
  SentencePieceFile file = read_sentencepiece_file(bytes, origin);
  check_sentencepiece_file(file, origin);
  if (modern) file.rules.add_dummy_prefix = false;
  return file;
}

class SentencePieceTokenizer final : public Tokenizer {
 public:
  /// modern: only the very beginning of a text gets the dummy prefix (transformers: "legacy" is
  /// false). content: as PipelineTokenizer.
  SentencePieceTokenizer(const SentencePieceFile& file, const std::string& origin, bool modern,
                         Companions companions, std::vector<fs::path> model_files,
                         std::string_view content = {})
      : pieces_(file),
        rewriter_(file.rules, file.treat_whitespace_as_suffix, pieces_.kept(), origin),
        segmenter_(make_segmenter(file, pieces_)),
        joiner_(file, pieces_, origin),
        modern_(modern) {
    read_special(file, companions);
    // transformers' slow tokenizers look for all of them in the text as it is.
    for (AddedToken& token : companions.added) token.normalized = false;
    if (companions.tokenizer_class() == "ChatGLMTokenizer") add_tokens_of_chatglm(companions);
    add_companion_tokens(
        companions, [&](const std::string& content) { return find_piece(content); }, added_);
    added_.build(nullptr);
    size_ = pieces_.size();
    for (const AddedToken& token : added_.tokens()) {
      size_ = std::max(size_, static_cast<size_t>(token.id) + 1);
    }
    read_template(companions);
    chat_template_ = std::move(companions.chat_template);
    tool_template_ = std::move(companions.tool_template);
    files_ = std::move(model_files);
    files_.insert(files_.end(), companions.files.begin(), companions.files.end());
    if (!content.empty()) content_hash_ = hash_text(companions.config.dump(), hash_text(content));
    for (size_t i = 0; content.empty() && i < files_.size(); ++i)
      content_hash_ = hash_text(MappedFile(files_[i]).text(), content_hash_);
    config_ = std::move(companions.config);
  }

  void encode_append(std::string_view text, bool add_special,
                     std::vector<TokenId>& ids) const override {
    auto loan = scratches_.take();
    Scratch& scratch = *loan;
    scratch.ids.clear();
    text = sanitize_utf8(text, scratch.repaired);
    if (add_special) ids.insert(ids.end(), prefix_.begin(), prefix_.end());
    added_.split(
        text, /*raw=*/true,
        [&](std::string_view stretch, size_t begin) {
          encode_stretch(stretch, begin == 0, scratch);
          ids.insert(ids.end(), scratch.ids.data(), scratch.ids.data() + scratch.ids.size());
        },
        [&](TokenId id) { ids.push_back(id); });
    if (add_special) ids.insert(ids.end(), suffix_.begin(), suffix_.end());
  }

  std::string decode(std::span<const TokenId> ids, bool skip_special) const override {
    std::string out;
    std::vector<TokenId> run;
    const auto end_run = [&] {
      out += joiner_.join(run);
      run.clear();
    };
    for (const TokenId id : ids) {
      if (id < 0 || static_cast<size_t>(id) >= size_) {
        throw ModelError(
            tr("token id {} is not in the vocabulary: ids are 0 to {}", id, size_ - 1));
      }
      if (skip_special && is_special(id)) continue;
      if (const AddedToken* token = added_.by_id(id)) {
        end_run();
        out += token->content;
      } else if (is_control(id)) {
        end_run();
        out += piece(id);
      } else if (is_piece(id)) {
        run.push_back(id);
      }
    }
    end_run();
    return out;
  }

  size_t size() const override { return size_; }
  std::optional<TokenId> token_to_id(std::string_view token) const override {
    if (const AddedToken* added = added_.by_content(token)) return added->id;
    const TokenId id = find_piece(token);
    return id < 0 ? std::nullopt : std::optional(id);
  }
  std::optional<std::string> id_to_token(TokenId id) const override {
    if (const AddedToken* added = added_.by_id(id)) return added->content;
    if (!is_piece(id)) return std::nullopt;
    return std::string(piece(id));
  }
  bool is_special(TokenId id) const override { return added_.is_special(id) || is_control(id); }
  BlanksTaken blanks_taken_by(TokenId id) const override { return added_.blanks_taken_by(id); }
  bool is_text_final_after(TokenId id) const override {
    return !is_piece(id) || pieces_.type(id) != PieceType::kByte;
  }

 private:
  bool is_piece(TokenId id) const { return id >= 0 && static_cast<size_t>(id) < pieces_.size(); }
  bool is_control(TokenId id) const {
    return is_piece(id) && pieces_.type(id) == PieceType::kControl;
  }
  std::string_view piece(TokenId id) const { return pieces_.vocabulary().token(id); }
  TokenId find_piece(std::string_view text) const { return pieces_.vocabulary().find(text); }

  /// The model's own bos, eos, unk and pad stand in where no file names any.
  void read_special(const SentencePieceFile& file, Companions& companions) {
    const auto fill = [&](const char* key, const std::string& name, PieceType type,
                          std::optional<std::string>& slot) {
      const TokenId id = find_piece(name);
      if (!slot && id >= 0 && pieces_.type(id) == type && !companions.config.contains(key))
        slot = name;
    };
    fill("bos_token", file.bos_piece, PieceType::kControl, companions.special.bos);
    fill("eos_token", file.eos_piece, PieceType::kControl, companions.special.eos);
    fill("unk_token", file.unk_piece, PieceType::kUnknown, companions.special.unk);
    fill("pad_token", file.pad_piece, PieceType::kControl, companions.special.pad);
    special_ = companions.special;
  }

  /// tokenization_chatglm.py numbers its tokens behind the model's pieces. It does not look for
  /// them in texts; where tokenizer_config.json lists them too (ChatGLM3 since 2024), transformers
  /// does. The last four are ChatGLM3's alone, which no file says.
  void add_tokens_of_chatglm(Companions& companions) const {
    auto id = static_cast<TokenId>(pieces_.size());
    for (const char* name : {"[MASK]", "[gMASK]", "[sMASK]", "sop", "eop", "<|system|>", "<|user|>",
                             "<|assistant|>", "<|observation|>"}) {
      AddedToken token;
      token.content = name;
      token.id = id++;
      token.normalized = true;  // there is no normalized text here: it is found nowhere
      token.special = true;
      const auto same = [&](const AddedToken& other) { return other.content == name; };
      if (std::none_of(companions.added.begin(), companions.added.end(), same))
        companions.added.push_back(std::move(token));
    }
  }

  /// The flags' defaults are LlamaTokenizer's. ChatGLM puts two tokens of its own first.
  void read_template(const Companions& companions) {
    if (companions.tokenizer_class().starts_with("ChatGLM")) {
      for (const char* name : {"[gMASK]", "sop"}) {
        if (const auto id = token_to_id(name)) prefix_.push_back(*id);
      }
      return;
    }
    if (companions.flag("add_bos_token").value_or(true)) {
      if (const auto id = bos_id()) prefix_.push_back(*id);
    }
    if (companions.flag("add_eos_token").value_or(false)) {
      if (const auto id = eos_id()) suffix_.push_back(*id);
    }
  }

  /// Leaves the ids in scratch.ids.
  void encode_stretch(std::string_view text, bool at_start, Scratch& scratch) const {
    if (modern_ && at_start) {
      scratch.piece = " ";
      scratch.piece += text;
      text = scratch.piece;
    }
    scratch.ids.clear();
    rewriter_.rewrite(text, scratch.normalized);
    if (scratch.normalized.empty()) return;
    segmenter_->encode(scratch.normalized, scratch);
    if (!pieces_.byte_fallback()) scratch.ids.join_runs(pieces_.unk_id());
  }

  PieceTable pieces_;
  SentencePieceRewriter rewriter_;
  std::unique_ptr<const Segmenter> segmenter_;
  SentencePieceJoiner joiner_;
  AddedTokens added_;
  std::vector<TokenId> prefix_, suffix_;
  size_t size_ = 0;
  bool modern_ = false;
  mutable ScratchPool scratches_;
};

}  // namespace

std::shared_ptr<const Tokenizer> parse_sentencepiece(std::string_view bytes,
                                                     const std::string& origin) {
  return std::make_shared<SentencePieceTokenizer>(read_checked(bytes, origin, /*modern=*/false),
                                                  origin, /*modern=*/false, Companions(),
                                                  std::vector<fs::path>());
}

std::shared_ptr<const Tokenizer> load_sentencepiece(const fs::path& path) {
  const MappedFile bytes(path);
  Companions companions = read_companions(path.parent_path());
  const bool modern = companions.flag("legacy") == std::optional(false);
  return std::make_shared<SentencePieceTokenizer>(read_checked(bytes.text(), path.string(), modern),
                                                  path.string(), modern, std::move(companions),
                                                  std::vector<fs::path>{path});
}

std::shared_ptr<const Tokenizer> make_sentencepiece(std::string_view bytes, Companions companions,
                                                    const fs::path& file) {
  const bool modern = companions.flag("legacy") == std::optional(false);
  return std::make_shared<SentencePieceTokenizer>(read_checked(bytes, file.string(), modern),
                                                  file.string(), modern, std::move(companions),
                                                  std::vector<fs::path>{file}, bytes);
}

}  // namespace danlu::text
