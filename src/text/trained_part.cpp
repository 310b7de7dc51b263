#include "text/trained_part.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/nearest_name.h"

namespace danlu::text {
namespace {

constexpr std::string_view kOpen = "<think>", kClose = "</think>", kSpace = " \t\r\n";
constexpr const char* kIgnoreThought = "ignore_empty_think";
/// Tokens of an empty thought, at most: each mark may be several.
constexpr size_t kMostTokens = 32;

bool is_empty_thought(std::string_view text) {
  if (!text.starts_with(kOpen)) return false;
  text.remove_prefix(kOpen.size());
  text.remove_prefix(std::min(text.find_first_not_of(kSpace), text.size()));
  return text.starts_with(kClose) &&
         text.find_first_not_of(kSpace, kClose.size()) == std::string_view::npos;
}

class TrainedPartEncoder final : public ChatEncoder {
 public:
  TrainedPartEncoder(std::shared_ptr<const ChatEncoder> inner,
                     std::shared_ptr<const Tokenizer> tokenizer, const TrainedPart& part)
      : inner_(std::move(inner)), tokenizer_(std::move(tokenizer)), part_(part) {
    const std::vector<TokenId> open = tokenizer_->encode(kOpen, false);
    if (!open.empty()) first_of_thought_ = open.front();
  }

  EncodedConversation encode(const Conversation& conversation) const override {
    using Base = TrainedPart::Base;
    if (part_.base == Base::kAll) return encode_all(conversation);
    EncodedConversation encoded =
        part_.base == Base::kLastRound    ? inner_->encode(last_round_of(conversation))
        : part_.base == Base::kLastAnswer ? inner_->encode(last_answer_of(conversation))
                                          : inner_->encode(conversation);
    look_at_thoughts(encoded);
    return encoded;
  }
  EncodedConversation encode_all_answers(Conversation conversation) const override {
    return inner_->encode_all_answers(std::move(conversation));
  }
  std::vector<TokenId> encode_ids(const Conversation& conversation) const override {
    return inner_->encode_ids(conversation);
  }
  std::vector<TokenId> encode_prompt(const Conversation& conversation) const override {
    return inner_->encode_prompt(conversation);
  }
  std::vector<TokenId> encode_pair(const Conversation& pair) const override {
    return inner_->encode_pair(pair);
  }
  std::string render(const Conversation& conversation, bool add_generation_prompt) const override {
    return inner_->render(conversation, add_generation_prompt);
  }
  std::vector<TokenId> stop_ids() const override { return inner_->stop_ids(); }
  std::string description() const override {
    return part_ == TrainedPart() ? inner_->description()
                                  : inner_->description() + ", loss_scale " + part_.name();
  }
  uint64_t content_hash() const override {
    return part_ == TrainedPart() ? inner_->content_hash()
                                  : hash_bytes(part_.name(), inner_->content_hash());
  }

 private:
  static Conversation last_round_of(Conversation conversation) {
    bool is_behind_a_question = false;
    for (auto message = conversation.messages.rbegin(); message != conversation.messages.rend();
         ++message) {
      if (message->role == "user") is_behind_a_question = true;
      if (is_behind_a_question && message->role == "assistant" && !message->train_is_said)
        message->train = false;
    }
    return conversation;
  }

  static Conversation last_answer_of(Conversation conversation) {
    bool is_last = true;
    for (auto message = conversation.messages.rbegin(); message != conversation.messages.rend();
         ++message) {
      if (message->role != "assistant") continue;
      if (!is_last) message->train = false;
      is_last = false;
    }
    return conversation;
  }

  EncodedConversation encode_all(Conversation conversation) const {
    const auto is_left_out = [](const Message& message) {
      return message.role == "assistant" && message.train_is_said && !message.train;
    };
    EncodedConversation all;
    if (std::none_of(conversation.messages.begin(), conversation.messages.end(), is_left_out)) {
      // All of it is learnt, wherever answers begin.
      for (Message& message : conversation.messages) message.train = true;
      all.ids = inner_->encode_ids(conversation);
      all.labels = all.ids;
      return all;
    }
    for (Message& message : conversation.messages)
      if (message.role == "assistant") message.train = is_left_out(message);
    // The targets of this conversation are what the row wants left out of the other's.
    all = inner_->encode(conversation);
    for (size_t i = 0; i < all.ids.size(); ++i)
      all.labels[i] = all.labels[i] == kIgnoreLabel ? all.ids[i] : kIgnoreLabel;
    return all;
  }

