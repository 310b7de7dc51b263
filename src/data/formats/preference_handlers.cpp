// Rows with two answers, a judged answer, judged steps, or none.
#include "data/formats/preference_handlers.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/message.h"
#include "data/formats/columns.h"
#include "text/message_json.h"

namespace danlu::data {
namespace {

RowProblem not_an_object(const Json& row) {
  return {"row is not an object", fmt::format("got {}", kind_of(row))};
}

void add_names(const std::vector<std::string>& more, std::vector<std::string>* names) {
  for (const std::string& name : more) {
    if (!name.empty() && std::find(names->begin(), names->end(), name) == names->end())
      names->push_back(name);
  }
}

std::vector<std::string> columns_of_source(const AnswerSource& source) {
  std::vector<std::string> names = source.handler->columns_read();
  add_names({source.column}, &names);
  return names;
}

std::string answering_role(const MessageTags& tags) {
  if (!tags.assistant.empty()) return tags.assistant;
  return tags.role == "from" ? "gpt" : "assistant";
}

Json message_of(const MessageTags& tags, const std::string& role, const std::string& text) {
  return Json{{tags.role, role}, {tags.content, text}};
}

bool is_answer(const Json& message, const MessageTags& tags) {
  if (!message.is_object()) return false;
  const std::string role = json_get<std::string>(message, tags.role).value_or("");
  return role == answering_role(tags) || role == "assistant" || role == "gpt" || role == "bot";
}

/// Messages that a table keeps as text; an answer that happens to be JSON stays a text.
Json messages_if_text(const Json& value, const MessageTags& tags) {
  if (!value.is_string()) return value;
  const auto parsed = parse_if_text(value);
  const auto is_message = [&](const Json& item) {
    return item.is_object() && item.contains(tags.role);
  };
  const bool holds_messages =
      parsed && (is_message(*parsed) ||
                 (parsed->is_array() && !parsed->empty() && is_message(parsed->front())));
  return holds_messages ? *parsed : value;
}

/// The list of messages in `column`; a text is a question. False: *problem is set.
bool prompt_messages(const Json& row, const MessageTags& tags, Json* messages,
                     RowProblem* problem) {
  const Json* value = find_value(row, tags.messages);
  if (!value) return true;
  Json list = messages_if_text(*value, tags);
  if (list.is_array()) {
    *messages = std::move(list);
  } else if (!list.is_string()) {
    *problem = wrong_type(tags.messages, "a list of messages", list);
    return false;
  } else if (!list.get_ref<const std::string&>().empty()) {
    const std::string role = !tags.user.empty() ? tags.user : "user";
    messages->push_back(message_of(tags, role, list.get<std::string>()));
  }
  return true;
}

/// The conversation whose answer stands in a column of its own. False: *problem is set.
bool answered_messages(const AnswerSource& source, const Json& row, Json* messages,
                       RowProblem* problem) {
  const MessageTags& tags = source.tags;
  const Json* given = find_value(row, source.column);
  if (!given) {
    *problem = missing_column(source.column);
    return false;
  }
  Json value = messages_if_text(*given, tags);
  if (source.place == AnswerPlace::kWhole) {
    *messages = std::move(value);
    return true;
  }
  if (!prompt_messages(row, tags, messages, problem)) return false;
  if (source.place == AnswerPlace::kInstead) {
    if (!value.is_string() || messages->empty() || !is_answer(messages->back(), tags)) {
      *problem = value.is_string() ? RowProblem{"the last message is not an answer", source.column}
                                   : wrong_type(source.column, "a string", value);
      return false;
    }
    messages->back() = message_of(tags, answering_role(tags), value.get<std::string>());
  } else if (value.is_string()) {
    messages->push_back(message_of(tags, answering_role(tags), value.get<std::string>()));
  } else if (value.is_object()) {
    messages->push_back(std::move(value));
  } else if (value.is_array() && (value.empty() || !is_answer(value.front(), tags))) {
    *messages = std::move(value);
  } else if (value.is_array()) {
    messages->insert(messages->end(), value.begin(), value.end());
  } else {
    *problem = wrong_type(source.column, "a text, a message or a list of messages", value);
    return false;
  }
  return true;
}

/// The row with its answer, or why not.
RowResult read_answer(const AnswerSource& source, const Json& row) {
  if (source.place == AnswerPlace::kInRow) return source.handler->read(row);
  Json messages = Json::array();
  RowProblem problem;
  if (!answered_messages(source, row, &messages, &problem)) return problem;
  Json whole = Json::object();
  whole[source.tags.messages] = std::move(messages);
  for (const std::string& column : {source.tags.system, source.tags.tools}) {
    if (const Json* value = find_value(row, column)) whole[column] = *value;
  }
  return source.handler->read(whole);
}

/// False: *problem is set.
bool take_answer(RowResult result, AnsweredRow* answer, RowProblem* problem) {
  if (auto* found = std::get_if<RowProblem>(&result)) {
    *problem = std::move(*found);
    return false;
  }
  Row& row = std::get<Row>(result);
  if (auto* conversation = std::get_if<text::Conversation>(&row)) {
    *answer = std::move(*conversation);
  } else if (auto* tokens = std::get_if<TokenRow>(&row)) {
    *answer = std::move(*tokens);
  } else {
    *problem = {"an answer without a question", ""};
    return false;
  }
  return true;
}

bool same_message(const text::Message& a, const text::Message& b) {
  return a.role == b.role && a.content == b.content && a.extra == b.extra;
}

/// What both conversations begin with is the prompt and is not learnt, unless all rounds are.
/// False: *problem is set.
bool mark_prompt(bool learns_all_rounds, text::Conversation* chosen, text::Conversation* rejected,
                 RowProblem* problem) {
  auto &a = chosen->messages, &b = rejected->messages;
  size_t common = 0;
  while (common < std::min(a.size(), b.size()) && same_message(a[common], b[common])) ++common;
  if (common == a.size() && common == b.size()) {
    *problem = {kNoDifference, ""};
    return false;
  }
  if (common == a.size() || common == b.size()) {
    *problem = {"one of the two answers goes on where the other ends", ""};
    return false;
  }
  if (a[common].role != "assistant" || b[common].role != "assistant") {
    *problem = {"chosen and rejected answer different questions",
                fmt::format("message {}", common + 1)};
    return false;
  }
  for (size_t i = 0; i < common && !learns_all_rounds; ++i) a[i].train = b[i].train = false;
  return true;
}

/// Only what follows the last question is learnt.
void mark_last_answer(text::Conversation* conversation) {
  auto& messages = conversation->messages;
  size_t begin = messages.size();
  while (begin > 0 && messages[begin - 1].role != "user") --begin;
  for (size_t i = 0; i < begin; ++i) messages[i].train = false;
}

/// A finite number; 0 where the row has none. False: *problem is set.
bool read_margin(const Json& row, const std::string& column, float* margin, RowProblem* problem) {
  const Json* value = column.empty() ? nullptr : find_value(row, column);
  if (!value) return true;
  if (!value->is_number() || !std::isfinite(value->get<float>())) {
    *problem = wrong_type(column, "a finite number", *value);
    return false;
  }
  *margin = value->get<float>();
  return true;
}

class PairsHandler : public RowHandler {
 public:
  PairsHandler(AnswerSource chosen, AnswerSource rejected, std::string margin,
               bool learns_all_rounds)
      : chosen_(std::move(chosen)),
        rejected_(std::move(rejected)),
        margin_(std::move(margin)),
        learns_all_rounds_(learns_all_rounds) {}

