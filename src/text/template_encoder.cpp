#include "text/template_encoder.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "text/query_and_document.h"
#include "text/template_tools.h"

namespace danlu::text {

namespace {

/// What a format becomes for one message: texts and ids in order.
struct Element {
  std::string text;           ///< tokenised by itself
  std::optional<TokenId> id;  ///< or one token
};
using Elements = std::vector<Element>;

struct Replacement {
  std::string_view placeholder, value;
};

/// Each placeholder is replaced once, and never inside a value put in before.
std::string with_replacements(const std::string& text,
                              std::initializer_list<Replacement> replacements) {
  std::string out;
  size_t position = 0;
  uint32_t done = 0;  // a bit for each
  while (true) {
    size_t first = std::string::npos, which = 0;
    for (size_t i = 0; i < replacements.size(); ++i) {
      if (done >> i & 1) continue;
      const size_t at = text.find(replacements.begin()[i].placeholder, position);
      if (at < first) {
        first = at;
        which = i;
      }
    }
    if (first == std::string::npos) break;
    const Replacement& replacement = replacements.begin()[which];
    out.reserve(text.size() + replacement.value.size());
    out.append(text, position, first - position);
    out += replacement.value;
    position = first + replacement.placeholder.size();
    done |= 1u << which;
  }
  return out.append(text, position);
}

class TemplateEncoder final : public ChatEncoder {
 public:
  TemplateEncoder(std::shared_ptr<const Tokenizer> tokenizer, NamedTemplate named,
                  std::string origin, const Json& arguments)
      : tokenizer_(std::move(tokenizer)), named_(std::move(named)), origin_(std::move(origin)) {
    read_arguments(arguments);
    find_eos();
    for (const TemplateSlots* slots :
         {&named_.prefix, &named_.system, &named_.user, &named_.assistant, &named_.function,
          &named_.observation, &named_.separator}) {
      for (const TemplateSlot& slot : *slots) {
        if (slot.kind == TemplateSlot::Kind::kToken) required_id(slot.text, "makes use of");
        if (slot.kind == TemplateSlot::Kind::kEos && !eos_) require_eos();
      }
    }
    if (named_.efficient_eos) require_eos();
    append_ids(opening_elements({}), usual_opening_);
  }

  EncodedConversation encode(const Conversation& given) const override {
    EncodedConversation result;
    Conversation joined;
    const Conversation& conversation = with_joined_results(given, joined);
    std::vector<Turn> turns = split_turns(conversation, true);
    forget_idle_thoughts(turns);
    std::vector<TokenId> source, target;
    for (size_t t = 0; t < turns.size(); ++t) {
      source.clear();
      target.clear();
      if (t == 0) append_opening(conversation, source);
      append_ids(question_elements(turns[t], t, conversation), source);
      append_ids(target_elements(turns[t]), target);
      move_empty_thought(turns[t], source, target);
      const size_t begin = result.ids.size();
      result.ids.insert(result.ids.end(), source.begin(), source.end());
      result.labels.resize(result.ids.size(), kIgnoreLabel);
      if (named_.efficient_eos && t > 0 && turns[t - 1].answer->train && !source.empty())
        result.labels[begin] = *eos_;
      result.ids.insert(result.ids.end(), target.begin(), target.end());
      const bool trains = turns[t].answer->train;
      result.labels.insert(result.labels.end(), target.begin(), target.end());
      if (!trains)
        std::fill(result.labels.end() - static_cast<ptrdiff_t>(target.size()), result.labels.end(),
                  kIgnoreLabel);
    }
    if (named_.efficient_eos) {
      result.ids.push_back(*eos_);
      result.labels.push_back(turns.back().answer->train ? *eos_ : kIgnoreLabel);
    }
    return result;
  }

  std::vector<TokenId> encode_prompt(const Conversation& conversation) const override {
    std::vector<TokenId> ids;
    for_each_element(conversation, true, [&](const Element& element) { append_id(element, ids); });
    return ids;
  }

  std::vector<TokenId> encode_pair(const Conversation& pair) const override {
    if (named_.pair.empty()) return ChatEncoder::encode_pair(pair);
    const QueryAndDocument parts = query_and_document(pair);
    const std::string& instruction =
        parts.instruction.empty() ? named_.default_instruction : parts.instruction;
    Conversation asked;
    asked.messages.push_back(
        {"user", with_replacements(named_.pair, {{"{{instruction}}", instruction},
                                                 {"{{query}}", parts.query},
                                                 {"{{document}}", parts.document}})});
    return encode_prompt(asked);
  }

