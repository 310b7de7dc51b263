// data/formats/row.h: what a row of a data set means, whatever its columns are called.
#pragma once
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "text/conversation.h"

namespace danlu::data {

/// Pre-training texts: one for each text column, in the order of FormatOptions::json_keys.
struct TextRow {
  std::vector<std::string> texts;
};

/// A row that was tokenised before. labels has the length of ids; not shifted; kIgnoreLabel = no
/// loss.
struct TokenRow {
  std::vector<int32_t> ids;
  std::vector<int32_t> labels;
};

using Row = std::variant<TextRow, text::Conversation, TokenRow>;

/// RowProblem::reason of an empty line of a .txt file: it separates texts, and nothing is lost.
inline constexpr const char* kBlankLine = "blank line";

/// Why a row cannot be used.
struct RowProblem {
  std::string reason;  ///< the kind of fault; rows are counted by it
  std::string detail;  ///< what this row has; may be empty
};

using RowResult = std::variant<Row, RowProblem>;

}  // namespace danlu::data
