#include "text/gguf_tokenizer_files.h"

#include <fmt/format.h>

#include <cstring>
#include <functional>

#include "base/error.h"
#include "base/file.h"
#include "text/tokenizer/json_scanner.h"

namespace danlu::text {
namespace {

std::pair<std::string, std::string> pair_of(std::string_view line) {
  const size_t space = line.find(' ');
  if (space == std::string_view::npos) return {std::string(line), ""};
  return {std::string(line.substr(0, space)), std::string(line.substr(space + 1))};
}

void read_merge_pairs(JsonScanner& json, std::vector<std::pair<std::string, std::string>>& merges) {
  json.array([&] {
    std::string storage;
    if (json.peek() != '[') {
      merges.push_back(pair_of(json.string(storage)));
      return;
    }
    std::vector<std::string> parts;
    json.array([&] { parts.emplace_back(json.string(storage)); });
    if (parts.size() != 2) json.fail("a merge must be a pair of tokens");
    merges.emplace_back(std::move(parts[0]), std::move(parts[1]));
  });
}

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
    if (field == 3) piece.type = static_cast<int32_t>(value);
  });
  return piece;
}

}  // namespace

TokenizerJsonParts read_tokenizer_json_parts(const fs::path& file) {
  const MappedFile mapped(file);
  JsonScanner json(mapped.text(), file.string());
  TokenizerJsonParts parts;
  json.object([&](std::string_view key) {
    const std::string name(key);
    if (name != "model") {
      parts.rest[name] = json.value();
      return;
    }
    json.object([&](std::string_view model_key) {
      const std::string model_name(model_key);
      if (model_name == "vocab") {
        json.skip();
      } else if (model_name == "merges") {
        read_merge_pairs(json, parts.merges);
      } else {
        parts.model[model_name] = json.value();
      }
    });
  });
  json.finish();
  return parts;
}

std::vector<std::pair<std::string, std::string>> read_merges_file(const fs::path& file) {
  const MappedFile mapped(file);
  std::vector<std::pair<std::string, std::string>> merges;
  std::string_view left = mapped.text();
  for (bool first = true; !left.empty(); first = false) {
    const size_t end = left.find('\n');
    std::string_view line = left.substr(0, end);
    left.remove_prefix(end == std::string_view::npos ? left.size() : end + 1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty() || (first && line.starts_with("#version"))) continue;
    merges.push_back(pair_of(line));
  }
  return merges;
}

// Field numbers are those of sentencepiece_model.proto.
SentencePieceParts read_sentencepiece_parts(const fs::path& file) {
  const MappedFile mapped(file);
  const std::string origin = file.string();
  SentencePieceParts parts;
  WireReader(mapped.text(), origin).each([&](uint64_t field, uint64_t, std::string_view message) {
    if (field == 1) parts.pieces.push_back(read_piece(message, origin));
    if (field == 2) {
      WireReader(message, origin).each([&](uint64_t inner, uint64_t value, std::string_view) {
        if (inner == 3) parts.model_type = static_cast<int32_t>(value);
      });
    }
    if (field == 3) {
      WireReader(message, origin).each([&](uint64_t inner, uint64_t value, std::string_view text) {
        if (inner == 2) parts.has_character_map = !text.empty();
        if (inner == 3) parts.add_dummy_prefix = value != 0;
        if (inner == 4) parts.remove_extra_whitespaces = value != 0;
      });
    }
  });
  return parts;
}

}  // namespace danlu::text