  std::string render(const Conversation& conversation, bool add_generation_prompt) const override {
    std::string text;
    const auto append = [&](const Element& element) {
      text += element.id ? tokenizer_->id_to_token(*element.id).value_or("") : element.text;
    };
    for_each_element(conversation, add_generation_prompt, append);
    if (!add_generation_prompt && named_.efficient_eos) append({"", eos_});
    return text;
  }

  std::vector<TokenId> stop_ids() const override {
    std::vector<TokenId> ids;
    if (eos_) ids.push_back(*eos_);
    for (const std::string& word : named_.stop_words) {
      const auto id = tokenizer_->token_to_id(word);
      if (id && std::find(ids.begin(), ids.end(), *id) == ids.end()) ids.push_back(*id);
    }
    return ids;
  }

  std::string description() const override { return origin_; }

  uint64_t content_hash() const override {
    std::string content = fmt::format(
        "{}\x1f{}\x1f{}\x1f{}\x1f{}\x1f{}", named_.name, named_.default_system, named_.tool_format,
        named_.pair, named_.default_instruction, fmt::join(named_.stop_words, "\x1f"));
    for (const TemplateSlots* slots :
         {&named_.prefix, &named_.system, &named_.user, &named_.assistant, &named_.function,
          &named_.observation, &named_.separator}) {
      for (const TemplateSlot& slot : *slots)
        content += fmt::format("\x1f{}{}", static_cast<int>(slot.kind), slot.text);
      content += '\x1e';
    }
    content += fmt::format("{}{}{}{}", named_.efficient_eos, named_.replace_eos,
                           static_cast<int>(named_.style),
                           enable_thinking_ ? (*enable_thinking_ ? 1 : 0) : 2);
    // Not of others: what was tokenised with them keeps its name.
    if (named_.as_in_llamafactory || named_.empty_thought != NamedTemplate().empty_thought) {
      content += fmt::format("\x1f{}\x1f{}\x1f{}\x1f{}", named_.as_in_llamafactory,
                             named_.thought_begin, named_.thought_end, named_.empty_thought);
    }
    return hash_bytes(content);
  }

 private:
  /// A user (or tool) message and the answer to it.
  struct Turn {
    const Message* question = nullptr;
    const Message* answer = nullptr;  ///< null for the open turn of a prompt
    bool is_thoughtless = false;      ///< no thought of the answer is shown, nor an empty one
  };

  [[noreturn]] void fail(const std::string& what, std::string hint = {}) const {
    throw ModelError(tr("template '{}' {}", named_.name, what), std::move(hint));
  }

  TokenId required_id(const std::string& token, std::string_view use) const {
    const auto id = tokenizer_->token_to_id(token);
    if (!id) {
      fail(tr("{} the token {}, which this tokenizer does not have", use, token),
           tr("choose a template made for this model (--template), or add the token to the "
              "tokenizer"));
    }
    return *id;
  }

  void find_eos() {
    eos_ = named_.replace_eos ? required_id(named_.stop_words.front(), "ends answers with")
                              : tokenizer_->eos_id();
    if (!eos_) eos_ = tokenizer_->token_to_id("<|endoftext|>");
  }

  void require_eos() const {
    if (!eos_) fail("ends answers with EOS, and this tokenizer names no EOS token");
  }

  void read_arguments(const Json& arguments) {
    const bool thinks = named_.style == TemplateStyle::kReasoning;
    if (thinks && named_.as_in_llamafactory) enable_thinking_ = true;
    if (arguments.is_null()) return;
    for (const auto& [key, value] : arguments.items()) {
      const bool is_known =
          key == "enable_thinking" && (thinks || named_.as_in_llamafactory) && value.is_boolean();
      if (!is_known) {
        throw UsageError(
            tr("template '{}' knows no argument {}={}", named_.name, key, value.dump()));
      }
      enable_thinking_ = value.get<bool>();
    }
  }

  TokenId slot_id(const TemplateSlot& slot) const {
    return slot.kind == TemplateSlot::Kind::kEos ? *eos_ : *tokenizer_->token_to_id(slot.text);
  }

  void add(const TemplateSlots& slots, std::initializer_list<Replacement> replacements,
           Elements& out) const {
    for (const TemplateSlot& slot : slots) {
      if (slot.kind == TemplateSlot::Kind::kText) {
        out.push_back({with_replacements(slot.text, replacements), std::nullopt});
      } else if (slot.kind != TemplateSlot::Kind::kBos) {
        out.push_back({"", slot_id(slot)});
      } else if (const auto bos = tokenizer_->bos_id()) {
        out.push_back({"", bos});
      }
    }
  }