  RowFormat format() const override { return chosen_.handler->format(); }
  SampleKind kind() const override { return SampleKind::kPairs; }
  std::string description() const override {
    std::vector<std::string> answers;
    add_names({chosen_.column, rejected_.column}, &answers);
    if (rejected_.place == AnswerPlace::kInRow) {
      add_names(rejected_.handler->columns_read(), &answers);
      for (const std::string& name : chosen_.handler->columns_read()) std::erase(answers, name);
    }
    add_names({margin_}, &answers);
    return fmt::format("pairs: {}, {}", chosen_.handler->description(), fmt::join(answers, ", "));
  }
  std::vector<std::string> columns_read() const override {
    std::vector<std::string> names = columns_of_source(chosen_);
    add_names(columns_of_source(rejected_), &names);
    add_names({margin_}, &names);
    return names;
  }

 private:
  RowResult read_row(const Json& row) const override {
    if (!row.is_object()) return not_an_object(row);
    PairRow pair;
    RowProblem problem;
    if (!take_answer(read_answer(chosen_, row), &pair.chosen, &problem) ||
        !take_answer(read_answer(rejected_, row), &pair.rejected, &problem) ||
        !read_margin(row, margin_, &pair.margin, &problem)) {
      return problem;
    }
    auto* chosen = std::get_if<text::Conversation>(&pair.chosen);
    auto* rejected = std::get_if<text::Conversation>(&pair.rejected);
    if (chosen && rejected && !mark_prompt(learns_all_rounds_, chosen, rejected, &problem))
      return problem;
    return Row(std::move(pair));
  }

