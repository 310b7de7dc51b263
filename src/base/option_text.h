// base/option_text.h: how the text of one option value is read; shared by flags, files and
// profiles.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/options.h"

namespace danlu::option_text {

/// Leading dashes removed, '-' turned into '_'.
std::string normalise_name(std::string_view spelled);

/// True for options without influence here (ignored or not available): any text is taken.
bool is_inert(const OptionSpec& spec);

/// True if `text` leaves an inert option at what Danlu does anyway: none, null, {}, [] or nothing,
/// and one of its choices, or without choices false or 0, which is how other systems switch things
/// off.
bool is_neutral(const OptionSpec& spec, std::string_view text);

/// true/false for yes/true/t/y/1/on and no/false/f/n/0/off in any case; nothing for other words.
std::optional<bool> parse_bool(std::string_view word);

/// "a,b" -> {a, b}; commas inside {} or [] do not split; a JSON array is taken as one.
std::vector<std::string> split_list(std::string_view text);
/// The canonical text of a list: a JSON array of strings, their bytes as they are (file names need
/// not be UTF-8).
std::string list_text(const std::vector<std::string>& elements);

/// The canonical form of "none" for an option that may be it: a value that is given, and empty.
inline constexpr const char* kNoNumber = "none";

/// The canonical form of `text` for `spec`: 2e8 -> 200000000, Yes -> true, a choice in its own
/// case, a list as a JSON array. Lists are given as list_text or as words with commas. Errors:
/// UsageError "<where>: <rule>, got <text>", where the rule holds the option's range.
std::string canonical(const OptionSpec& spec, const std::string& text, const std::string& where);

/// A canonical text as a JSON value of the option's type.
Json typed_value(const OptionSpec& spec, const std::string& canonical_text);

/// A switch as it was given with what it says, for messages: "--swiglu false", "run.yaml:3: swiglu
/// true", "--no_swiglu". REQUIRES: it has a value.
std::string given_switch(const Options& options, const std::string& name);

}  // namespace danlu::option_text
