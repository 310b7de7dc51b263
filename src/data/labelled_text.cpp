#include "data/labelled_text.h"

#include <fmt/format.h>

#include <cmath>
#include <variant>

#include "data/formats/columns.h"
#include "text/judged_text.h"

namespace danlu::data {
namespace {

std::string shown_label(const Json& label) {
  return label.dump(-1, ' ', false, Json::error_handler_t::replace);
}

/// nullopt: no class of `labels`.
std::optional<int64_t> class_of_label(const Json& label, int64_t labels) {
  int64_t number = -1;
  if (label.is_boolean()) {
    number = label.get<bool>() ? 1 : 0;
  } else if (label.is_number()) {
    const double value = label.get<double>();
    if (value == std::floor(value) && value >= 0 && value < static_cast<double>(labels))
      number = static_cast<int64_t>(value);
  }
  if (number < 0 || number >= labels) return std::nullopt;
  return number;
}

std::optional<std::vector<float>> numbers_of(const Json& label, int64_t labels) {
  const Json list = label.is_array() ? label : Json::array({label});
  std::vector<float> numbers;
  for (const Json& value : list) {
    if (!value.is_number() || !std::isfinite(value.get<float>())) return std::nullopt;
    numbers.push_back(value.get<float>());
  }
  if (std::ssize(numbers) != labels) return std::nullopt;
  return numbers;
}

std::optional<std::vector<float>> classes_of(const Json& label, int64_t labels) {
  if (!label.is_array()) return std::nullopt;
  std::vector<float> numbers(static_cast<size_t>(labels), 0.0F);
  for (const Json& value : label) {
    const auto number = class_of_label(value, labels);
    if (!number) return std::nullopt;
    numbers[static_cast<size_t>(*number)] = 1;
  }
  return numbers;
}

}  // namespace

std::optional<std::vector<float>> label_numbers(const Json& given, const LabelForm& form,
                                                std::string* problem) {
  const Json label = parse_if_text(given).value_or(given);
  std::optional<std::vector<float>> numbers;
  std::string wanted;
  switch (form.kind) {
    case LabelForm::Kind::kClass:
      if (const auto number = class_of_label(label, form.labels))
        numbers = {static_cast<float>(*number)};
      wanted = fmt::format("a class from 0 to {}", form.labels - 1);
      break;
    case LabelForm::Kind::kClasses:
      numbers = classes_of(label, form.labels);
      wanted = fmt::format("a list of classes from 0 to {}", form.labels - 1);
      break;
    case LabelForm::Kind::kNumbers:
      numbers = numbers_of(label, form.labels);
      wanted = form.labels == 1 ? "a number" : fmt::format("{} numbers", form.labels);
      break;
  }
  if (!numbers) *problem = fmt::format("got {}, not {}", shown_label(given), wanted);
  return numbers;
}

std::vector<int32_t> ids_of_text(const LabelledRow& row, const text::Tokenizer* tokenizer,
                                 const text::ChatEncoder* encoder) {
  std::vector<int32_t> ids;
  if (const auto* tokens = std::get_if<TokenRow>(&row.text)) {
    ids = tokens->ids;
  } else if (const auto* plain = std::get_if<TextRow>(&row.text)) {
    tokenizer->encode_append(plain->texts[0], true, ids);
  } else {
    ids = text::judged_ids(std::get<text::Conversation>(row.text), tokenizer, encoder);
  }
  return ids;
}

}  // namespace danlu::data
