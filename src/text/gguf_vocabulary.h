// text/gguf_vocabulary.h: a tokenizer as GGUF files store it and llama.cpp reads it.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"

namespace danlu::text {

/// Values are the format's.
enum class GgufTokenType : int32_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,      ///< special: hidden in answers
  kUserDefined = 4,  ///< added, but ordinary text
  kUnused = 5,
  kByte = 6,  ///< "<0x0A>"
};

struct GgufVocabulary {
  std::string model;  ///< "gpt2": byte-level BPE; "llama": SentencePiece
  std::string pre;    ///< llama.cpp's name of the way text is cut before BPE
  std::vector<std::string> tokens;
  std::vector<GgufTokenType> types;  ///< as many as tokens
  std::vector<float> scores;         ///< as many as tokens for "llama"; else empty
  /// "left right" by rank, for "gpt2"; for "llama" those of a tokenizer.json, which llama.cpp does
  /// not read.
  std::vector<std::string> merges;
  std::optional<int64_t> bos, eos, unk, pad;
  bool add_bos = false, add_eos = false;  ///< what encoding puts around a text
  std::optional<bool> add_space_prefix;   ///< "llama": a space is put before a text
  std::string chat_template;              ///< "" if there is none
  /// Others by name.
  std::vector<std::pair<std::string, std::string>> named_templates;
  /// What llama.cpp has no words for, so that the file read back gives the ids of the files it was
  /// made from: "tokenizer_json" without vocabulary and merges, or parts of "tokenizer_config";
  /// "pieces" where further tokens follow from the class of the tokenizer alone; "tokens" that are
  /// written otherwise, by id.
  /// Null in others' files.
  Json own;
  std::vector<std::string> notes;  ///< where llama.cpp may give other ids
  size_t pieces = 0;               ///< of a tokenizer.model; other tokens are numbered behind them
};

/// A token of "llama" with spaces for its ▁, as llama.cpp has those of kUserDefined.
std::string with_spaces(std::string token);

/// The tokenizer that Tokenizer::load finds in `directory`, with `vocab_size` tokens: ids that the
/// model has rows for and the tokenizer no token become "[PAD<id>]", unused.
/// Errors: as Tokenizer::load; ModelError where llama.cpp would cut or number texts differently
/// (unknown pre-tokenizer, Unigram models, normalizers …), naming what; for a tokenizer larger than
/// vocab_size.
GgufVocabulary read_gguf_vocabulary(const std::filesystem::path& directory, int64_t vocab_size);

}  // namespace danlu::text
