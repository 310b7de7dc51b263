#include "grammar/vocabulary.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "base/error.h"
#include "text/tokenizer/byte_level.h"
#include "text/tokenizer/utf8.h"

namespace danlu::grammar {
namespace {

constexpr size_t kMaxTokenLength = 1024;

/// The byte of "<0xHH>".
std::optional<std::string> byte_token(const std::string& token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return std::nullopt;
  const std::string digits = token.substr(3, 2);
  if (digits.find_first_not_of("0123456789abcdefABCDEF") != std::string::npos) return std::nullopt;
  return std::string(1, static_cast<char>(std::stoi(digits, nullptr, 16)));
}

}  // namespace

std::optional<std::string> bytes_of_token(const text::Tokenizer& tokenizer, text::TokenId id,
                                          std::span<const text::TokenId> before) {
  const auto token = tokenizer.id_to_token(id);
  if (!token || tokenizer.is_special(id) || id == tokenizer.unk_id()) return std::nullopt;
  std::vector<text::TokenId> ids(before.begin(), before.end());
  const std::string without = tokenizer.decode(ids);
  ids.push_back(id);
  std::string with = tokenizer.decode(ids);
  if (!with.starts_with(without)) return std::nullopt;
  with.erase(0, without.size());
  if (with.find(text::kReplacementUtf8) == std::string::npos) return with;
  // Part of a character: only how the token is written says which bytes it stands for.
  if (auto byte = byte_token(*token)) return byte;
  std::string spelled, shown;
  if (text::append_bytes_of_token(*token, spelled)) {
    text::append_lossy(spelled, shown);
    if (shown == with) return spelled;
  }
  return token->find(text::kReplacementUtf8) != std::string::npos ? std::optional(with)
                                                                  : std::nullopt;
}

Vocabulary::Vocabulary(const text::Tokenizer& tokenizer, std::span<const text::TokenId> without) {
  // In front of the first token decoders drop a space, so that it is looked at after another one.
  std::vector<text::TokenId> before = tokenizer.encode("a", /*add_special=*/false);
  const size_t size = tokenizer.size();
  std::vector<text::TokenId> order;
  begins_.reserve(size + 1);
  for (size_t i = 0; i < size; ++i) {
    const auto id = static_cast<text::TokenId>(i);
    begins_.push_back(static_cast<uint32_t>(text_.size()));
    if (std::find(without.begin(), without.end(), id) != without.end()) continue;
    const auto bytes = bytes_of_token(tokenizer, id, before);
    // A token longer than any text that a state is asked about would only make the tree deep.
    if (!bytes || bytes->empty() || bytes->size() > kMaxTokenLength) continue;
    // No UTF-8 has them; automata use some for tokens (grammar/grammar.h).
    if (std::any_of(bytes->begin(), bytes->end(),
                    [](char c) { return static_cast<uint8_t>(c) >= 0xF8; }))
      continue;
    text_ += *bytes;
    order.push_back(id);
  }
  begins_.push_back(static_cast<uint32_t>(text_.size()));
  if (order.empty())
    throw ModelError(
        tr("answers cannot be constrained: this tokenizer does not tell which bytes its tokens "
           "spell"));
  std::sort(order.begin(), order.end(), [&](text::TokenId a, text::TokenId b) {
    const int compared = bytes(a).compare(bytes(b));
    return compared != 0 ? compared < 0 : a < b;
  });

  nodes_.push_back({0, 0, 0, 0, 0});
  std::vector<uint32_t> way = {0};  // the nodes down to the last one
  for (const text::TokenId id : order) {
    const std::string_view spelled = bytes(id);
    size_t common = 0;
    while (common + 1 < way.size() && common < spelled.size() &&
           nodes_[way[common + 1]].byte == static_cast<uint8_t>(spelled[common])) {
      ++common;
    }
    for (size_t i = common + 1; i < way.size(); ++i)
      nodes_[way[i]].behind = static_cast<uint32_t>(nodes_.size());
    way.resize(common + 1);
    for (size_t i = common; i < spelled.size(); ++i) {
      nodes_.push_back({0, way.back(), static_cast<uint32_t>(tokens_.size()),
                        static_cast<uint16_t>(i + 1), static_cast<uint8_t>(spelled[i])});
      way.push_back(static_cast<uint32_t>(nodes_.size() - 1));
    }
    tokens_.push_back(id);
    max_depth_ = std::max(max_depth_, spelled.size());
  }
  for (const uint32_t node : way) nodes_[node].behind = static_cast<uint32_t>(nodes_.size());
  nodes_.push_back({0, 0, static_cast<uint32_t>(tokens_.size()), 0, 0});
}

std::string_view Vocabulary::bytes(text::TokenId id) const {
  if (id < 0 || static_cast<size_t>(id) + 1 >= begins_.size()) return {};
  return std::string_view(text_).substr(begins_[id], begins_[id + 1] - begins_[id]);
}

}  // namespace danlu::grammar
