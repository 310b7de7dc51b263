// eval/results/wide_text.h: text in columns of a terminal, where an East Asian character takes two.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace danlu::eval {

/// Columns that a text takes.
size_t display_width(std::string_view text);
/// As much of it as `width` columns hold, with an ellipsis if something is left out.
std::string cut_to_width(std::string_view text, size_t width);
/// A table in Markdown whose columns are as wide as their widest cell, three at the least.
/// `is_right`: which columns end at the same place. REQUIRES: rows[0] is the head; all are of the
/// same length.
std::string markdown_table(const std::vector<std::vector<std::string>>& rows,
                           const std::vector<bool>& is_right);

}  // namespace danlu::eval