  AnswerSource chosen_, rejected_;
  std::string margin_;
  bool learns_all_rounds_;
};

/// How many bytes two texts have in common at their beginning, whole characters. A space before the
/// difference belongs to the answers.
size_t common_beginning(const std::string& a, const std::string& b) {
  size_t end = 0;
  while (end < std::min(a.size(), b.size()) && a[end] == b[end]) ++end;
  const auto inside = [](const std::string& text, size_t at) {
    return at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80;
  };
  while (end > 0 && (inside(a, end) || inside(b, end))) --end;
  if (end > 0 && a[end - 1] == ' ') --end;
  return end;
}

class TextPairsHandler : public RowHandler {
 public:
  TextPairsHandler(std::string chosen, std::string rejected, std::string margin)
      : chosen_(std::move(chosen)), rejected_(std::move(rejected)), margin_(std::move(margin)) {}

  RowFormat format() const override { return RowFormat::kQueryResponse; }
  SampleKind kind() const override { return SampleKind::kPairs; }
  std::string description() const override {
    return fmt::format("pairs: texts ({}, {}), their common beginning is the prompt", chosen_,
                       rejected_);
  }
  std::vector<std::string> columns_read() const override {
    std::vector<std::string> names{chosen_, rejected_};
    add_names({margin_}, &names);
    return names;
  }

 private:
  RowResult read_row(const Json& row) const override {
    if (!row.is_object()) return not_an_object(row);
    PairRow pair;
    RowProblem problem;
    const std::string* texts[2] = {};
    for (int side = 0; side < 2; ++side) {
      const std::string& column = side == 0 ? chosen_ : rejected_;
      const Json* value = find_value(row, column);
      if (!value) return missing_column(column);
      if (!value->is_string()) return wrong_type(column, "a string", *value);
      texts[side] = &value->get_ref<const std::string&>();
    }
    if (*texts[0] == *texts[1]) return RowProblem{kNoDifference, ""};
    const size_t begin = common_beginning(*texts[0], *texts[1]);
    if (begin == 0) return RowProblem{"chosen and rejected have no beginning in common", ""};
    const auto whole = [&](const std::string& text) {
      text::Conversation conversation;
      conversation.messages.push_back({"user", text.substr(0, begin)});
      conversation.messages.push_back({"assistant", text.substr(begin)});
      return conversation;
    };
    if (texts[0]->size() == begin || texts[1]->size() == begin)
      return RowProblem{"empty answer", texts[0]->size() == begin ? chosen_ : rejected_};
    pair.chosen = whole(*texts[0]);
    pair.rejected = whole(*texts[1]);
    if (!read_margin(row, margin_, &pair.margin, &problem)) return problem;
    return Row(std::move(pair));
  }

  std::string chosen_, rejected_, margin_;
};

class UnpairedHandler : public RowHandler {
 public:
  UnpairedHandler(AnswerSource answer, std::string label, bool learns_all_rounds)
      : answer_(std::move(answer)),
        label_(std::move(label)),
        learns_all_rounds_(learns_all_rounds) {}