  void append_id(const Element& element, std::vector<TokenId>& ids) const {
    if (element.id) {
      ids.push_back(*element.id);
    } else if (!element.text.empty()) {
      tokenizer_->encode_append(element.text, false, ids);
    }
  }
  void append_ids(const Elements& elements, std::vector<TokenId>& ids) const {
    for (const Element& element : elements) append_id(element, ids);
  }

  static bool is_question(const Message& m) {
    return m.role == "user" || m.role == "tool" || m.role == "observation";
  }
  static bool is_answer(const Message& m) { return m.role == "assistant" || m.role == "function"; }

  /// What tools returned one after another is one message in LLaMA-Factory, whatever marks the
  /// template has. `joined` holds the result where it is another.
  const Conversation& with_joined_results(const Conversation& given, Conversation& joined) const {
    const auto is_another = [](const Message& a, const Message& b) {
      return a.role == "tool" && b.role == "tool";
    };
    const auto& all = given.messages;
    if (!named_.as_in_llamafactory ||
        std::adjacent_find(all.begin(), all.end(), is_another) == all.end())
      return given;
    joined.tools = given.tools;
    for (const Message& message : all) {
      if (joined.messages.empty() || !is_another(joined.messages.back(), message) ||
          !message.media.empty()) {
        joined.messages.push_back(message);
      } else {
        joined.messages.back().content += "\n</tool_response>\n<tool_response>\n" + message.content;
      }
    }
    return joined;
  }

  std::vector<Turn> split_turns(const Conversation& conversation, bool complete) const {
    std::vector<Turn> turns;
    const auto& messages = conversation.messages;
    for (size_t i = !messages.empty() && messages[0].role == "system" ? 1 : 0; i < messages.size();
         ++i) {
      const bool expects_question = turns.empty() || turns.back().answer;
      if (expects_question ? !is_question(messages[i]) : !is_answer(messages[i])) {
        throw DataError(
            tr("message {}: expected role {}, got '{}' (template '{}' needs turns in order)", i + 1,
               expects_question ? "user or tool" : "assistant", messages[i].role, named_.name),
            tr("the tokenizer's own template may take another order: --template hf"));
      }
      if (expects_question) {
        turns.push_back({&messages[i], nullptr});
      } else {
        turns.back().answer = &messages[i];
      }
    }
    if (turns.empty()) throw DataError(tr("the conversation has no user message"));
    if (complete && !turns.back().answer)
      throw DataError(tr("the conversation ends without an answer of the assistant"));
    return turns;
  }

  static bool gives_system(const Conversation& conversation) {
    const auto& messages = conversation.messages;
    return !messages.empty() && messages[0].role == "system" && !messages[0].content.empty();
  }

  std::string system_text(const Conversation& conversation) const {
    return (gives_system(conversation) ? conversation.messages[0].content : named_.default_system) +
           tools_text(conversation.tools, named_.tool_format);
  }

  /// What stands before the first question.
  Elements opening_elements(const Conversation& conversation) const {
    Elements out;
    add(named_.prefix, {}, out);
    if (named_.style == TemplateStyle::kLlama2) return out;
    const std::string system = system_text(conversation);
    if (!system.empty()) add(named_.system, {{"{{content}}", system}}, out);
    return out;
  }

  void append_opening(const Conversation& conversation, std::vector<TokenId>& ids) const {
    if (gives_system(conversation) || !conversation.tools.empty()) {
      append_ids(opening_elements(conversation), ids);
    } else {
      ids.insert(ids.end(), usual_opening_.begin(), usual_opening_.end());
    }
  }

  /// The system text where it goes inside the first question.
  std::string text_before_question(size_t index, const Conversation& conversation) const {
    std::string text;
    if (index > 0 || named_.style != TemplateStyle::kLlama2) return text;
    const std::string system = system_text(conversation);
    if (system.empty()) return text;
    Elements inside;
    add(named_.system, {{"{{content}}", system}}, inside);
    for (const Element& element : inside) text += element.text;
    return text;
  }

  Elements question_elements(const Turn& turn, size_t index,
                             const Conversation& conversation) const {
    Elements out;
    if (index > 0) add(named_.separator, {}, out);
    const std::string before = text_before_question(index, conversation);
    const std::string joined = before.empty() ? "" : before + turn.question->content;
    const std::string_view content = before.empty() ? turn.question->content : joined;
    const bool is_user = turn.question->role == "user";
    const std::string number = std::to_string(index);
    add(is_user ? named_.user : named_.observation, {{"{{content}}", content}, {"{{idx}}", number}},
        out);
    return out;
  }

  Elements target_elements(const Turn& turn) const {
    Elements out;
    const auto calls = turn.answer->extra.find("tool_calls");
    if (calls != turn.answer->extra.end() && calls->is_array() && !calls->empty()) {
      add_tool_calls(answer_text(turn), read_tool_calls(*calls), out);
    } else {
      add(named_.assistant, {{"{{content}}", answer_text(turn)}}, out);
    }
    return out;
  }

