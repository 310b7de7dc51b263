#include "train/default_system.h"

#include <utility>

#include "base/file.h"

namespace danlu::train {
namespace {

class DefaultSystemEncoder : public text::ChatEncoder {
 public:
  DefaultSystemEncoder(std::shared_ptr<const text::ChatEncoder> inner, std::string system)
      : inner_(std::move(inner)), system_(std::move(system)) {}
  text::EncodedConversation encode(const text::Conversation& conversation) const override {
    return inner_->encode(completed(conversation));
  }
  text::EncodedConversation encode_all_answers(text::Conversation conversation) const override {
    return inner_->encode_all_answers(completed(conversation));
  }
  std::vector<text::TokenId> encode_prompt(const text::Conversation& conversation) const override {
    return inner_->encode_prompt(completed(conversation));
  }
  std::vector<text::TokenId> encode_pair(const text::Conversation& pair) const override {
    return inner_->encode_pair(completed(pair));
  }
  std::string render(const text::Conversation& conversation,
                     bool add_generation_prompt) const override {
    return inner_->render(completed(conversation), add_generation_prompt);
  }
  std::vector<text::TokenId> stop_ids() const override { return inner_->stop_ids(); }
  std::string description() const override { return inner_->description() + ", with --system"; }
  uint64_t content_hash() const override { return hash_bytes(system_, inner_->content_hash()); }

 private:
  text::Conversation completed(const text::Conversation& conversation) const {
    if (!conversation.messages.empty() && conversation.messages.front().role == "system")
      return conversation;
    text::Conversation with = conversation;
    with.messages.insert(with.messages.begin(),
                         text::Message{.role = "system", .content = system_});
    return with;
  }

  std::shared_ptr<const text::ChatEncoder> inner_;
  std::string system_;
};

}  // namespace

std::shared_ptr<const text::ChatEncoder> with_default_system(
    std::shared_ptr<const text::ChatEncoder> inner, const std::string& system) {
  if (!inner || system.empty()) return inner;
  return std::make_shared<DefaultSystemEncoder>(std::move(inner), system);
}

}  // namespace danlu::train
