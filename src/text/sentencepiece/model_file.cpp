#include "text/sentencepiece/model_file.h"

#include <fmt/format.h>

#include <cstring>
#include <functional>
#include <unordered_set>

#include "base/error.h"
#include "text/tokenizer/utf8.h"

namespace danlu::text {
namespace {

/// A message of the protocol buffer wire format, field by field.
class WireReader {
 public:
  WireReader(std::string_view bytes, const std::string& origin) : bytes_(bytes), origin_(origin) {}

  /// `on_field(number, value, bytes)`: value of a number, bytes of a string or message.
  void each(const std::function<void(uint64_t, uint64_t, std::string_view)>& on_field) {
    while (at_ < bytes_.size()) {
      const uint64_t tag = varint();
      switch (tag & 7) {
        case 0:
          on_field(tag >> 3, varint(), {});
          break;
        case 1:
          on_field(tag >> 3, fixed(8), {});
          break;
        case 2: {
          const uint64_t size = varint();
          on_field(tag >> 3, 0, take(size));
          break;
        }
        case 5:
          on_field(tag >> 3, fixed(4), {});
          break;
        default:
          fail();
      }
    }
  }

 private:
  [[noreturn]] void fail() const {
    throw ModelError(tr("{}: not a SentencePiece model", origin_),
                     tr("the file may be cut off: copy or download it again"));
  }
  std::string_view take(uint64_t size) {
    if (size > bytes_.size() - at_) fail();
    at_ += size;
    return bytes_.substr(at_ - size, size);
  }
  uint64_t fixed(size_t size) {
    uint64_t value = 0;
    std::memcpy(&value, take(size).data(), size);
    return value;
  }
  uint64_t varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const auto byte = static_cast<unsigned char>(take(1)[0]);
      value |= static_cast<uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) return value;
    }
    fail();
  }

  std::string_view bytes_;
  const std::string& origin_;
  size_t at_ = 0;
};

SentencePiecePart read_piece(std::string_view message, const std::string& origin) {
  SentencePiecePart piece;
  WireReader(message, origin).each([&](uint64_t field, uint64_t value, std::string_view bytes) {
    if (field == 1) piece.piece = bytes;
    if (field == 2) {
      const auto bits = static_cast<uint32_t>(value);
      std::memcpy(&piece.score, &bits, sizeof bits);
    }
    if (field == 3) piece.type = static_cast<PieceType>(value);
  });
  return piece;
}

void read_trainer(std::string_view message, const std::string& origin, SentencePieceFile& file) {
  WireReader(message, origin).each([&](uint64_t field, uint64_t value, std::string_view bytes) {
    if (field == 3) file.type = static_cast<SegmenterType>(value);
    if (field == 24) file.treat_whitespace_as_suffix = value != 0;
    if (field == 35) file.byte_fallback = value != 0;
    if (field == 44) file.unk_surface = bytes;
    // An empty name is none: the usual one counts.
    if (bytes.empty()) return;
    if (field == 45) file.unk_piece = bytes;
    if (field == 46) file.bos_piece = bytes;
    if (field == 47) file.eos_piece = bytes;
    if (field == 48) file.pad_piece = bytes;
  });
}

void read_rules(std::string_view message, const std::string& origin, SentencePieceRules& rules) {
  WireReader(message, origin).each([&](uint64_t field, uint64_t value, std::string_view bytes) {
    if (field == 2) rules.character_map = bytes;
    if (field == 3) rules.add_dummy_prefix = value != 0;
    if (field == 4) rules.remove_extra_whitespaces = value != 0;
    if (field == 5) rules.escape_whitespaces = value != 0;
  });
}

void check_byte_piece(const SentencePiecePart& piece, const SentencePieceFile& file,
                      const std::string& origin, std::vector<bool>& seen) {
  if (!file.byte_fallback)
    throw ModelError(tr("{}: the piece \"{}\" stands for a byte, in a model without byte fallback",
                        origin, piece.piece));
  for (size_t byte = 0; byte < 256; ++byte) {
    if (piece.piece != fmt::format("<0x{:02X}>", byte)) continue;
    seen[byte] = true;
    return;
  }
  throw ModelError(
      tr("{}: a piece that stands for a byte must be written as <0x00> to <0xFF>, got \"{}\"",
         origin, piece.piece));
}

}  // namespace

// Field numbers are those of sentencepiece_model.proto.
SentencePieceFile read_sentencepiece_file(std::string_view bytes, const std::string& origin) {
  SentencePieceFile file;
  WireReader(bytes, origin).each([&](uint64_t field, uint64_t, std::string_view message) {
    if (field == 1) file.pieces.push_back(read_piece(message, origin));
    if (field == 2) read_trainer(message, origin, file);
    if (field == 3) read_rules(message, origin, file.rules);
    if (field == 5) {
      SentencePieceRules rules;
      read_rules(message, origin, rules);
      file.denormalizer_map = rules.character_map;
    }
  });
  return file;
}

void check_sentencepiece_file(const SentencePieceFile& file, const std::string& origin) {
  std::unordered_set<std::string_view> known;
  known.reserve(file.pieces.size());
  std::vector<bool> bytes(256, false);
  size_t num_unknown = 0;
  for (const SentencePiecePart& piece : file.pieces) {
    if (piece.piece.empty()) throw ModelError(tr("{}: a piece is empty", origin));
    if (!is_valid_utf8(piece.piece))
      throw ModelError(tr("{}: piece {} is not UTF-8", origin, known.size()));
    if (!known.insert(piece.piece).second)
      throw ModelError(tr("{}: the piece \"{}\" is given twice", origin, piece.piece));
    if (piece.type == PieceType::kUnknown) ++num_unknown;
    if (piece.type == PieceType::kByte) check_byte_piece(piece, file, origin, bytes);
    if (piece.type < PieceType::kNormal || piece.type > PieceType::kByte)
      throw ModelError(tr("{}: the piece \"{}\" has the type {}, which is none", origin,
                          piece.piece, static_cast<int32_t>(piece.type)));
  }
  if (num_unknown != 1)
    throw ModelError(
        tr("{}: a SentencePiece model has one unknown piece, this has {}", origin, num_unknown));
  if (file.type < SegmenterType::kUnigram || file.type > SegmenterType::kChar)
    throw ModelError(tr("{}: the model type {} is none of SentencePiece's", origin,
                        static_cast<int32_t>(file.type)));
  for (size_t byte = 0; file.byte_fallback && byte < 256; ++byte) {
    if (!bytes[byte])
      throw ModelError(tr("{}: byte {} is no piece, in a model with byte fallback", origin, byte));
  }
}

}  // namespace danlu::text
