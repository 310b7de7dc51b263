#include "eval/needle/token_ruler.h"

#include <utility>

#include "base/error.h"
#include "text/tiktoken.h"
#include "text/tokenizer.h"
#include "text/tokenizer/byte_level.h"

namespace danlu::eval {
namespace {

constexpr size_t kCl100kTokens = 100256;

/// Every token is bytes of the text, so a token's place is known.
class BytesRuler final : public TokenRuler {
 public:
  BytesRuler(std::string name, std::shared_ptr<const text::Tokenizer> tokenizer)
      : TokenRuler(std::move(name)), tokenizer_(std::move(tokenizer)) {
    std::string bytes;
    for (size_t id = 0; id < tokenizer_->size(); ++id) {
      bytes.clear();
      if (const auto token = tokenizer_->id_to_token(static_cast<text::TokenId>(id)))
        text::append_bytes_of_token(*token, bytes);
      lengths_.push_back(static_cast<uint32_t>(bytes.size()));
    }
  }

  std::vector<int64_t> count_parts(std::string_view text,
                                   std::span<const size_t> ends) const override {
    std::vector<int64_t> counts(ends.size());
    size_t part = 0, at = 0;
    for (const text::TokenId id : tokenizer_->encode(text, false)) {
      at += lengths_[static_cast<size_t>(id)];
      while (part + 1 < ends.size() && ends[part] < at) ++part;
      ++counts[part];
    }
    return counts;
  }

 private:
  std::shared_ptr<const text::Tokenizer> tokenizer_;
  std::vector<uint32_t> lengths_;
};

/// Count: std::string -> tokens.
template <typename Count>
class PartsRuler final : public TokenRuler {
 public:
  PartsRuler(std::string name, Count count)
      : TokenRuler(std::move(name)), count_(std::move(count)) {}

  std::vector<int64_t> count_parts(std::string_view text,
                                   std::span<const size_t> ends) const override {
    std::vector<int64_t> counts;
    size_t begin = 0;
    for (const size_t end : ends) {
      counts.push_back(count_(std::string(text.substr(begin, end - begin))));
      begin = end;
    }
    return counts;
  }

 private:
  Count count_;
};

template <typename Count>
std::unique_ptr<TokenRuler> parts_ruler(std::string name, Count count) {
  return std::make_unique<PartsRuler<Count>>(std::move(name), std::move(count));
}

}  // namespace

std::unique_ptr<TokenRuler> open_token_ruler(const std::filesystem::path& path) {
  const std::string name = path.filename().string();
  if (path.extension() != ".tiktoken" && name != kCachedCl100k) {
    return parts_ruler(path.string(),
                       [tokenizer = text::Tokenizer::load(path)](const std::string& text) {
                         return static_cast<int64_t>(tokenizer->encode(text, false).size());
                       });
  }
  auto tokenizer = text::load_tiktoken(path);
  const bool is_cl100k = name == kCachedCl100k || name == "cl100k_base.tiktoken";
  if (is_cl100k && tokenizer->size() != kCl100kTokens)
    throw ModelError(tr("{}: cl100k_base has {} tokens, this file has {}", path.string(),
                        kCl100kTokens, tokenizer->size()),
                     tr("fetch the file again: it is no tiktoken vocabulary, or damaged"));
  return std::make_unique<BytesRuler>(is_cl100k ? "cl100k_base.tiktoken" : name,
                                      std::move(tokenizer));
}

std::unique_ptr<TokenRuler> model_token_ruler(const Model& model) {
  return parts_ruler("", [&model](const std::string& text) { return model.count_tokens(text); });
}

}  // namespace danlu::eval
