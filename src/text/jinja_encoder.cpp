#include "text/jinja_encoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <ctime>
#include <map>
#include <set>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "text/chat_spans.h"
#include "text/jinja/python_text.h"
#include "text/jinja/template.h"
#include "text/tool_results.h"

namespace danlu::text {

namespace {

using jinja::Bindings;
using jinja::Value;
using jinja::ValueList;

class JinjaEncoder final : public ChatEncoder {
 public:
  JinjaEncoder(std::shared_ptr<const Tokenizer> tokenizer, const std::string& source,
               std::string origin, Json arguments)
      : tokenizer_(std::move(tokenizer)),
        template_(source, origin),
        origin_(std::move(origin)),
        arguments_(std::move(arguments)),
        special_(*tokenizer_),
        knows_calls_(source.find("tool_calls") != std::string::npos) {
    hash_ = hash_bytes(
        arguments_.is_null() ? "" : arguments_.dump(-1, ' ', false, Json::error_handler_t::replace),
        hash_bytes(source, kMaskRules));
    find_roles_in_parts();
    if (!roles_in_parts_.empty()) hash_ = hash_bytes("parts", hash_);
    find_stop_ids();
  }

  EncodedConversation encode(const Conversation& conversation) const override {
    std::string text;
    EncodedConversation result = encoded(conversation, &text);
    tell_of_thoughts_left_out(conversation, text);
    return result;
  }

  /// Asked for where turns part, which is not what is learnt: nothing is told of that.
  EncodedConversation encode_all_answers(Conversation conversation) const override {
    for (Message& message : conversation.messages) message.train = true;
    std::string text;
    return encoded(conversation, &text);
  }

  std::vector<TokenId> encode_ids(const Conversation& conversation) const override {
    require_answer(conversation);
    require_calls_written(conversation);
    const std::string text = render(conversation, false);
    tell_of_thoughts_left_out(conversation, text);
    return tokenizer_->encode(text, false);
  }

  std::vector<TokenId> encode_prompt(const Conversation& conversation) const override {
    if (!conversation.messages.empty() && conversation.messages.back().role == "assistant") {
      throw DataError(tr("a prompt must not end with a message of the assistant"));
    }
    if (hides_users_) {
      throw DataError(
          tr("the chat template of {} shows no message of a user, neither as a text nor as a list "
             "of parts",
             origin_));
    }
    return tokenizer_->encode(render(conversation, true), false);
  }

  std::string render(const Conversation& conversation, bool add_generation_prompt) const override {
    Session session(*this, conversation);
    return session.render(session.messages, add_generation_prompt).text;
  }

  std::vector<TokenId> stop_ids() const override { return stop_ids_; }
  std::string description() const override { return origin_ + " (jinja)"; }
  uint64_t content_hash() const override { return hash_; }

 private:
  /// Another one where labels of the same template and text are other ones: part of what caches are
  /// named by.
  static constexpr uint64_t kMaskRules = 3;
  /// Below both, a template that passes a limit does so whatever it is given.
  static constexpr size_t kSmallBytes = size_t{1} << 20, kFewMessages = 1000;

  /// One conversation as template values; its values belong to the calling thread.
  struct Session {
    Session(const JinjaEncoder& e, const Conversation& conversation) : encoder(e) {
      messages.reserve(conversation.messages.size());
      for (const Message& message : conversation.messages) {
        messages.push_back(message_value(message, nullptr));
        text_bytes += message.content.size();
      }
      const bool has_tools = conversation.tools.is_array() && !conversation.tools.empty();
      tools = has_tools ? value_of(conversation.tools) : Value::none();
      if (has_tools && !encoder.template_.mentions("tools") &&
          !encoder.tools_told_.exchange(true)) {
        log::warning("the chat template of {} does not write tools: they are left out",
                     encoder.origin_);
      }
    }

    jinja::Rendered render(ValueList shown, bool add_generation_prompt) const {
      Bindings bindings = encoder.fixed_bindings();
      bindings.set("messages", Value::list(std::move(shown)));
      bindings.set("tools", tools);
      bindings.set("add_generation_prompt", Value::boolean(add_generation_prompt));
      try {
        return encoder.template_.render(bindings, {}, now);
      } catch (const jinja::TemplateLimit& error) {
        // A small conversation is not what was too much: no other need be tried.
        if (text_bytes <= kSmallBytes && messages.size() <= kFewMessages) throw;
        throw DataError(
            tr("the conversation is too large for the chat template: {}", error.what()));
      } catch (const jinja::TemplateError& error) {
        throw DataError(tr("the chat template cannot write this conversation: {}", error.what()));
      }
    }

    static Value value_of(const Json& json) {
      try {
        return Value::from_json(json);
      } catch (const jinja::EvalError& error) {
        throw DataError(tr("a value cannot be given to the chat template: {}", error.what()));
      }
    }

