#include "serve/token_limits.h"

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace danlu::serve {
namespace {

class AllowedIds final : public text::TokenConstraint {
 public:
  explicit AllowedIds(const std::vector<text::TokenId>& ids) {
    for (const text::TokenId id : ids) {
      const auto word = static_cast<size_t>(id) / 64;
      if (word >= words_.size()) words_.resize(word + 1);
      words_[word] |= uint64_t{1} << (static_cast<size_t>(id) % 64);
    }
  }
  std::span<const uint64_t> allowed() override { return words_; }
  void accept(text::TokenId) override {}
  bool is_form() const override { return false; }
  std::unique_ptr<text::TokenConstraint> clone() const override {
    return std::make_unique<AllowedIds>(*this);
  }

 private:
  std::vector<uint64_t> words_;
};

constexpr std::string_view kOpen = "<think>", kClose = "</think>";

class BehindThought final : public text::TokenConstraint {
 public:
  BehindThought(std::shared_ptr<text::TokenConstraint> form, api::Thought thought,
                const std::shared_ptr<const text::Tokenizer>& tokenizer)
      : form_(std::move(form)),
        text_(tokenizer, /*skip_special=*/false),
        state_(thought == api::Thought::kMayOpen ? State::kBefore : State::kThought),
        opens_(tokenizer->token_to_id(kOpen)),
        size_(tokenizer->size()) {}
  BehindThought(const BehindThought& other)
      : form_(other.form_->clone()),
        text_(other.text_),
        end_(other.end_),
        state_(other.state_),
        opens_(other.opens_),
        size_(other.size_) {}
  BehindThought& operator=(const BehindThought&) = delete;

  bool prepare(int64_t& work) override { return state_ == State::kThought || form_->prepare(work); }

  std::span<const uint64_t> allowed() override {
    if (state_ == State::kForm) return form_->allowed();
    if (state_ == State::kThought) {
      words_.assign((size_ + 63) / 64, ~uint64_t{0});
      return words_;
    }
    const std::span<const uint64_t> of_form = form_->allowed();
    words_.assign(of_form.begin(), of_form.end());
    const auto id = static_cast<size_t>(*opens_);
    words_.resize(std::max(words_.size(), id / 64 + 1));
    words_[id / 64] |= uint64_t{1} << (id % 64);
    return words_;
  }

  void accept(text::TokenId id) override {
    if (state_ == State::kThought) return think(id);
    if (state_ == State::kBefore && id == *opens_) {
      state_ = State::kThought;
      return;
    }
    state_ = State::kForm;
    form_->accept(id);
  }

  std::unique_ptr<text::TokenConstraint> clone() const override {
    return std::make_unique<BehindThought>(*this);
  }

 private:
  enum class State { kBefore, kThought, kForm };

  /// The last bytes are kept, in which the closing tag may begin.
  void think(text::TokenId id) {
    end_ += text_.push(id);
    if (end_.find(kClose) != std::string::npos) state_ = State::kForm;
    if (end_.size() >= kClose.size()) end_.erase(0, end_.size() - (kClose.size() - 1));
  }

  std::shared_ptr<text::TokenConstraint> form_;
  text::DecodeStream text_;
  std::string end_;
  State state_;
  std::optional<text::TokenId> opens_;
  size_t size_;
  std::vector<uint64_t> words_;
};

}  // namespace

std::shared_ptr<text::TokenConstraint> allowed_ids(const std::vector<text::TokenId>& ids) {
  return std::make_shared<AllowedIds>(ids);
}

std::shared_ptr<text::TokenConstraint> behind_thought(
    std::shared_ptr<text::TokenConstraint> form, api::Thought thought,
    const std::shared_ptr<const text::Tokenizer>& tokenizer) {
  const bool thinks = thought != api::Thought::kNone &&
                      (thought != api::Thought::kMayOpen || tokenizer->token_to_id(kOpen));
  if (!thinks) return form;
  return std::make_shared<BehindThought>(std::move(form), thought, tokenizer);
}

}  // namespace danlu::serve
