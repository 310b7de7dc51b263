// Rows with a label.
#include <fmt/format.h>

#include <utility>

#include "data/formats/columns.h"
#include "data/formats/preference_handlers.h"

namespace danlu::data {
namespace {

class LabelledHandler : public RowHandler {
 public:
  LabelledHandler(std::shared_ptr<const RowHandler> handler, std::string label)
      : handler_(std::move(handler)), label_(std::move(label)) {}

  RowFormat format() const override { return handler_->format(); }
  SampleKind kind() const override { return SampleKind::kLabelled; }
  std::string description() const override {
    return label_.empty() ? handler_->description()
                          : fmt::format("labelled: {}, {}", handler_->description(), label_);
  }
  std::vector<std::string> columns_read() const override {
    std::vector<std::string> names = handler_->columns_read();
    if (!label_.empty()) names.push_back(label_);
    return names;
  }
  std::vector<std::string> text_keys() const override { return handler_->text_keys(); }
  RowResult read_text(const std::string& text) const override {
    if (!label_.empty()) return missing_column(label_);
    RowResult result = handler_->read_text(text);
    if (auto* read = std::get_if<Row>(&result))
      return Row(LabelledRow{std::move(std::get<TextRow>(*read)), nullptr});
    return result;
  }

 private:
  RowResult read_row(const Json& row) const override {
    LabelledRow labelled;
    if (!label_.empty()) {
      if (!row.is_object())
        return RowProblem{"row is not an object", fmt::format("got {}", kind_of(row))};
      const Json* const label = find_value(row, label_);
      if (!label) return missing_column(label_);
      labelled.label = *label;
    }
    RowResult result = handler_->read(row);
    if (std::holds_alternative<RowProblem>(result)) return result;
    Row& read = std::get<Row>(result);
    if (auto* conversation = std::get_if<text::Conversation>(&read)) {
      labelled.text = std::move(*conversation);
    } else if (auto* tokens = std::get_if<TokenRow>(&read)) {
      labelled.text = std::move(*tokens);
    } else {
      labelled.text = std::move(std::get<TextRow>(read));
    }
    return Row(std::move(labelled));
  }

  std::shared_ptr<const RowHandler> handler_;
  std::string label_;
};

}  // namespace

std::unique_ptr<RowHandler> make_labelled_handler(std::shared_ptr<const RowHandler> handler,
                                                  std::string label) {
  return std::make_unique<LabelledHandler>(std::move(handler), std::move(label));
}

}  // namespace danlu::data
