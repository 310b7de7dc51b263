// grammar/vocabulary.h: what each token spells, as a tree of bytes.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace danlu::grammar {

/// Bytes that `id` adds to a text that has begun; none for special tokens and those whose bytes the
/// tokenizer does not tell.
std::optional<std::string> bytes_of_token(const text::Tokenizer& tokenizer, text::TokenId id,
                                          std::span<const text::TokenId> before);

/// Immutable.
class Vocabulary {
 public:
  /// A place in the tree, after its parent in the list and before its children.
  struct Node {
    uint32_t behind;  ///< the first node that is not below this one
    uint32_t parent;
    uint32_t first_token;  ///< its tokens: up to the next node's first
    uint16_t depth;        ///< bytes from the root
    uint8_t byte;
  };

  /// without: ids that spell nothing here (stop ids). Errors: ModelError if no token spells
  /// anything.
  Vocabulary(const text::Tokenizer& tokenizer, std::span<const text::TokenId> without);

  /// The first is the root. One more stands after the last.
  const std::vector<Node>& nodes() const { return nodes_; }
  size_t num_nodes() const { return nodes_.size() - 1; }
  std::span<const text::TokenId> tokens_at(size_t node) const {
    return std::span(tokens_).subspan(nodes_[node].first_token,
                                      nodes_[node + 1].first_token - nodes_[node].first_token);
  }
  /// The tokens of `node` and of the nodes below it.
  std::span<const text::TokenId> tokens_below(size_t node) const {
    return std::span(tokens_).subspan(
        nodes_[node].first_token,
        nodes_[nodes_[node].behind].first_token - nodes_[node].first_token);
  }
  std::string_view bytes(text::TokenId id) const;
  size_t max_depth() const { return max_depth_; }

 private:
  std::vector<Node> nodes_;
  std::vector<text::TokenId> tokens_;
  std::string text_;
  std::vector<uint32_t> begins_;
  size_t max_depth_ = 0;
};

}  // namespace danlu::grammar
