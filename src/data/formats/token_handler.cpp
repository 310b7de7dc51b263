// Rows that were tokenised before they came here.
#include <fmt/format.h>

#include <limits>

#include "base/ignore_label.h"
#include "base/message.h"
#include "data/formats/handlers.h"

namespace danlu::data {
namespace {

class TokenHandler : public RowHandler {
 public:
  explicit TokenHandler(TokenColumns columns) : names_(std::move(columns)) {}

  RowFormat format() const override { return RowFormat::kTokens; }
  std::string description() const override {
    return fmt::format("tokens ({}; optional {},{})", names_.ids, names_.labels,
                       names_.attention_mask);
  }
  std::vector<std::string> columns_read() const override {
    return {names_.ids, names_.labels, names_.attention_mask};
  }

 private:
  RowResult read_row(const Json& row) const override {
    if (!row.is_object())
      return RowProblem{"row is not an object", fmt::format("got {}", kind_of(row))};
    RowProblem problem;
    TokenRow result;
    std::vector<int32_t> mask;
    if (!find_value(row, names_.ids)) return missing_column(names_.ids);
    if (!integers(row, names_.ids, &result.ids, &problem) ||
        !integers(row, names_.labels, &result.labels, &problem) ||
        !integers(row, names_.attention_mask, &mask, &problem)) {
      return problem;
    }
    if (result.ids.empty()) return RowProblem{"no tokens", ""};
    if (!find_value(row, names_.labels)) {
      result.labels = result.ids;
      if (names_.answers_optional) result.labels.assign(result.ids.size(), kIgnoreLabel);
    }
    if (mask.empty()) mask.assign(result.ids.size(), 1);
    for (const auto& [name, size] : {std::pair{names_.labels, result.labels.size()},
                                     std::pair{names_.attention_mask, mask.size()}}) {
      if (size != result.ids.size()) {
        return RowProblem{fmt::format("column \"{}\" is not as long as \"{}\"", name, names_.ids),
                          fmt::format("{} and {}", size, result.ids.size())};
      }
    }
    for (const int32_t id : result.ids) {
      if (id < 0) return RowProblem{"negative token id", fmt::format("got {}", id)};
    }
    drop_padding(mask, &result);
    if (result.ids.empty()) return RowProblem{"no tokens", "all of them are padding"};
    return Row(std::move(result));
  }

  static void drop_padding(const std::vector<int32_t>& mask, TokenRow* row) {
    size_t kept = 0;
    for (size_t i = 0; i < mask.size(); ++i) {
      if (mask[i] == 0) continue;
      row->ids[kept] = row->ids[i];
      row->labels[kept++] = row->labels[i];
    }
    row->ids.resize(kept);
    row->labels.resize(kept);
  }

  static bool integers(const Json& row, const std::string& column, std::vector<int32_t>* values,
                       RowProblem* problem) {
    const Json* value = find_value(row, column);
    if (!value) return true;
    const auto list = parse_if_text(*value);
    if (!list || !list->is_array()) {
      *problem = wrong_type(column, "a list of integers", list ? *list : *value);
      return false;
    }
    values->reserve(list->size());
    for (const Json& item : *list) {
      const int64_t number =
          item.is_number_integer() ? item.get<int64_t>() : std::numeric_limits<int64_t>::max();
      if (number < std::numeric_limits<int32_t>::min() ||
          number > std::numeric_limits<int32_t>::max()) {
        *problem = {fmt::format("column \"{}\" is not a list of integers", column),
                    fmt::format("got {}", item.dump().substr(0, 40))};
        return false;
      }
      values->push_back(static_cast<int32_t>(number));
    }
    return true;
  }

  TokenColumns names_;
};

}  // namespace

std::unique_ptr<RowHandler> make_token_handler(TokenColumns columns) {
  return std::make_unique<TokenHandler>(std::move(columns));
}

}  // namespace danlu::data
