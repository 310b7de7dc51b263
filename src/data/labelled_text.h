// data/labelled_text.h: texts that are sorted, and what their labels say.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "data/formats/row.h"
#include "data/preprocess_encode.h"
#include "text/conversation.h"
#include "text/tokenizer.h"

namespace danlu::data {

/// A row's label as LabelForm's numbers: kClass: a whole number in [0, labels), or true and false;
/// kClasses: a list of such; kNumbers: a number, or of several labels a list of them. Texts that
/// hold such a value are taken as it. nullopt: it is none, and *problem says what it is.
std::optional<std::vector<float>> label_numbers(const Json& label, const LabelForm& form,
                                                std::string* problem);

/// The tokens that are sorted: a conversation by the template, with its beginning of an answer
/// where it has none; a text as it stands, with the tokenizer's special tokens; tokens as they are.
/// encoder: null for what messages say, but for the system's, as one text. tokenizer: null where
/// rows need none. Errors: DataError if the template cannot render it.
std::vector<int32_t> ids_of_text(const LabelledRow& row, const text::Tokenizer* tokenizer,
                                 const text::ChatEncoder* encoder);

}  // namespace danlu::data