    /// A text, or what stands for it where the template walks through parts.
    Value content_value(const std::string& role, const std::string& text) const {
      // What a tool says is written as what a user says.
      const bool is_known = role == "system" || role == "assistant";
      if (!encoder.roles_in_parts_.contains(is_known ? role : "user")) return Value::string(text);
      jinja::DictEntries part;
      part.emplace_back(Value::string("type"), Value::string("text"));
      part.emplace_back(Value::string("text"), Value::string(text));
      return Value::list({Value::dict(std::move(part))});
    }

    Value message_value(const Message& message, const std::string* content) const {
      jinja::DictEntries entries;
      entries.reserve(2 + message.extra.size());
      entries.emplace_back(Value::string("role"), Value::string(message.role));
      entries.emplace_back(Value::string("content"),
                           content_value(message.role, content ? *content : message.content));
      for (const auto& [key, value] : message.extra.items()) {
        if (content && key == "content") continue;
        if (message.role == "user" && (key == "instruction" || key == "input")) continue;
        entries.emplace_back(Value::string(key), value_of(value));
      }
      return Value::dict(std::move(entries));
    }

    const JinjaEncoder& encoder;
    ValueList messages;
    Value tools;
    size_t text_bytes = 0;
    /// One for all renderings: at midnight they would differ by more than their messages.
    const std::time_t now = std::time(nullptr);
  };

  static void require_answer(const Conversation& conversation) {
    if (std::any_of(conversation.messages.begin(), conversation.messages.end(),
                    [](const Message& m) { return m.role == "assistant"; }))
      return;
    throw DataError(tr("the conversation has no message of the assistant"));
  }

  /// text: becomes what the template writes.
  EncodedConversation encoded(const Conversation& conversation, std::string* text) const {
    Session session(*this, conversation);
    require_answer(conversation);
    require_calls_written(conversation);
    jinja::Rendered full = session.render(session.messages, false);
    const std::vector<ByteSpan> spans = answer_spans(session, conversation, full);
    EncodedConversation result;
    tokenizer_->encode_append(full.text, false, result.ids);
    result.labels = mask_labels(*tokenizer_, special_, full.text, result.ids, spans);
    *text = std::move(full.text);
    return result;
  }

  std::vector<ByteSpan> answer_spans(const Session& session, const Conversation& conversation,
                                     const jinja::Rendered& full) const {
    if (template_.has_generation_blocks() && !full.generations.empty())
      return marked_spans(conversation, full);
    ChatRenderer renderer;
    renderer.render = [&](size_t count, bool prompt) {
      const auto end = session.messages.begin() + static_cast<ptrdiff_t>(count);
      return session.render(ValueList(session.messages.begin(), end), prompt).text;
    };
    renderer.render_with_contents = [&](const std::map<size_t, std::string>& contents) {
      ValueList messages = session.messages;
      for (const auto& [message, content] : contents)
        messages[message] = session.message_value(conversation.messages[message], &content);
      return session.render(std::move(messages), false).text;
    };
    renderer.render_without = [&](size_t message) {
      ValueList messages = session.messages;
      messages.erase(messages.begin() + static_cast<ptrdiff_t>(message));
      return session.render(std::move(messages), false).text;
    };
    std::vector<ByteSpan> spans = find_answer_spans(renderer, conversation.messages, full.text,
                                                    special_, closers_, plain_end_);
    return without_tool_results(renderer, conversation.messages, full.text, special_,
                                std::move(spans));
  }

  /// Errors: DataError where answers would be learnt without their tool calls.
  void require_calls_written(const Conversation& conversation) const {
    if (knows_calls_) return;
    for (size_t i = 0; i < conversation.messages.size(); ++i) {
      const auto calls = conversation.messages[i].extra.find("tool_calls");
      if (calls == conversation.messages[i].extra.end() || calls->empty()) continue;
      throw DataError(
          tr("the chat template does not write tool calls, of which message {} has some", i + 1),
          tr("--template NAME takes one that does; --agent_template hermes that of the model's "
             "family, where there is one"));
    }
  }

  /// Says once that answers are learnt without the thoughts which the row has for them.
  void tell_of_thoughts_left_out(const Conversation& conversation, const std::string& text) const {
    if (thoughts_told_) return;
    const auto is_left_out = [&](const Message& message) {
      if (message.role != "assistant" || !message.train) return false;
      const size_t end = message.content.rfind("</think>");
      if (end == std::string::npos) return false;
      std::string_view thought = std::string_view(message.content).substr(0, end);
      if (const size_t open = thought.rfind("<think>"); open != std::string_view::npos)
        thought.remove_prefix(open + std::string_view("<think>").size());
      return !jinja::strip(thought).empty() &&
             text.find(jinja::strip(thought)) == std::string::npos;
    };
    if (std::none_of(conversation.messages.begin(), conversation.messages.end(), is_left_out) ||
        thoughts_told_.exchange(true))
      return;
    log::warning(
        "the chat template of {} leaves the thoughts of earlier answers out: these answers are "
        "learnt without them; --loss_scale last_round learns the last ones alone",
        origin_);
  }

