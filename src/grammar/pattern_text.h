// grammar/pattern_text.h: questions about patterns themselves.
#pragma once
#include <string>

#include "grammar/automaton.h"

namespace danlu::grammar {

/// Whether a part of `text` matches, as JSON Schema's "pattern". Errors: as add_regex.
bool matches(const std::string& pattern, const std::string& text);

/// Whether some text has parts that match both; true too where it would take too long to know.
/// Errors: as add_regex.
bool have_common_text(const std::string& a, const std::string& b);

}  // namespace danlu::grammar
