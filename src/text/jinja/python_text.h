// text/jinja/python_text.h: Python's rules for text: code points, white space, case, float and str
// repr.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace danlu::text::jinja {

/// repr(float): the shortest text that reads back as the same number; 1e16 and up use an exponent.
std::string float_repr(double value);
/// repr(str), with the quote Python would choose.
void append_string_repr(std::string_view text, std::string& out);

/// Number of code points. Bytes that are not UTF-8 count one each.
size_t code_point_count(std::string_view text);
/// Byte offset where each code point starts, and text.size() at the end.
std::vector<size_t> code_point_offsets(std::string_view text);
/// Where the code point of this index (from 0) starts; text.size() if there are not as many.
size_t byte_offset(std::string_view text, int64_t index);
bool is_ascii(std::string_view text);

/// str.isspace() of one code point: what strip(), trim and split() remove.
bool is_python_space(char32_t c);
std::string_view strip(std::string_view text, bool left = true, bool right = true);
/// Removes any of the code points in `characters`.
std::string_view strip(std::string_view text, std::string_view characters, bool left, bool right);

/// Bytes that changing the case makes of one at the most: U+0250 takes two and becomes three.
inline constexpr size_t kMaxCaseGrowth = 2;
std::string to_upper(std::string_view text);
std::string to_lower(std::string_view text);
std::string to_title(std::string_view text);  ///< str.title()
std::string jinja_title(
    std::string_view text);  ///< the `title` filter, which only splits at -({[< and space
std::string to_capitalized(std::string_view text);
/// All cased characters are upper (lower) and there is at least one.
bool is_upper(std::string_view text);
bool is_lower(std::string_view text);
bool is_alpha(std::string_view text);
bool is_digit(std::string_view text);

std::string replace_all(std::string_view text, std::string_view from, std::string_view to,
                        int64_t limit = -1);

/// Decodes the code point at `position` and moves past it; a broken byte gives U+FFFD and moves by
/// one.
char32_t next_code_point(std::string_view text, size_t& position);
void append_utf8(char32_t c, std::string& out);

}  // namespace danlu::text::jinja