  /// The number of labels from `begin` on that are of an empty thought.
  size_t thought_at(const EncodedConversation& encoded, size_t begin, size_t end) const {
    size_t found = 0;
    for (size_t count = 1; count <= std::min(kMostTokens, end - begin); ++count) {
      const std::string text =
          tokenizer_->decode(std::span(encoded.ids).subspan(begin, count), false);
      if (is_empty_thought(text)) found = count;
    }
    return found;
  }

  void look_at_thoughts(EncodedConversation& encoded) const {
    for (size_t begin = 0; begin < encoded.labels.size();) {
      if (encoded.labels[begin] == kIgnoreLabel) {
        ++begin;
        continue;
      }
      size_t end = begin;
      while (end < encoded.labels.size() && encoded.labels[end] != kIgnoreLabel) ++end;
      const size_t count =
          encoded.ids[begin] == first_of_thought_ ? thought_at(encoded, begin, end) : 0;
      if (count > 0 && part_.empty_thoughts && !is_told_.exchange(true)) {
        log::notice(
            "answers without thoughts begin with an empty <think></think>, which is learnt as the "
            "template writes it; --loss_scale ignore_empty_think leaves it out");
      }
      if (!part_.empty_thoughts) {
        const auto first = encoded.labels.begin() + static_cast<std::ptrdiff_t>(begin);
        std::fill(first, first + static_cast<std::ptrdiff_t>(count), kIgnoreLabel);
      }
      begin = end;
    }
  }

  std::shared_ptr<const ChatEncoder> inner_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  TrainedPart part_;
  TokenId first_of_thought_ = -1;
  mutable std::atomic<bool> is_told_{false};
};

}  // namespace

std::string TrainedPart::name() const {
  const std::string words = base == Base::kAll          ? "all"
                            : base == Base::kLastRound  ? "last_round"
                            : base == Base::kLastAnswer ? "last_answer"
                                                        : "default";
  return empty_thoughts ? words : words + "+" + kIgnoreThought;
}

TrainedPart trained_part_from_name(const std::string& words, const std::string& flag) {
  const std::string plus = std::string("+") + kIgnoreThought;
  if (words == "last_round_with_ignore_empty_think")
    return {.base = TrainedPart::Base::kLastRound, .empty_thoughts = false};
  if (words == kIgnoreThought) return {.empty_thoughts = false};
  TrainedPart part;
  part.empty_thoughts = !words.ends_with(plus);
  const std::string base =
      part.empty_thoughts ? words : words.substr(0, words.size() - plus.size());
  if (base == "default") return part;
  part.base = base == "all"           ? TrainedPart::Base::kAll
              : base == "last_answer" ? TrainedPart::Base::kLastAnswer
                                      : TrainedPart::Base::kLastRound;
  if (base == "last_round" || base == "last_answer" || (base == "all" && part.empty_thoughts))
    return part;
  for (const char* other : {"react", "hermes", "qwen", "agentflan", "alpha_umi"}) {
    if (base != other) continue;
    throw UsageError(
        tr("[{}] {}: weights of single words are ms-swift's and not part of this version", flag,
           words),
        tr("\"loss\": false in a message leaves it out; last_round, all and ignore_empty_think are "
           "here"));
  }
  const std::vector<std::string> known = {"default", "last_round", "last_answer", "all",
                                          kIgnoreThought};
  const auto nearest = nearest_name(base, known);
  throw UsageError(tr("[{}] must be a number of at least 0 (fp16's scale), or default, last_round, "
                      "last_answer, all or ignore_empty_think (what is learnt), got '{}'",
                      flag, words),
                   nearest ? tr("did you mean \"{}\"?", *nearest) : "");
}

std::shared_ptr<const ChatEncoder> with_trained_part(std::shared_ptr<const ChatEncoder> inner,
                                                     std::shared_ptr<const Tokenizer> tokenizer,
                                                     const TrainedPart& part) {
  if (!inner) return inner;
  return std::make_shared<TrainedPartEncoder>(std::move(inner), std::move(tokenizer), part);
}

}  // namespace danlu::text
