// eval/needle/token_ruler.h: how long texts are in tokens, for benchmarks that ask by length.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "eval/model.h"

namespace danlu::eval {

/// Thread-safe if what it counts with is.
class TokenRuler {
 public:
  virtual ~TokenRuler() = default;
  /// Tokens of each part of `text`: part i ends before byte ends[i], where the next begins.
  /// REQUIRES: ends ascend to text.size(), all between characters.
  virtual std::vector<int64_t> count_parts(std::string_view text,
                                           std::span<const size_t> ends) const = 0;
  int64_t count(std::string_view text) const {
    const size_t ends[] = {text.size()};
    return text.empty() ? 0 : count_parts(text, ends)[0];
  }
  /// "cl100k_base.tiktoken"; empty: the model's own.
  const std::string& name() const { return name_; }

 protected:
  explicit TokenRuler(std::string name) : name_(std::move(name)) {}

 private:
  std::string name_;
};

/// A ruler that counts by the tokenizer of a file or directory. A `.tiktoken` file, or one under
/// the name that tiktoken's cache gives cl100k_base's, counts tokens of the whole text, one that
/// reaches over a border where it ends; any other tokenizer counts each part by itself. Errors: as
/// load_tiktoken and Tokenizer::load; ModelError if cl100k_base's file is not whole.
std::unique_ptr<TokenRuler> open_token_ruler(const std::filesystem::path& path);

/// By the model's own tokenizer, each part by itself. `model` must outlive it.
std::unique_ptr<TokenRuler> model_token_ruler(const Model& model);

/// cl100k_base's file in tiktoken's cache: the SHA-1 of the address that it comes from.
inline constexpr std::string_view kCachedCl100k = "9b5ad71b2ce5302211f9c61530b329a4922fc6a4";

}  // namespace danlu::eval
