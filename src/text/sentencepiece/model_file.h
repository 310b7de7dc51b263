// text/sentencepiece/model_file.h: what a SentencePiece model (tokenizer.model) says.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace danlu::text {

/// The numbers are those of the file.
enum class PieceType : int32_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6
};
enum class SegmenterType : int32_t { kUnigram = 1, kBpe = 2, kWord = 3, kChar = 4 };

struct SentencePiecePart {
  std::string piece;
  float score = 0;
  PieceType type = PieceType::kNormal;
};

/// What is done to a text before it is cut into pieces.
struct SentencePieceRules {
  std::string character_map;  ///< precompiled; "": characters stay as they are
  bool add_dummy_prefix = true, remove_extra_whitespaces = true, escape_whitespaces = true;
};

struct SentencePieceFile {
  std::vector<SentencePiecePart> pieces;  ///< by id
  SegmenterType type = SegmenterType::kUnigram;
  bool treat_whitespace_as_suffix = false, byte_fallback = false;
  std::string unk_surface = " \xE2\x81\x87 ";
  std::string unk_piece = "<unk>", bos_piece = "<s>", eos_piece = "</s>", pad_piece = "<pad>";
  SentencePieceRules rules;
  std::string denormalizer_map;  ///< what decoded text goes through; "": nothing
};

/// Reads the file's fields; what they say together is not judged. Errors: ModelError naming
/// `origin` if the bytes are cut off or none of a SentencePiece model.
SentencePieceFile read_sentencepiece_file(std::string_view bytes, const std::string& origin);

/// Errors: ModelError naming `origin` and the piece if no text could be encoded by this model as
/// the file means it: no or two unknown pieces, empty, repeated or ill-formed ones, bytes that are
/// missing or out of place.
void check_sentencepiece_file(const SentencePieceFile& file, const std::string& origin);

}  // namespace danlu::text
