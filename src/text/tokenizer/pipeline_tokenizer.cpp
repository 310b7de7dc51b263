#include "text/tokenizer/pipeline_tokenizer.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "base/token_type.h"
#include "text/tokenizer/byte_level.h"
#include "text/tokenizer/utf8.h"

namespace danlu::text {

PipelineTokenizer::PipelineTokenizer(Pipeline pipeline, Companions companions,
                                     const std::vector<fs::path>& vocabulary_files,
                                     std::string_view content)
    : pipeline_(std::move(pipeline)) {
  const Vocabulary& vocabulary = pipeline_.model->vocabulary();
  add_companion_tokens(
      companions,
      [&](const std::string& content) {
        const AddedToken* token = pipeline_.added.by_content(content);
        return token ? token->id : vocabulary.find(content);
      },
      pipeline_.added);
  pipeline_.added.build(pipeline_.normalizer.get());
  bpe_ = dynamic_cast<const BpeModel*>(pipeline_.model.get());
  if (pipeline_.pre_tokenizer) pattern_ = pipeline_.pre_tokenizer->pattern();
  size_ = vocabulary.size();
  for (const AddedToken& token : pipeline_.added.tokens()) {
    size_ = std::max(size_, static_cast<size_t>(token.id) + 1);
  }
  special_ = companions.special;
  follow_class_flags(companions);
  chat_template_ = std::move(companions.chat_template);
  tool_template_ = std::move(companions.tool_template);
  files_ = vocabulary_files;
  files_.insert(files_.end(), companions.files.begin(), companions.files.end());
  content_hash_ = content.empty() ? 0 : hash_text(companions.config.dump(), hash_text(content));
  for (size_t i = 0; content.empty() && i < files_.size(); ++i)
    content_hash_ = hash_text(MappedFile(files_[i]).text(), content_hash_);
  config_ = std::move(companions.config);
}

/// The Llama and Gemma classes of transformers write their own template from two flags and do not
/// ask the one in tokenizer.json.
void PipelineTokenizer::follow_class_flags(const Companions& companions) {
  const std::string name = companions.tokenizer_class();
  const bool writes_template =
      name.starts_with("LlamaTokenizer") || name.starts_with("CodeLlamaTokenizer") ||
      name.starts_with("GemmaTokenizer") || name.starts_with("InternLM2Tokenizer");
  const auto wants_bos = companions.flag("add_bos_token");
  const auto wants_eos = companions.flag("add_eos_token");
  if (!writes_template || (!wants_bos && !wants_eos)) return;
  PostProcessor& post = pipeline_.post_processor;
  post = {};
  if (wants_bos.value_or(true)) {
    if (const auto id = bos_id()) post.prefix.push_back(*id);
  }
  if (wants_eos.value_or(false)) {
    if (const auto id = eos_id()) post.suffix.push_back(*id);
  }
}

void PipelineTokenizer::encode_append(std::string_view text, bool add_special,
                                      std::vector<TokenId>& ids) const {
  auto loan = scratches_.take();
  Scratch& scratch = *loan;
  scratch.ids.clear();
  text = sanitize_utf8(text, scratch.repaired);
  const PostProcessor& post = pipeline_.post_processor;
  if (add_special) scratch.ids.append(post.prefix.data(), post.prefix.size());
  if (!add_special || post.keeps_text) {
    pipeline_.added.split(
        text, /*raw=*/true,
        [&](std::string_view stretch, size_t begin) {
          encode_stretch(stretch, begin == 0, scratch);
        },
        [&](TokenId id) { scratch.ids.push(id); });
  }
  if (add_special) scratch.ids.append(post.suffix.data(), post.suffix.size());
  ids.insert(ids.end(), scratch.ids.data(), scratch.ids.data() + scratch.ids.size());
}

std::optional<std::vector<TokenId>> PipelineTokenizer::encode_two(std::string_view first,
                                                                  std::string_view second) const {
  const auto& pair = pipeline_.post_processor.pair;
  // Decoders put a beginning before each text, and nothing that ends it.
  if (!pair || pair->before.empty() || pair->between.empty() || pair->after.empty())
    return std::nullopt;
  std::vector<TokenId> ids = pair->before;
  encode_append(first, /*add_special=*/false, ids);
  ids.insert(ids.end(), pair->between.begin(), pair->between.end());
  const size_t begin = ids.size();
  encode_append(second, /*add_special=*/false, ids);
  for (size_t i = begin; pair->marks_second && i < ids.size(); ++i) ids[i] += kSecondText;
  ids.insert(ids.end(), pair->after.begin(), pair->after.end());
  return ids;
}

void PipelineTokenizer::encode_stretch(std::string_view text, bool at_start,
                                       Scratch& scratch) const {
  if (pipeline_.normalizer && !pipeline_.normalizer->leaves_unchanged(text)) {
    scratch.normalized.assign(text);
    pipeline_.normalizer->normalize(scratch.normalized);
    text = scratch.normalized;
  }
  if (!pipeline_.added.has_normalized_tokens()) return encode_pieces(text, at_start, scratch);
  pipeline_.added.split(
      text, /*raw=*/false,
      [&](std::string_view stretch, size_t begin) {
        encode_pieces(stretch, at_start && begin == 0, scratch);
      },
      [&](TokenId id) { scratch.ids.push(id); });
}

void PipelineTokenizer::encode_pieces(std::string_view text, bool at_start,
                                      Scratch& scratch) const {
  if (text.empty()) return;
  if (bpe_ && pattern_ != KnownPattern::kNone) {
    Scanner(text).run(pattern_, [&](size_t begin, size_t end) {
      bpe_->encode_piece(text.substr(begin, end - begin), text.size() - begin, scratch);
    });
  } else if (!pipeline_.pre_tokenizer) {
    pipeline_.model->encode_piece(text, scratch);
  } else {
    pipeline_.pre_tokenizer->split(text, at_start, [&](std::string_view piece, bool) {
      pipeline_.model->encode_piece(piece, scratch);
    });
  }
}

std::optional<TokenId> PipelineTokenizer::token_to_id(std::string_view token) const {
  if (const AddedToken* added = pipeline_.added.by_content(token)) return added->id;
  const TokenId id = pipeline_.model->vocabulary().find(token);
  return id < 0 ? std::nullopt : std::optional(id);
}

std::string_view PipelineTokenizer::token_view(TokenId id) const {
  if (const AddedToken* added = pipeline_.added.by_id(id)) return added->content;
  const Vocabulary& vocabulary = pipeline_.model->vocabulary();
  return vocabulary.has(id) ? vocabulary.token(id) : std::string_view();
}

std::optional<std::string> PipelineTokenizer::id_to_token(TokenId id) const {
  const Vocabulary& vocabulary = pipeline_.model->vocabulary();
  if (!pipeline_.added.by_id(id) && !vocabulary.has(id)) return std::nullopt;
  return std::string(token_view(id));
}

bool PipelineTokenizer::is_text_final_after(TokenId id) const {
  if (!pipeline_.decoder) return true;
  if (pipeline_.decoder->depends_on_end()) return false;
  if (!pipeline_.decoder->joins_byte_tokens()) return true;
  const std::string_view token = token_view(id);
  return !(token.size() == 6 && token.starts_with("<0x") && token[5] == '>');
}

std::string PipelineTokenizer::decode_bytes(std::span<const TokenId> ids, bool skip_special) const {
  std::string bytes, text;
  for (const TokenId id : ids) {
    if (skip_special && is_special(id)) continue;
    const std::string_view token = token_view(id);
    if (!append_bytes_of_token(token, bytes)) bytes += token;
  }
  if (is_valid_utf8(bytes)) return bytes;
  append_lossy(bytes, text);
  return text;
}

std::string PipelineTokenizer::decode(std::span<const TokenId> ids, bool skip_special) const {
  const auto is_of_second = [](TokenId id) { return id >= kSecondText; };
  if (std::any_of(ids.begin(), ids.end(), is_of_second)) {
    std::vector<TokenId> bare;
    for (const TokenId id : ids) bare.push_back(static_cast<TokenId>(without_type(id)));
    return decode(bare, skip_special);
  }
  for (const TokenId id : ids) {
    if (id < 0 || static_cast<size_t>(id) >= size_) {
      throw ModelError(tr("token id {} is not in the vocabulary: ids are 0 to {}", id, size_ - 1));
    }
  }
  if (pipeline_.decoder && pipeline_.decoder->is_byte_level()) {
    return decode_bytes(ids, skip_special);
  }
  std::vector<std::string> tokens;
  tokens.reserve(ids.size());
  for (const TokenId id : ids) {
    if (skip_special && is_special(id)) continue;
    if (!pipeline_.added.by_id(id) && !pipeline_.model->vocabulary().has(id)) continue;
    tokens.emplace_back(token_view(id));
  }
  if (pipeline_.decoder) pipeline_.decoder->decode(tokens);
  std::string text;
  for (size_t i = 0; i < tokens.size(); ++i) {
    // Without a decoder HF joins tokens by spaces.
    if (i > 0 && !pipeline_.decoder) text += ' ';
    text += tokens[i];
  }
  return text;
}

}  // namespace danlu::text
