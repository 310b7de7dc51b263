// text/gguf_pre_tokenizers.h: what llama.cpp's names of pre-tokenizers mean.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "text/merge_order.h"

namespace danlu::text {

/// How byte-level BPE of a name works.
struct GgufPreTokenizer {
  Json pre_tokenizer;          ///< as tokenizer.json spells it
  bool ignore_merges = false;  ///< whole words of the vocabulary skip the merges
  bool nfc = false;            ///< the models of this name normalise texts; llama.cpp does not
  bool add_bos = false;        ///< where the file does not say
};

/// nullopt: no such name is known.
/// Source: llama.cpp, src/llama-vocab.cpp; where it approximates a pattern, the models' own
/// tokenizer.json.
std::optional<GgufPreTokenizer> gguf_pre_tokenizer(std::string_view name);

/// The name under which llama.cpp cuts by these regular expressions, one after the other, and joins
/// by merges; "" if it has none. For those that no model of a name of their own has.
std::string gguf_name_of_cuts(const std::vector<std::string>& regexes, bool ignore_merges,
                              const Merges& merges);

/// "bloom, command-r, …", sorted.
std::string known_gguf_pre_tokenizers();

}  // namespace danlu::text
