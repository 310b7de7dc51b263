// text/jinja/filters.h: the filters templates can use, by name.
#pragma once
#include <string_view>

#include "text/jinja/ast.h"

namespace danlu::text::jinja {

/// nullptr if there is no such filter.
FilterFunction find_filter(std::string_view name);

// The two halves of the table.
FilterFunction find_text_filter(std::string_view name);
FilterFunction find_sequence_filter(std::string_view name);

/// json.dumps(value, ensure_ascii=ascii, indent=…): what `tojson` prints. indent < 0: one line.
/// Errors: EvalError for values JSON does not know; LimitError beyond about max_bytes.
std::string to_json_text(const Value& value, int indent, bool ascii = false, bool sort_keys = false,
                         std::string_view item_separator = "",
                         std::string_view key_separator = ": ",
                         size_t max_bytes = std::string::npos);

}  // namespace danlu::text::jinja
