// Alpaca and query/response rows: one question and answer, with earlier turns in `history`.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/message.h"
#include "data/formats/handlers.h"

namespace danlu::data {
namespace {

class PairHandler : public RowHandler {
 public:
  PairHandler(RowFormat format, PairColumns columns)
      : format_(format), names_(std::move(columns)) {}

  RowFormat format() const override { return format_; }

  std::string description() const override {
    std::vector<std::string> names = columns_read();
    std::erase_if(names, [&](const std::string& name) { return names_.unseen.contains(name); });
    return fmt::format("{} ({})", format_ == RowFormat::kAlpaca ? "alpaca" : "query/response",
                       fmt::join(names, ","));
  }
  std::vector<std::string> columns_read() const override {
    std::vector<std::string> names{names_.prompt, names_.query,   names_.response,
                                   names_.system, names_.history, names_.tools};
    std::erase(names, "");
    return names;
  }

 private:
  RowResult read_row(const Json& row) const override {
    if (!row.is_object())
      return RowProblem{"row is not an object", fmt::format("got {}", kind_of(row))};
    RowProblem problem;
    static const std::string kNothing;
    const std::string *prompt = &kNothing, *query = &kNothing, *response = &kNothing,
                      *system = &kNothing;
    // An answer that a reward reads may be anything.
    const Json* const answer = names_.answers_optional ? find_value(row, names_.response) : nullptr;
    const bool judged = answer && !answer->is_string();
    if (!find_text(row, names_.prompt, &prompt, &problem) ||
        !find_text(row, names_.query, &query, &problem) ||
        !find_text(row, judged ? "" : names_.response, &response, &problem) ||
        !find_text(row, names_.system, &system, &problem)) {
      return problem;
    }
    if (!names_.answers_optional && !find_value(row, names_.response))
      return missing_column(names_.response);
    text::Conversation conversation;
    if (!read_tools(row, names_.tools, &conversation.tools, &problem)) return problem;
    auto& messages = conversation.messages;
    messages.reserve(3);
    if (!system->empty()) messages.push_back({"system", *system});
    if (!add_history(row, &messages, &problem)) return problem;
    if (prompt->empty() && query->empty()) return RowProblem{"empty question", ""};
    if (response->empty() && !names_.answers_optional) return RowProblem{"empty answer", ""};
    text::Message& question = messages.emplace_back();
    question.role = "user";
    question.content.reserve(prompt->size() + 1 + query->size());
    question.content += *prompt;
    if (!prompt->empty() && !query->empty()) question.content += '\n';
    question.content += *query;
    if (format_ == RowFormat::kAlpaca) {
      // Stanford Alpaca's prompts treat the two parts differently; other templates read the
      // content.
      auto& parts = question.extra.get_ref<Json::object_t&>();
      parts.reserve(2);
      parts.emplace_back("instruction", *prompt);
      parts.emplace_back("input", *query);
    }
    if (!response->empty()) messages.push_back({"assistant", *response});
    return Row(std::move(conversation));
  }

  /// Leaves `text` as it is where the row has none.
  static bool find_text(const Json& row, const std::string& column, const std::string** text,
                        RowProblem* problem) {
    const Json* value = column.empty() ? nullptr : find_value(row, column);
    if (!value) return true;
    if (!value->is_string()) {
      *problem = wrong_type(column, "a string", *value);
      return false;
    }
    *text = &value->get_ref<const std::string&>();
    return true;
  }

  bool add_history(const Json& row, std::vector<text::Message>* messages,
                   RowProblem* problem) const {
    const Json* value = names_.history.empty() ? nullptr : find_value(row, names_.history);
    if (!value || (value->is_string() && value->get_ref<const std::string&>().empty())) return true;
    const auto history = parse_if_text(*value);
    if (!history || !history->is_array()) {
      *problem = wrong_type(names_.history, "a list of [question, answer] pairs",
                            history ? *history : *value);
      return false;
    }
    for (const Json& turn : *history) {
      if (!turn.is_array() || turn.size() != 2 || !turn[0].is_string() || !turn[1].is_string()) {
        *problem = {
            fmt::format("column \"{}\" is not a list of [question, answer] pairs", names_.history),
            fmt::format("got {}", turn.dump().substr(0, 80))};
        return false;
      }
      messages->push_back({"user", turn[0].get<std::string>()});
      messages->push_back({"assistant", turn[1].get<std::string>()});
    }
    return true;
  }

  RowFormat format_;
  PairColumns names_;
};

}  // namespace

std::unique_ptr<RowHandler> make_pair_handler(RowFormat format, PairColumns columns) {
  return std::make_unique<PairHandler>(format, std::move(columns));
}

}  // namespace danlu::data
