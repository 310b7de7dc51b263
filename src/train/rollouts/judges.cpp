#include "train/rollouts/judges.h"

#include <algorithm>
#include <iterator>

#include "base/error.h"
#include "base/log.h"
#include "weights/lora/trained_base.h"

namespace danlu::train {
namespace {

/// Whether two tokenizers give every id to the same token.
bool have_the_same_tokens(const text::Tokenizer& one, const text::Tokenizer& other) {
  if (one.content_hash() == other.content_hash()) return true;
  if (one.size() != other.size()) return false;
  for (size_t id = 0; id < one.size(); ++id) {
    const auto token = static_cast<text::TokenId>(id);
    if (one.id_to_token(token) != other.id_to_token(token)) return false;
  }
  return true;
}

/// The token that ends an answer in the template, and what is behind it; empty: there is none.
std::vector<text::TokenId> end_by_template(const text::ChatEncoder* encoder,
                                           const std::vector<text::TokenId>& stop_ids) {
  if (!encoder) return {};
  text::Conversation talk;
  for (const char* role : {"user", "assistant"}) {
    text::Message& message = talk.messages.emplace_back();
    message.role = role;
    message.content = "a";
  }
  const std::vector<text::TokenId> ids = encoder->encode(talk).ids;
  const auto end = std::find_first_of(ids.rbegin(), ids.rend(), stop_ids.begin(), stop_ids.end());
  if (end == ids.rend()) return {};
  return {std::prev(end.base()), ids.end()};
}

}  // namespace

std::optional<text::TokenId> end_of_answers(const text::ChatEncoder* encoder,
                                            const std::vector<text::TokenId>& stop_ids,
                                            const text::Tokenizer& tokenizer) {
  const std::vector<text::TokenId> ids = end_by_template(encoder, stop_ids);
  return ids.empty() ? tokenizer.eos_id() : ids.front();
}

std::vector<text::TokenId> tail_of_answers(const text::ChatEncoder* encoder,
                                           const std::vector<text::TokenId>& stop_ids) {
  std::vector<text::TokenId> ids = end_by_template(encoder, stop_ids);
  if (!ids.empty()) ids.erase(ids.begin());
  return ids;
}

std::string name_of_judge(const std::vector<std::filesystem::path>& judges, size_t own) {
  std::filesystem::path rest = judges[own].lexically_normal(), name;
  const auto ends_alike = [&](const std::filesystem::path& other) {
    return ("/" + other.lexically_normal().string()).ends_with("/" + name.string());
  };
  while (rest.has_filename()) {
    name = name.empty() ? rest.filename() : rest.filename() / name;
    rest = rest.parent_path();
    if (std::count_if(judges.begin(), judges.end(), ends_alike) == 1) break;
  }
  return name.string();
}

void say_trained_base(const std::filesystem::path& adapters) {
  if (adapters.empty() || !weights::recorded_nf4(adapters)) return;
  log::info("{}: these adapters were trained on their base in NF4, whose numbers it has here",
            adapters.string());
}

void require_same_tokens(const text::Tokenizer& own, const std::string& named,
                         const std::filesystem::path& tokenizer, const std::string& hint) {
  if (have_the_same_tokens(*text::Tokenizer::load(tokenizer), own)) return;
  throw ModelError(tr("[train] {}: its tokenizer is another than the model's", named), hint);
}

void require_same_tokens(const text::Tokenizer& own, const std::string& named,
                         const std::filesystem::path& tokenizer) {
  require_same_tokens(
      own, named, tokenizer,
      tr("take one of the same family, or \"program:COMMAND\" among --reward_funcs"));
}

}  // namespace danlu::train
