// data/readers/text_encoding.h: telling UTF-8, the one encoding that is read, from the others.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace danlu::data {

/// Looks at the first bytes of a text file (unpacked, if it is compressed). Errors: DataError if it
/// is UTF-16 or UTF-32; those of ByteStream.
void refuse_wide_text(const std::filesystem::path& path);

/// How many bytes the character at text[at] takes; 0 if none begins there or it is cut off.
/// REQUIRES: at < text.size().
size_t utf8_length(std::string_view text, size_t at);

/// Where the first byte that is not UTF-8 stands; npos if there is none. Overlong forms and
/// surrogates are not UTF-8.
size_t find_invalid_utf8(std::string_view text);

/// Throws DataError if `text`, which is line `line` (from 1) of `path`, is not UTF-8: file:line:
/// column in bytes, and the command that converts the file.
void require_utf8_line(const std::filesystem::path& path, int64_t line, std::string_view text);

/// The same of what was typed. Errors: UsageError naming `argument`, the byte and its place.
void require_utf8_argument(const std::string& argument, std::string_view text);

/// The same for every line of a file.
void require_utf8_file(const std::filesystem::path& path);

}  // namespace danlu::data
