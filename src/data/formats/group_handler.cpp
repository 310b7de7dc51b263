// Rows with a text and others that fit it or do not.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "data/formats/columns.h"
#include "data/formats/media.h"
#include "data/formats/preference_handlers.h"

namespace danlu::data {
namespace {

constexpr const char* kMediaColumns[] = {"positive_images", "positive_videos", "positive_audios",
                                         "negative_images", "negative_videos", "negative_audios"};

/// Tables have such columns for all rows, empty where a row has nothing.
bool names_media(const Json& given) {
  const Json value = parse_if_text(given).value_or(given);
  if (value.is_null()) return false;
  if (value.is_string()) return !value.get_ref<const std::string&>().empty();
  return !value.is_array() || std::any_of(value.begin(), value.end(), names_media);
}

bool is_one_message(const Json& value) { return value.is_object(); }

/// A list of messages as a conversation. False: *problem is set.
bool read_messages(const RowHandler& messages, const MessageTags& tags, const Json& list,
                   text::Conversation* conversation, RowProblem* problem) {
  Json whole = Json::object();
  whole[tags.messages] = list;
  RowResult result = messages.read(whole);
  if (auto* found = std::get_if<RowProblem>(&result)) {
    *problem = std::move(*found);
    return false;
  }
  Row& row = std::get<Row>(result);
  if (auto* read = std::get_if<text::Conversation>(&row)) {
    *conversation = std::move(*read);
  } else {
    // A lone answer.
    conversation->messages.push_back({"assistant", std::get<TextRow>(row).texts[0]});
  }
  return true;
}

/// The texts of a column: one (a text, a message or a list of messages), or a list of such.
class GroupHandler : public RowHandler {
 public:
  GroupHandler(GroupColumns columns, MessageTags tags)
      : columns_(std::move(columns)),
        tags_(std::move(tags)),
        messages_(make_messages_handler(RowFormat::kMessages, tags_)) {}

  RowFormat format() const override { return columns_.anchor->format(); }
  SampleKind kind() const override { return SampleKind::kGroups; }
  std::string description() const override {
    std::vector<std::string> names;
    for (const std::string& name : {columns_.positive, columns_.negative, columns_.label})
      if (!name.empty()) names.push_back(name);
    return fmt::format("groups: {}{}{}", columns_.anchor->description(), names.empty() ? "" : ", ",
                       fmt::join(names, ", "));
  }
  std::vector<std::string> columns_read() const override {
    std::vector<std::string> names = columns_.anchor->columns_read();
    for (const std::string& name : {columns_.positive, columns_.negative, columns_.label})
      if (!name.empty()) names.push_back(name);
    return names;
  }
  std::vector<std::string> text_keys() const override { return columns_.anchor->text_keys(); }

 private:
  RowResult read_row(const Json& row) const override {
    if (!row.is_object())
      return RowProblem{"row is not an object", fmt::format("got {}", kind_of(row))};
    for (const char* column : kMediaColumns) {
      const Json* value = find_value(row, column);
      if (value && names_media(*value))
        refuse_media(fmt::format("column \"{}\" holds pictures, video or audio", column));
    }
    GroupRow group;
    RowProblem problem;
    RowResult result = columns_.anchor->read(row);
    if (std::holds_alternative<RowProblem>(result)) return result;
    if (!take_anchor(std::move(std::get<Row>(result)), &group, &problem) ||
        !read_texts(row, columns_.positive, &group.positives, &problem) ||
        !read_texts(row, columns_.negative, &group.negatives, &problem)) {
      return problem;
    }
    if (const Json* label = columns_.label.empty() ? nullptr : find_value(row, columns_.label))
      group.label = *label;
    return Row(std::move(group));
  }

  /// ms-swift's older rows have the positive as the answer to the anchor.
  bool take_anchor(Row row, GroupRow* group, RowProblem* problem) const {
    if (auto* conversation = std::get_if<text::Conversation>(&row)) {
      auto& messages = conversation->messages;
      if (columns_.answer_is_positive) {
        if (messages.empty() || messages.back().role != "assistant") {
          *problem = {"the row has no positive text", "the last message is no answer"};
          return false;
        }
        text::Conversation answer;
        answer.messages.push_back({"user", messages.back().content});
        group->positives.push_back(std::move(answer));
        messages.pop_back();
      }
      const bool is_answered = messages.size() > 1 && messages.back().role == "assistant" &&
                               messages[messages.size() - 2].role == "user";
      if (columns_.leaves_answer_out && is_answered) messages.pop_back();
      group->anchor.text = std::move(*conversation);
    } else if (auto* tokens = std::get_if<TokenRow>(&row)) {
      group->anchor.text = std::move(*tokens);
    } else {
      text::Conversation asked;
      asked.messages.push_back({"user", std::move(std::get<TextRow>(row).texts[0])});
      group->anchor.text = std::move(asked);
    }
    return true;
  }

  /// False: *problem is set.
  bool read_texts(const Json& row, const std::string& column,
                  std::vector<text::Conversation>* texts, RowProblem* problem) const {
    const Json* given = column.empty() ? nullptr : find_value(row, column);
    if (!given) return true;
    Json value = given->is_string() ? parsed_messages(*given) : *given;
    const bool is_one = value.is_string() || is_one_message(value) ||
                        (value.is_array() && !value.empty() && is_one_message(value.front()));
    if (is_one) value = Json::array({std::move(value)});
    if (!value.is_array()) {
      *problem = wrong_type(column, "a list of texts or of lists of messages", value);
      return false;
    }
    for (const Json& item : value) {
      text::Conversation& text = texts->emplace_back();
      if (item.is_string()) {
        text.messages.push_back({"user", item.get<std::string>()});
      } else if (is_one_message(item)) {
        if (!read_messages(*messages_, tags_, Json::array({item}), &text, problem)) return false;
      } else if (item.is_array()) {
        if (!read_messages(*messages_, tags_, item, &text, problem)) return false;
      } else {
        *problem = wrong_type(column, "a list of texts or of lists of messages", item);
        return false;
      }
    }
    return true;
  }

  /// Lists that a table keeps as text; a text that happens to be JSON stays one.
  static Json parsed_messages(const Json& given) {
    const auto parsed = parse_if_text(given);
    const bool holds_list = parsed && parsed->is_array() && !parsed->empty() &&
                            (parsed->front().is_array() || is_one_message(parsed->front()));
    return holds_list ? *parsed : given;
  }

  GroupColumns columns_;
  MessageTags tags_;
  std::unique_ptr<RowHandler> messages_;
};

}  // namespace

std::unique_ptr<RowHandler> make_group_handler(GroupColumns columns, MessageTags tags) {
  return std::make_unique<GroupHandler>(std::move(columns), std::move(tags));
}

}  // namespace danlu::data
