#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "base/lfs_pointer.h"
#include "base/nearest_name.h"
#include "text/conversation.h"
#include "text/gguf_tokenizer.h"
#include "text/jinja_encoder.h"
#include "text/template_encoder.h"
#include "text/template_file.h"

namespace danlu::text {

namespace {

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

/// A model's own template, and the one named "tool_use" where tools are given.
class EncoderByTools final : public ChatEncoder {
 public:
  EncoderByTools(std::shared_ptr<const ChatEncoder> usual,
                 std::shared_ptr<const ChatEncoder> with_tools)
      : usual_(std::move(usual)), with_tools_(std::move(with_tools)) {}

  EncodedConversation encode(const Conversation& conversation) const override {
    return encoder_of(conversation).encode(conversation);
  }
  EncodedConversation encode_all_answers(Conversation conversation) const override {
    const ChatEncoder& encoder = encoder_of(conversation);
    return encoder.encode_all_answers(std::move(conversation));
  }
  std::vector<TokenId> encode_ids(const Conversation& conversation) const override {
    return encoder_of(conversation).encode_ids(conversation);
  }
  std::vector<TokenId> encode_prompt(const Conversation& conversation) const override {
    return encoder_of(conversation).encode_prompt(conversation);
  }
  std::string render(const Conversation& conversation, bool add_generation_prompt) const override {
    return encoder_of(conversation).render(conversation, add_generation_prompt);
  }
  std::vector<TokenId> stop_ids() const override {
    std::vector<TokenId> ids = usual_->stop_ids();
    for (const TokenId id : with_tools_->stop_ids()) {
      if (std::find(ids.begin(), ids.end(), id) == ids.end()) ids.push_back(id);
    }
    return ids;
  }
  std::string description() const override { return usual_->description(); }
  uint64_t content_hash() const override {
    const uint64_t usual = usual_->content_hash();
    return hash_bytes({reinterpret_cast<const char*>(&usual), sizeof usual},
                      with_tools_->content_hash());
  }

 private:
  const ChatEncoder& encoder_of(const Conversation& conversation) const {
    const bool has_tools = conversation.tools.is_array() && !conversation.tools.empty();
    return has_tools ? *with_tools_ : *usual_;
  }

