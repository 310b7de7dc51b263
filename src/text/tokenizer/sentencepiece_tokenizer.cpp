// tokenizer.model: SentencePiece's own library, with added tokens handled as transformers' slow
// LlamaTokenizer does: they are cut out first, and each stretch between is encoded by itself.
#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "text/sentencepiece/model.h"
#include "text/tokenizer/added_tokens.h"
#include "text/tokenizer/companions.h"
#include "text/tokenizer/pipeline_tokenizer.h"
#include "text/tokenizer/utf8.h"
#include "text/tokenizer/vocabulary.h"

namespace danlu::text {

namespace {

/// A protobuf tail that merges into the model: normalizer_spec { add_dummy_prefix: false }.
constexpr std::string_view kNoDummyPrefix("\x1A\x02\x18\x00", 4);

class SentencePieceTokenizer final : public Tokenizer {
 public:
  explicit SentencePieceTokenizer(const fs::path& path) {
    const MappedFile file(path);
    Companions companions = read_companions(path.parent_path());
    // transformers: with "legacy": false only the very beginning of a text gets the dummy prefix.
    modern_ = companions.flag("legacy") == std::optional(false);
    std::string model(file.text());
    if (modern_) model += kNoDummyPrefix;
    std::string why;
    model_ = open_sentencepiece(model, &why);
    if (!model_) fail_load(path, file.text(), why);
    num_pieces_ = static_cast<size_t>(model_->size());
    read_special(companions);
    add_companion_tokens(
        companions, [&](const std::string& content) { return find_piece(content); }, added_);
    added_.build(nullptr);
    size_ = num_pieces_;
    for (const AddedToken& token : added_.tokens()) {
      size_ = std::max(size_, static_cast<size_t>(token.id) + 1);
    }
    read_template(companions);
    chat_template_ = std::move(companions.chat_template);
    files_ = {path};
    files_.insert(files_.end(), companions.files.begin(), companions.files.end());
    for (const fs::path& used : files_) {
      content_hash_ = hash_text(MappedFile(used).text(), content_hash_);
    }
    config_ = std::move(companions.config);
  }

  void encode_append(std::string_view text, bool add_special,
                     std::vector<TokenId>& ids) const override {
    std::string repaired;
    text = sanitize_utf8(text, repaired);
    if (add_special) ids.insert(ids.end(), prefix_.begin(), prefix_.end());
    added_.split(
        text, /*raw=*/true,
        [&](std::string_view stretch, size_t begin) { encode_stretch(stretch, begin == 0, ids); },
        [&](TokenId id) { ids.push_back(id); });
    if (add_special) ids.insert(ids.end(), suffix_.begin(), suffix_.end());
  }

  std::string decode(std::span<const TokenId> ids, bool skip_special) const override {
    std::string out;
    std::vector<int> run;
    const auto end_run = [&] {
      if (run.empty()) return;
      std::string text;
      const std::string why = model_->decode(run, &text);
      if (!why.empty()) throw ModelError(tr("sentencepiece: {}", why));
      out += text;
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
      } else if (is_piece(id) && model_->is_control(id)) {
        end_run();
        out += model_->piece(id);
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
    return model_->piece(id);
  }
  bool is_special(TokenId id) const override {
    return added_.is_special(id) || (is_piece(id) && model_->is_control(id));
  }
  bool is_text_final_after(TokenId id) const override {
    return !is_piece(id) || !model_->is_byte(id);
  }

 private:
  [[noreturn]] static void fail_load(const fs::path& path, std::string_view text,
                                     const std::string& why) {
    // Llama 3 and Qwen 1 ship tiktoken's ranks (base64, space, number) under names like this one.
    const std::string_view line = text.substr(0, text.find('\n'));
    const bool is_tiktoken =
        line.size() < 200 && line.find(' ') != std::string_view::npos &&
        std::all_of(line.begin(), line.end(), [](char c) { return c > 0x1F && c < 0x7F; });
    if (is_tiktoken) {
      throw ModelError(
          tr("{}: this is a tiktoken vocabulary, not a SentencePiece model", path.string()),
          tr("take tokenizer.json from the Hugging Face form of the model"));
    }
    throw ModelError(tr("{}: not a SentencePiece model ({})", path.string(), why));
  }

  bool is_piece(TokenId id) const { return id >= 0 && static_cast<size_t>(id) < num_pieces_; }
  TokenId find_piece(std::string_view piece) const {
    const int id = model_->id_of(piece);
    return is_piece(id) && model_->piece(id) == piece ? id : -1;
  }

  /// The model's own bos, eos, unk and pad stand in where no file names any.
  void read_special(Companions& companions) {
    const auto fill = [&](std::optional<std::string>& slot, int id) {
      if (!slot && is_piece(id)) slot = model_->piece(id);
    };
    const auto named = [&](const char* key) { return companions.config.contains(key); };
    if (!named("bos_token")) fill(companions.special.bos, model_->bos_id());
    if (!named("eos_token")) fill(companions.special.eos, model_->eos_id());
    if (!named("unk_token")) fill(companions.special.unk, model_->unk_id());
    if (!named("pad_token")) fill(companions.special.pad, model_->pad_id());
    special_ = companions.special;
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

  void encode_stretch(std::string_view text, bool at_start, std::vector<TokenId>& ids) const {
    std::vector<int> found;
    std::string prefixed;
    if (modern_ && at_start) {
      prefixed = " ";
      prefixed += text;
      text = prefixed;
    }
    const std::string why = model_->encode(text, &found);
    if (!why.empty()) throw ModelError(tr("sentencepiece: {}", why));
    ids.insert(ids.end(), found.begin(), found.end());
  }

  std::unique_ptr<const SentencePieceModel> model_;
  AddedTokens added_;
  std::vector<TokenId> prefix_, suffix_;
  size_t num_pieces_ = 0, size_ = 0;
  bool modern_ = false;
};

}  // namespace

std::shared_ptr<const Tokenizer> load_sentencepiece(const fs::path& path) {
  return std::make_shared<SentencePieceTokenizer>(path);
}

}  // namespace danlu::text