  RowFormat format() const override { return answer_.handler->format(); }
  SampleKind kind() const override { return SampleKind::kUnpaired; }
  std::string description() const override {
    std::vector<std::string> names;
    add_names({answer_.column, label_}, &names);
    return fmt::format("liked or not: {}, {}", answer_.handler->description(),
                       fmt::join(names, ", "));
  }
  std::vector<std::string> columns_read() const override {
    std::vector<std::string> names = columns_of_source(answer_);
    add_names({label_}, &names);
    return names;
  }

 private:
  RowResult read_row(const Json& row) const override {
    if (!row.is_object()) return not_an_object(row);
    const Json* label = find_value(row, label_);
    if (!label) return missing_column(label_);
    UnpairedRow result;
    if (label->is_boolean()) {
      result.liked = label->get<bool>();
    } else if (label->is_number() && (*label == 0 || *label == 1)) {
      result.liked = *label == 1;
    } else {
      return wrong_type(label_, "true or false", *label);
    }
    RowProblem problem;
    if (!take_answer(read_answer(answer_, row), &result.answer, &problem)) return problem;
    if (auto* conversation = std::get_if<text::Conversation>(&result.answer);
        conversation && !learns_all_rounds_)
      mark_last_answer(conversation);
    return Row(std::move(result));
  }

  AnswerSource answer_;
  std::string label_;
  bool learns_all_rounds_;
};

class StepsHandler : public RowHandler {
 public:
  explicit StepsHandler(StepColumns columns) : names_(std::move(columns)) {}

  RowFormat format() const override { return RowFormat::kSteps; }
  SampleKind kind() const override { return SampleKind::kSteps; }
  std::string description() const override {
    return fmt::format("judged steps ({})", fmt::join(columns_read(), ","));
  }
  std::vector<std::string> columns_read() const override {
    std::vector<std::string> names;
    add_names({names_.text, names_.steps, names_.values}, &names);
    return names;
  }

 private:
  RowResult read_row(const Json& row) const override {
    if (!row.is_object()) return not_an_object(row);
    StepsRow result;
    RowProblem problem;
    const Json* text = find_value(row, names_.text);
    if (!text) return missing_column(names_.text);
    if (!text->is_string()) return wrong_type(names_.text, "a string", *text);
    result.text = text->get<std::string>();
    const bool is_judged = !names_.values.empty();
    if (is_judged && !read_list(row, names_.values, &result.values, &problem)) return problem;
    if (is_judged && result.values.empty()) return RowProblem{"no step is judged", ""};
    if (names_.steps.empty()) return Row(std::move(result));
    std::vector<Json> steps;
    if (!read_list(row, names_.steps, &steps, &problem)) return problem;
    for (const Json& step : steps) {
      if (!step.is_string()) return wrong_type(names_.steps, "a list of strings", step);
      result.steps.push_back(step.get<std::string>());
    }
    if (is_judged && result.steps.size() != result.values.size()) {
      return RowProblem{kUnequalSteps, fmt::format("{} steps, {} values", result.steps.size(),
                                                   result.values.size())};
    }
    return Row(std::move(result));
  }

  static bool read_list(const Json& row, const std::string& column, std::vector<Json>* items,
                        RowProblem* problem) {
    const Json* value = find_value(row, column);
    if (!value) {
      *problem = missing_column(column);
      return false;
    }
    const auto list = parse_if_text(*value);
    if (!list || !list->is_array()) {
      *problem = wrong_type(column, "a list", list ? *list : *value);
      return false;
    }
    items->assign(list->begin(), list->end());
    return true;
  }

  StepColumns names_;
};

class PromptsHandler : public RowHandler {
 public:
  PromptsHandler(std::shared_ptr<const RowHandler> handler, ReferenceAnswer answer,
                 bool keeps_messages)
      : handler_(std::move(handler)), answer_(std::move(answer)), keeps_messages_(keeps_messages) {}

  RowFormat format() const override { return handler_->format(); }
  SampleKind kind() const override { return SampleKind::kPrompts; }
  std::string description() const override { return "prompts: " + handler_->description(); }
  std::vector<std::string> columns_read() const override { return handler_->columns_read(); }
  std::vector<std::string> text_keys() const override { return handler_->text_keys(); }
  RowResult read_text(const std::string& text) const override {
    RowResult result = handler_->read_text(text);
    if (auto* read = std::get_if<Row>(&result))
      return Row(PromptRow{std::move(std::get<TextRow>(*read)), Json::object()});
    return result;
  }

