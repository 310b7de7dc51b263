// Plain text: pre-training documents.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/message.h"
#include "data/formats/handlers.h"

namespace danlu::data {
namespace {

class TextHandler : public RowHandler {
 public:
  explicit TextHandler(std::vector<std::string> columns) : names_(std::move(columns)) {}

  RowFormat format() const override { return RowFormat::kText; }
  std::vector<std::string> text_keys() const override { return names_; }

  std::string description() const override {
    return fmt::format("text ({})", fmt::join(names_, ","));
  }

  RowResult read_text(const std::string& text) const override {
    if (names_.size() != 1) {
      return RowProblem{fmt::format("column \"{}\" is missing", names_.back()), "plain text"};
    }
    if (text.empty()) return RowProblem{kBlankLine, ""};
    return Row(TextRow{{text}});
  }

  std::vector<std::string> columns_read() const override { return names_; }

 private:
  RowResult read_row(const Json& row) const override {
    if (row.is_string() && row.get_ref<const std::string&>().empty())
      return RowProblem{"empty text", ""};
    if (row.is_string()) return read_text(row.get<std::string>());
    if (!row.is_object())
      return RowProblem{"row is not an object", fmt::format("got {}", kind_of(row))};
    TextRow result;
    bool has_text = false;
    for (const std::string& column : names_) {
      const Json* value = find_value(row, column);
      if (!value) return missing_column(column);
      if (!value->is_string()) return wrong_type(column, "a string", *value);
      result.texts.push_back(value->get<std::string>());
      has_text |= !result.texts.back().empty();
    }
    if (!has_text) return RowProblem{"empty text", ""};
    return Row(std::move(result));
  }

  std::vector<std::string> names_;
};

}  // namespace

std::unique_ptr<RowHandler> make_text_handler(std::vector<std::string> columns) {
  return std::make_unique<TextHandler>(std::move(columns));
}

}  // namespace danlu::data
