// eval/needle/sentences.h: where a text may be cut without cutting a sentence.
#pragma once
#include <cstddef>
#include <string_view>
#include <vector>

namespace danlu::eval {

/// Ends of the sentences of valid UTF-8 `text`, ascending, the last at its end. A sentence ends
/// after . ! ? and closing quotes where white space or the text's end follows; after 。！？； and
/// closing quotes; and after a line. White space after it belongs to it up to the last line end,
/// other spaces to the next one. One of more than `most_characters` characters is cut, at a space
/// where it has one.
std::vector<size_t> sentence_ends(std::string_view text, size_t most_characters = 400);

}  // namespace danlu::eval
