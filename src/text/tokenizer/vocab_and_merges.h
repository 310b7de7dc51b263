// text/tokenizer/vocab_and_merges.h: what vocab.json and merges.txt mean, the form before
// tokenizer.json.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "text/tokenizer/companions.h"

namespace danlu::text {

/// The two tokens of a merge written as one string, as views into it; nothing unless exactly one
/// space stands in it.
std::optional<std::pair<std::string_view, std::string_view>> split_merge(std::string_view line);

/// merges.txt, most important first, as views into `text`. Errors: ModelError naming origin and
/// line.
std::vector<std::pair<std::string_view, std::string_view>> parse_merges(std::string_view text,
                                                                        const std::string& origin);

/// The parts of a tokenizer.json that means the same as the two files beside `companions`:
/// pre_tokenizer, decoder, perhaps normalizer.
Json parts_of_vocab_and_merges(const Companions& companions);

}  // namespace danlu::text