  std::string answer_text(const Turn& turn) const {
    const bool drops_thoughts = named_.style == TemplateStyle::kReasoning &&
                                (enable_thinking_ == false || turn.is_thoughtless);
    const std::string& content = turn.answer->content;
    return drops_thoughts ? without_thought(content, named_.thought_begin, named_.thought_end)
                          : content;
  }

  /// LLaMA-Factory shows the model no thought of an earlier answer that it does not learn.
  void forget_idle_thoughts(std::vector<Turn>& turns) const {
    if (!named_.as_in_llamafactory || named_.style != TemplateStyle::kReasoning) return;
    for (size_t t = 0; t + 1 < turns.size(); ++t) turns[t].is_thoughtless = !turns[t].answer->train;
  }

  bool lacks_thought(const Turn& turn) const {
    return named_.style == TemplateStyle::kReasoning && !turn.is_thoughtless &&
           !has_thought(answer_text(turn), named_.thought_begin, named_.thought_end);
  }

  void add_tool_calls(std::string before, const std::vector<ToolCall>& calls, Elements& out) const {
    const bool is_whole =
        std::any_of(named_.function.begin(), named_.function.end(), [](const TemplateSlot& slot) {
          return slot.text.find("{{content}}") != std::string::npos;
        });
    if (is_whole) {
      if (!before.empty() && !named_.as_in_llamafactory) before += '\n';
      add(named_.function, {{"{{content}}", before + tool_calls_text(calls, named_.tool_format)}},
          out);
      return;
    }
    if (!before.empty()) {
      throw DataError(tr("template '{}' writes no text beside a tool call", named_.name));
    }
    if (calls.size() != 1) {
      throw DataError(tr("template '{}' can write one tool call per message, got {}", named_.name,
                         calls.size()));
    }
    add(named_.function, {{"{{name}}", calls[0].name}, {"{{arguments}}", calls[0].arguments}}, out);
  }

  /// Reasoning models see an empty thought where an answer has none: as part of the prompt, or of
  /// the answer when enable_thinking is true.
  void move_empty_thought(const Turn& turn, std::vector<TokenId>& source,
                          std::vector<TokenId>& target) const {
    if (!lacks_thought(turn)) return;
    std::vector<TokenId> thought = tokenizer_->encode(named_.empty_thought, false);
    if (enable_thinking_ == true) {
      target.insert(target.begin(), thought.begin(), thought.end());
    } else {
      source.insert(source.end(), thought.begin(), thought.end());
    }
  }

  template <typename Sink>
  void for_each_element(const Conversation& given, bool prompt, const Sink& sink) const {
    Conversation joined;
    const Conversation& conversation = with_joined_results(given, joined);
    std::vector<Turn> turns = split_turns(conversation, !prompt);
    if (!prompt) forget_idle_thoughts(turns);
    if (prompt && turns.back().answer)
      throw DataError(tr("a prompt must not end with a message of the assistant"));
    const bool reasoning = named_.style == TemplateStyle::kReasoning;
    for (size_t t = 0; t < turns.size(); ++t) {
      if (t == 0) {
        for (const Element& element : opening_elements(conversation)) sink(element);
      }
      for (const Element& element : question_elements(turns[t], t, conversation)) sink(element);
      if (turns[t].answer) {
        // Training shows every thought; a prompt shows none of the earlier ones.
        if (prompt) turns[t].is_thoughtless = true;
        if (lacks_thought(turns[t])) sink(Element{named_.empty_thought, std::nullopt});
        for (const Element& element : target_elements(turns[t])) sink(element);
      } else if (reasoning && enable_thinking_ == false) {
        sink(Element{named_.empty_thought, std::nullopt});
      }
    }
  }

  std::shared_ptr<const Tokenizer> tokenizer_;
  NamedTemplate named_;
  std::string origin_;
  std::optional<TokenId> eos_;
  std::optional<bool> enable_thinking_;
  std::vector<TokenId> usual_opening_;  ///< of conversations without system text and tools
};

}  // namespace

std::shared_ptr<const ChatEncoder> make_template_encoder(std::shared_ptr<const Tokenizer> tokenizer,
                                                         NamedTemplate named, std::string origin,
                                                         const Json& template_arguments) {
  if (named.style == TemplateStyle::kStanfordAlpaca)
    return make_stanford_alpaca_encoder(std::move(tokenizer));
  return std::make_shared<TemplateEncoder>(std::move(tokenizer), std::move(named),
                                           std::move(origin), template_arguments);
}

}  // namespace danlu::text
