#include "text/tokenizer.h"

#include <fmt/format.h>

#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/lfs_pointer.h"
#include "base/log.h"
#include "base/nearest_name.h"
#include "text/gguf_tokenizer.h"
#include "text/tiktoken.h"
#include "text/tokenizer/pipeline_tokenizer.h"
#include "text/tokenizer/vocab_txt.h"

namespace danlu::text {

namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";
/// Bytes of UTF-8: with as many tokens behind a whole one none but the last is incomplete.
constexpr size_t kLongestCharacter = 4;

[[noreturn]] void fail_missing(const fs::path& path) {
  if (!fs::exists(path)) throw MissingTokenizer(tr("{}: no such file or directory", path.string()));
  const std::string below = hint_of_models_below(path, [](const fs::path& directory) {
    std::error_code unknown;
    return fs::exists(directory / "tokenizer.json", unknown) ||
           fs::exists(directory / "tokenizer.model", unknown);
  });
  throw MissingTokenizer(
      tr("{}: no tokenizer here: tokenizer.json, tokenizer.model, vocab.json + "
         "merges.txt or vocab.txt is needed",
         path.string()),
      !below.empty()
          ? below
          : tr("copy the tokenizer files of the model into this directory, or name where they are: "
               "--tokenizer DIR"));
}

std::shared_ptr<const Tokenizer> load_file(const fs::path& path) {
  refuse_lfs_pointer(path, "the tokenizer");
  const std::string name = path.filename().string();
  // Megatron's scripts have them as gpt2-vocab.json and gpt2-merges.txt.
  for (const std::string_view end : {"vocab.json", "merges.txt"}) {
    if (!name.ends_with(end)) continue;
    const std::string begin = name.substr(0, name.size() - end.size());
    const fs::path vocab = path.parent_path() / (begin + "vocab.json"),
                   merges = path.parent_path() / (begin + "merges.txt");
    for (const fs::path& part : {vocab, merges}) {
      if (!fs::is_regular_file(part))
        throw ModelError(
            tr("{}: {} is missing beside it", path.string(), part.filename().string()));
    }
    return load_vocab_and_merges(vocab, merges);
  }
  if (name == "vocab.txt") return load_vocab_txt(path);
  if (path.extension() == ".json") return load_tokenizer_json(path);
  if (is_gguf(path)) return load_gguf_tokenizer(path);
  if (is_tiktoken(MappedFile(path).text())) return load_tiktoken_of_model(path);
  return load_sentencepiece(path);
}

}  // namespace

fs::path existing_tokenizer(const fs::path& named) {
  const fs::path json = named.parent_path() / "tokenizer.json";
  if (named.filename() != "tokenizer.model" || fs::exists(named) || !fs::is_regular_file(json))
    return named;
  log::notice("{} is not there: {} is taken", named.string(), json.string());
  return json;
}

std::shared_ptr<const Tokenizer> Tokenizer::load(const fs::path& path) {
  if (fs::is_regular_file(path)) return load_file(path);
  if (fs::is_regular_file(path / "tokenizer.json")) return load_file(path / "tokenizer.json");
  if (fs::is_regular_file(path / "tokenizer.model")) return load_file(path / "tokenizer.model");
  if (fs::is_regular_file(path / "vocab.json") && fs::is_regular_file(path / "merges.txt")) {
    return load_file(path / "vocab.json");
  }
  if (fs::is_regular_file(path / "vocab.txt")) return load_file(path / "vocab.txt");
  if (fs::is_regular_file(path / "qwen.tiktoken")) return load_file(path / "qwen.tiktoken");
  if (const fs::path found = existing_tokenizer(path); found != path) return load_file(found);
  fail_missing(path);
}

DecodeStream::DecodeStream(std::shared_ptr<const Tokenizer> tokenizer, bool skip_special)
    : tokenizer_(std::move(tokenizer)), skip_special_(skip_special) {}

// The window ids_[prefix_begin_..] begins with ids whose text was given out already: decoding them
// together with the new ones keeps spaces and joints as they are in the whole.
std::string DecodeStream::push(TokenId id) {
  ids_.push_back(id);
  if (!tokenizer_->is_text_final_after(id)) return {};
  const std::string text = window_text(ids_.size());
  if (!text.ends_with(kReplacement)) return take(text);
  // Most likely the beginning of a character.
  return take_all_but_last(text);
}

std::string DecodeStream::finish() {
  std::string rest = take(window_text(ids_.size()));
  ids_.clear();
  read_end_ = given_ = 0;
  return rest;
}

std::string DecodeStream::window_text(size_t end) const {
  return tokenizer_->decode(std::span(ids_).first(end), skip_special_);
}

std::string DecodeStream::take(const std::string& text) {
  if (text.size() <= given_) return {};
  const size_t given = given_;
  // Keep only the newest ids that gave text: they are the next window's context.
  ids_.erase(ids_.begin(), ids_.begin() + static_cast<std::ptrdiff_t>(read_end_));
  read_end_ = ids_.size();
  given_ = window_text(read_end_).size();
  return text.substr(given);
}

// Where bytes that are no character come without end, all but the last of them are final: each
// token that is decoded has one at least, and what is to come completes the last U+FFFD alone.
std::string DecodeStream::take_all_but_last(const std::string& text) {
  size_t begin = ids_.size(), missing = kLongestCharacter;
  while (missing > 0 && begin > read_end_) {
    --begin;
    if (!skip_special_ || !tokenizer_->is_special(ids_[begin])) --missing;
  }
  if (missing > 0 || begin == read_end_) return {};
  std::vector<TokenId> newest(ids_.begin() + static_cast<std::ptrdiff_t>(begin), ids_.end());
  const std::string rest = tokenizer_->decode(newest, skip_special_);
  if (!rest.ends_with(kReplacement)) return {};
  const size_t given = std::exchange(given_, rest.size() - kReplacement.size());
  const size_t end = text.size() - kReplacement.size();
  ids_ = std::move(newest);
  read_end_ = 0;
  return end > given ? text.substr(given, end - given) : "";
}

}  // namespace danlu::text