  std::shared_ptr<const ChatEncoder> usual_, with_tools_;
};

std::string own_template_origin(const Tokenizer& tokenizer) {
  for (const auto& file : tokenizer.files()) {
    if (file.filename() == "chat_template.jinja") return "chat_template.jinja";
    if (is_gguf(file)) return "tokenizer.chat_template";
  }
  return "tokenizer_config.json";
}

std::vector<std::string> names_of_llamafactory() {
  std::vector<std::string> names;
  for (const NamedTemplate& one : llamafactory_templates()) names.push_back(one.name);
  return names;
}

/// The prefix stands before names that LLaMA-Factory alone has.
std::optional<std::string> nearest_template(const std::string& name,
                                            const std::vector<std::string>& known) {
  const std::vector<std::string> theirs = names_of_llamafactory();
  std::vector<std::string> all = known;
  all.insert(all.end(), theirs.begin(), theirs.end());
  const bool has_prefix = name.starts_with(kOfLlamaFactory);
  const auto nearest = nearest_name(has_prefix ? name.substr(kOfLlamaFactory.size()) : name, all);
  if (!nearest) return std::nullopt;
  const bool is_known = std::find(known.begin(), known.end(), *nearest) != known.end();
  return is_known && !has_prefix ? *nearest : name_in_llamafactory(*nearest);
}

[[noreturn]] void unknown_template(const std::string& name, const fs::path& templates_file) {
  const bool is_theirs = name.starts_with(kOfLlamaFactory);
  const std::vector<std::string> known =
      is_theirs ? names_of_llamafactory() : ChatEncoder::names(templates_file);
  const auto nearest = nearest_template(name, known);
  throw ModelError(tr("unknown template '{}'{}; known: {}", name,
                      nearest ? tr(" (did you mean '{}'?)", *nearest) : "", joined(known)),
                   is_theirs
                       ? tr("--template auto takes the model's own")
                       : tr("--template auto takes the model's own; LLaMA-Factory's are called "
                            "llamafactory:NAME, see docs/formats/templates.md"));
}

}  // namespace

std::shared_ptr<const ChatEncoder> ChatEncoder::create(std::shared_ptr<const Tokenizer> tokenizer,
                                                       const std::string& name,
                                                       const std::filesystem::path& templates_file,
                                                       const Json& template_arguments) {
  if (!template_arguments.is_null() && !template_arguments.is_object()) {
    throw UsageError(
        tr("template arguments must be a JSON object, got {}", template_arguments.type_name()));
  }
  std::string chosen = name == "auto" ? "" : name;
  if (chosen.ends_with(".jinja")) {
    refuse_lfs_pointer(chosen, "the template");
    return make_jinja_encoder(std::move(tokenizer), read_file(chosen), chosen, template_arguments);
  }
  if (chosen.empty() || chosen == "hf") {
    if (!tokenizer->chat_template().empty()) {
      const std::string origin = own_template_origin(*tokenizer);
      auto usual =
          make_jinja_encoder(tokenizer, tokenizer->chat_template(), origin, template_arguments);
      if (tokenizer->tool_template().empty()) return usual;
      return std::make_shared<EncoderByTools>(
          std::move(usual), make_jinja_encoder(tokenizer, tokenizer->tool_template(),
                                               origin + ", tool_use", template_arguments));
    }
    throw ModelError(tr("this model ships no chat template; choose one with --template: {}",
                        joined(names(templates_file))),
                     tr("for a base model, 'default', 'alpaca' or 'chatml' are common choices"));
  }
  auto found = find_template(chosen, templates_file);
  if (!found) unknown_template(chosen, templates_file);
  return make_template_encoder(std::move(tokenizer), std::move(*found), chosen, template_arguments);
}

std::vector<std::string> ChatEncoder::names(const std::filesystem::path& templates_file) {
  std::vector<std::string> names;
  const auto add = [&](const std::vector<NamedTemplate>& templates) {
    for (const NamedTemplate& t : templates) {
      if (std::find(names.begin(), names.end(), t.name) == names.end()) names.push_back(t.name);
    }
  };
  if (!templates_file.empty())
    add(parse_templates(read_json_file(templates_file), templates_file.string()));
  add(builtin_templates());
  return names;
}

EncodedConversation ChatEncoder::encode_all_answers(Conversation conversation) const {
  for (Message& message : conversation.messages) message.train = true;
  return encode(conversation);
}

std::vector<TokenId> ChatEncoder::encode_ids(const Conversation& conversation) const {
  return encode(conversation).ids;
}

Conversation parse_conversation(const Json& json, const std::string& origin) {
  const bool wrapped = json.is_object();
  const Json& list = wrapped ? json.value("messages", Json()) : json;
  Conversation conversation;
  if (wrapped) conversation.tools = json.value("tools", Json());
  if (!list.is_array())
    throw DataError(tr("{}: expected a list of messages, or an object with \"messages\"", origin));
  for (size_t i = 0; i < list.size(); ++i) {
    const Json& entry = list[i];
    const auto fail = [&](const std::string& what) {
      throw DataError(tr("{}: message {}: {}", origin, i + 1, what));
    };
    if (!entry.is_object()) fail(tr("expected an object, got {}", entry.type_name()));
    Message message;
    if (!entry.contains("role") || !entry["role"].is_string()) fail("\"role\" must be a string");
    message.role = entry["role"].get<std::string>();
    for (const auto& [key, value] : entry.items()) {
      if (key == "role") continue;
      if (key == "content" && value.is_string()) {
        message.content = value.get<std::string>();
      } else if (key == "train" && value.is_boolean()) {
        message.train = value.get<bool>();
        message.train_is_said = true;
      } else if (key == "content" && !value.is_null() && !value.is_array()) {
        fail(tr("\"content\" must be a string, got {}", value.type_name()));
      } else {
        message.extra[key] = value;
      }
    }
    if (!entry.contains("content") && !entry.contains("tool_calls")) fail("\"content\" is missing");
    conversation.messages.push_back(std::move(message));
  }
  return conversation;
}

}  // namespace danlu::text