  /// {% generation %} blocks say themselves what the targets are; one block per answer lets `train`
  /// choose.
  static std::vector<ByteSpan> marked_spans(const Conversation& conversation,
                                            const jinja::Rendered& full) {
    std::vector<const Message*> answers;
    bool all_train = true;
    for (const Message& message : conversation.messages) {
      if (message.role != "assistant") continue;
      answers.push_back(&message);
      all_train = all_train && message.train;
    }
    if (!all_train && answers.size() != full.generations.size()) {
      throw DataError(
          tr("the chat template marks answers in a way that cannot leave out single ones (train: "
             "false)"));
    }
    std::vector<ByteSpan> spans;
    for (size_t i = 0; i < full.generations.size(); ++i) {
      if (all_train || answers[i]->train)
        spans.push_back({full.generations[i].first, full.generations[i].second});
    }
    return spans;
  }

  Bindings fixed_bindings() const {
    Bindings bindings;
    const SpecialTokens& special = tokenizer_->special_tokens();
    const std::pair<const char*, const std::optional<std::string>*> named[] = {
        {"bos_token", &special.bos},
        {"eos_token", &special.eos},
        {"pad_token", &special.pad},
        {"unk_token", &special.unk}};
    for (const auto& [name, text] : named) {
      if (*text && template_.mentions(name)) bindings.set(name, **text);
    }
    if (template_.mentions("documents")) bindings.set("documents", Value::none());
    if (arguments_.is_object()) {
      for (const auto& [key, value] : arguments_.items())
        bindings.set(key, Session::value_of(value));
    }
    return bindings;
  }

  void add_stop(std::optional<TokenId> id) {
    if (!id || std::find(stop_ids_.begin(), stop_ids_.end(), *id) != stop_ids_.end()) return;
    stop_ids_.push_back(*id);
    if (auto text = tokenizer_->id_to_token(*id)) closers_.push_back(std::move(*text));
  }

  /// Whether a text that `role` says in a plain conversation is in what the template writes; none:
  /// it cannot write that conversation.
  std::optional<bool> shows(const std::string& role) const {
    const std::string said = "danlu-probe-2b81d6";
    Conversation probe;
    if (role == "assistant") probe.messages.push_back({.role = "user", .content = "a"});
    probe.messages.push_back({.role = role, .content = said});
    if (role == "system") probe.messages.push_back({.role = "user", .content = "a"});
    try {
      return render(probe, false).find(said) != std::string::npos;
    } catch (const DataError&) {
      return std::nullopt;
    }
  }

  /// A template that walks through the parts of a message shows nothing of a text.
  void find_roles_in_parts() {
    const std::optional<bool> as_text = shows("user");
    if (as_text == true) return;
    roles_in_parts_.insert("user");
    const std::optional<bool> in_parts = shows("user");
    if (in_parts != true) {
      roles_in_parts_.clear();
      hides_users_ = as_text && in_parts;
      return;
    }
    for (const char* role : {"system", "assistant"}) {
      if (shows(role) == true) continue;
      roles_in_parts_.insert(role);
      if (shows(role) != true) roles_in_parts_.erase(role);
    }
  }

  /// EOS, and the special token or the text that a plain answer ends with.
  void find_stop_ids() {
    add_stop(tokenizer_->eos_id());
    const std::string answer = "danlu-probe-7f3a9c";
    Conversation probe;
    probe.messages = {{.role = "user", .content = "a"}, {.role = "assistant", .content = answer}};
    std::string text;
    try {
      text = render(probe, false);
    } catch (const DataError&) {
      return;  // a template that wants more than two plain messages tells nothing here
    }
    size_t at = text.find(answer);
    if (at == std::string::npos) return;
    at += answer.size();
    const size_t end = end_of_turn(text, at, special_, closers_);
    const size_t begin = special_.find(text, at);
    if (begin == std::string::npos)
      plain_end_ = jinja::strip(std::string_view(text).substr(at), true, true);
    if (end == std::string::npos || begin + special_.length_at(text, begin) != end) return;
    add_stop(tokenizer_->token_to_id(text.substr(begin, end - begin)));
  }

  std::shared_ptr<const Tokenizer> tokenizer_;
  jinja::Template template_;
  std::string origin_;
  mutable std::atomic<bool> tools_told_{false};  ///< that they are left out
  mutable std::atomic<bool> thoughts_told_{false};
  Json arguments_;
  SpecialIndex special_;
  bool knows_calls_;                      ///< the template speaks of tool_calls
  std::set<std::string> roles_in_parts_;  ///< whose texts the template wants as lists of parts
  bool hides_users_ = false;
  uint64_t hash_ = 0;
  std::vector<TokenId> stop_ids_;
  std::vector<std::string> closers_;  ///< texts of stop_ids_
  std::string plain_end_;             ///< of a turn, where no special token ends it
};

}  // namespace

std::shared_ptr<const ChatEncoder> make_jinja_encoder(std::shared_ptr<const Tokenizer> tokenizer,
                                                      const std::string& source, std::string origin,
                                                      const Json& arguments) {
  return std::make_shared<JinjaEncoder>(std::move(tokenizer), source, std::move(origin), arguments);
}

}  // namespace danlu::text