 private:
  RowResult read_row(const Json& row) const override {
    RowResult result = handler_->read(row);
    if (std::holds_alternative<RowProblem>(result)) return result;
    PromptRow prompt;
    prompt.columns = other_columns(row);
    Row& read = std::get<Row>(result);
    std::string answer;
    if (auto* conversation = std::get_if<text::Conversation>(&read)) {
      auto& messages = conversation->messages;
      if (!messages.empty() && messages.back().role == "assistant") {
        answer = messages.back().content;
        messages.pop_back();
      }
      if (messages.empty() || messages.back().role == "assistant" ||
          messages.back().role == "system") {
        return RowProblem{"no question to be answered", ""};
      }
      if (keeps_messages_) {
        prompt.columns["messages"] = text::messages_json(*conversation);
        if (!conversation->tools.is_null()) prompt.columns["tools"] = conversation->tools;
      }
      prompt.prompt = std::move(*conversation);
    } else if (auto* tokens = std::get_if<TokenRow>(&read)) {
      prompt.prompt = std::move(*tokens);
    } else {
      prompt.prompt = std::move(std::get<TextRow>(read));
    }
    RowProblem problem;
    if (!find_answer(row, &answer, &problem)) return problem;
    if (!answer.empty() && (answer_.is_named || !prompt.columns.contains("labels")))
      prompt.columns["labels"] = std::move(answer);
    return Row(std::move(prompt));
  }

  /// Leaves `answer` as it is where it stands among what the handler reads.
  bool find_answer(const Json& row, std::string* answer, RowProblem* problem) const {
    if (answer_.key.empty()) return true;
    const Json* value = find_value(row, answer_.column);
    const auto object = value ? parse_if_text(*value) : std::nullopt;
    const Json* inner = object && object->is_object() ? find_value(*object, answer_.key) : nullptr;
    if (!inner) {
      *problem = missing_column(answer_.column + "." + answer_.key);
      return false;
    }
    *answer = inner->is_string() ? inner->get<std::string>() : inner->dump();
    return true;
  }

  Json other_columns(const Json& row) const {
    Json columns = Json::object();
    if (!row.is_object()) return columns;
    const std::vector<std::string> read = handler_->columns_read();
    for (const auto& [name, value] : row.items()) {
      const bool is_question =
          name != answer_.column && std::find(read.begin(), read.end(), name) != read.end();
      if (!is_question && !value.is_null()) columns[name] = value;
    }
    return columns;
  }

  std::shared_ptr<const RowHandler> handler_;
  ReferenceAnswer answer_;
  bool keeps_messages_;
};

}  // namespace

std::unique_ptr<RowHandler> make_pairs_handler(AnswerSource chosen, AnswerSource rejected,
                                               std::string margin, bool learns_all_rounds) {
  return std::make_unique<PairsHandler>(std::move(chosen), std::move(rejected), std::move(margin),
                                        learns_all_rounds);
}

std::unique_ptr<RowHandler> make_text_pairs_handler(std::string chosen, std::string rejected,
                                                    std::string margin) {
  return std::make_unique<TextPairsHandler>(std::move(chosen), std::move(rejected),
                                            std::move(margin));
}

std::unique_ptr<RowHandler> make_unpaired_handler(AnswerSource answer, std::string label,
                                                  bool learns_all_rounds) {
  return std::make_unique<UnpairedHandler>(std::move(answer), std::move(label), learns_all_rounds);
}

std::unique_ptr<RowHandler> make_steps_handler(StepColumns columns) {
  return std::make_unique<StepsHandler>(std::move(columns));
}

std::unique_ptr<RowHandler> make_prompts_handler(std::shared_ptr<const RowHandler> handler,
                                                 ReferenceAnswer answer, bool keeps_messages) {
  return std::make_unique<PromptsHandler>(std::move(handler), std::move(answer), keeps_messages);
}

}  // namespace danlu::data
