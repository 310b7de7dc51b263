// grammar/regex.h: regular expressions as ways through an automaton.
#pragma once
#include <string>

#include "grammar/automaton.h"

namespace danlu::grammar {

enum class RegexUse {
  kWhole,   ///< all of the text matches; ^ and $ say nothing new
  kSearch,  ///< some part does, as JSON Schema's "pattern"; ^ and $ are the text's ends
};

/// Adds the texts that match `pattern`, spelled as `spelling` says. What is known: characters,
/// "." (no line break), [classes], \d \w \s \D \W \S (ASCII), \n \t \r \f \v \0 \xHH \uHHHH
/// \u{H…} \x{H…}, escaped signs, groups (…) (?:…) (?<name>…), |, and * + ? {n} {n,} {n,m}, lazy or
/// not; ^ and $ at the ends of the pattern or of its outermost alternatives. Others (references,
/// lookaround, \b, \p, flags) are errors. Counts are at most 65,536, groups 100 deep. Errors:
/// GrammarError naming the place in the pattern.
void add_regex(AutomatonBuilder& builder, State from, State to, const std::string& pattern,
               RegexUse use, Spelling spelling);

}  // namespace danlu::grammar
