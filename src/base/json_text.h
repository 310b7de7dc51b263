// base/json_text.h: questions about JSON text that comes before, or in place of, a value.
#pragma once
#include <cstddef>
#include <optional>
#include <string_view>

#include "base/json.h"

namespace danlu {

/// Arrays and objects inside one another; parse_json (base/json.h) refuses more. Copying, comparing
/// and printing a value recurse, in the library and in our own walks, at up to some kilobytes of
/// stack a level: this many fit the smallest stack in use, and no real file has a tenth of them.
/// (Python's json stops near 1,000.)
inline constexpr size_t kMaxJsonDepth = 512;

/// Whether `text` opens more brackets than that. Its syntax is not looked at.
bool nests_too_deep(std::string_view text);

/// Whether an object of `text` has more than `most` members. A value looks for a key among those
/// before it, so the time that a wide object takes grows with the square of its members. Syntax is
/// not looked at.
bool has_wider_object(std::string_view text, size_t most);

/// parse_json of text that may be something else: a cell, the arguments of a function call. Nothing
/// where parse_json would throw.
std::optional<Json> try_parse_json(std::string_view text);

/// Whether parse_json takes `text`. Builds no value.
bool is_json(std::string_view text);

/// The first integer in JSON text that 64 bits do not hold (beyond -2^63 … 2^64 - 1); "" if there
/// is none. As a value it would be a floating point number with other digits; Python keeps them
/// all.
std::string_view wide_integer_in(std::string_view json_text);

}  // namespace danlu
