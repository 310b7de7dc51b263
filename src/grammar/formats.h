// grammar/formats.h: JSON Schema's formats of strings, as patterns.
#pragma once
#include <optional>
#include <string>
#include <string_view>

namespace danlu::grammar {

/// The pattern (grammar/regex.h, whole) of a format: date-time date time duration email hostname
/// ipv4 ipv6 uuid uri. RFC 3339's dates are those of the calendar; a leap second is none.
std::optional<std::string> pattern_of_format(std::string_view format);
/// Their names, for errors.
std::string format_names();

}  // namespace danlu::grammar
