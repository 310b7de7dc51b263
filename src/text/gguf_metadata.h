// text/gguf_metadata.h: a tokenizer's keys in a GGUF file.
#pragma once
#include <optional>
#include <string>

#include "base/gguf_format.h"
#include "text/gguf_vocabulary.h"

namespace danlu::text {

void append_vocabulary(const GgufVocabulary& vocabulary, gguf::Metadata& metadata);

/// nullopt: the file holds no tokenizer. Where llama.cpp has defaults (what is put around a text,
/// an unnamed pre-tokenizer), they are filled in. Errors: ModelError naming `origin` and the key:
/// lists of other lengths or types, a kind of tokenizer that is not read.
std::optional<GgufVocabulary> vocabulary_in(const gguf::Metadata& metadata,
                                            const std::string& origin);

/// Tokens and their types alone, of tokenizers of any kind; no tokens: the file holds none.
GgufVocabulary token_list_in(const gguf::Metadata& metadata, const std::string& origin);

}  // namespace danlu::text
