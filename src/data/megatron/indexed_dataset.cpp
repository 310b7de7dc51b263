#include "data/megatron/indexed_dataset.h"

#include <fmt/format.h>

#include <cstring>
#include <limits>

#include "base/error.h"
#include "base/lfs_pointer.h"
#include "base/log.h"
#include "data/megatron/indexed_layout.h"

namespace danlu::data {
namespace {

template <typename T>
T load_at(const std::byte* base, int64_t index) {
  T value;
  std::memcpy(&value, base + index * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return value;
}

template <typename T>
void widen(const std::byte* from, int64_t count, int32_t* out) {
  // int8 tokens are numbers that may be negative, not characters: they keep their sign.
  // NOLINTNEXTLINE(bugprone-signed-char-misuse)
  for (int64_t i = 0; i < count; ++i) out[i] = static_cast<int32_t>(load_at<T>(from, i));
}

fs::path with_ending(const fs::path& prefix, const char* ending) {
  fs::path stem = prefix;
  if (stem.extension() == ".idx" || stem.extension() == ".bin") stem.replace_extension();
  return stem.string() + ending;
}

[[noreturn]] void damaged(const fs::path& file, const std::string& what) {
  throw DataError(tr("{}: {}", file.string(), what),
                  tr("the file is damaged or not a Megatron index; run `danlu preprocess` again to "
                     "rebuild it"));
}

}  // namespace

int64_t token_type_bytes(TokenType type) {
  switch (type) {
    case TokenType::kU8:
    case TokenType::kI8:
      return 1;
    case TokenType::kI16:
    case TokenType::kU16:
      return 2;
    case TokenType::kI32:
    case TokenType::kF32:
      return 4;
    case TokenType::kI64:
    case TokenType::kF64:
      return 8;
  }
  throw InternalError(fmt::format("[indexed_dataset] token type {}", static_cast<int>(type)));
}

std::string_view token_type_name(TokenType type) {
  constexpr std::string_view kNames[] = {"?",     "uint8",   "int8",    "int16", "int32",
                                         "int64", "float64", "float32", "uint16"};
  const auto code = static_cast<size_t>(type);
  return code < std::size(kNames) ? kNames[code] : kNames[0];
}

fs::path index_path(const fs::path& prefix) { return with_ending(prefix, ".idx"); }
fs::path tokens_path(const fs::path& prefix) { return with_ending(prefix, ".bin"); }

bool indexed_dataset_exists(const fs::path& prefix) {
  return fs::is_regular_file(index_path(prefix)) && fs::is_regular_file(tokens_path(prefix));
}

IndexedDataset::IndexedDataset(const fs::path& prefix, Open open)
    : prefix_(with_ending(prefix, "")), index_(index_path(prefix)) {
  for (const fs::path& file : {index_path(prefix), tokens_path(prefix)})
    refuse_lfs_pointer_as_data(file);
  parse_header();
  if (open == Open::kAll) bin_ = MappedFile(tokens_path(prefix));
  check_sequences(open);
  check_documents();
}

void IndexedDataset::parse_header() {
  const fs::path& file = index_.path();
  const std::byte* data = index_.bytes().data();
  const uint64_t size = index_.size();
  if (size < kIndexHeaderBytes) {
    damaged(file, tr("an index has at least {} bytes, this file has {}", kIndexHeaderBytes, size));
  }
  if (std::memcmp(data, kIndexMagic.data(), kIndexMagic.size()) != 0) {
    damaged(file, "does not start with the magic MMIDIDX");
  }
  const uint64_t version = load_at<uint64_t>(data + kIndexVersionAt, 0);
  if (version != kIndexVersion) damaged(file, tr("version must be 1, got {}", version));
  const auto code = static_cast<uint8_t>(data[kIndexTypeAt]);
  if (code < 1 || code > 8) damaged(file, tr("token type code must be 1..8, got {}", code));
  type_ = static_cast<TokenType>(code);

  const uint64_t sequences = load_at<uint64_t>(data + kIndexSequencesAt, 0);
  const uint64_t bounds = load_at<uint64_t>(data + kIndexDocumentsAt, 0);
  // Compare counts with the room that is left before multiplying: damaged counts may be near 2^64.
  uint64_t left = size - kIndexHeaderBytes;
  if (sequences > left / 12) {
    damaged(file,
            tr("{} sequences need 12 bytes each, {} bytes follow the header", sequences, left));
  }
  left -= sequences * 12;
  if (bounds < 1 || bounds > left / 8) {
    damaged(file,
            tr("{} document bounds do not fit the {} bytes after the sequences", bounds, left));
  }
  left -= bounds * 8;
  if (left != 0 && left != sequences) {
    damaged(file, tr("{} bytes follow the document bounds; legal are 0 or one mode byte "
                     "for each of the {} sequences",
                     left, sequences));
  }
  num_sequences_ = static_cast<int64_t>(sequences);
  num_document_bounds_ = static_cast<int64_t>(bounds);
  lengths_ = data + kIndexHeaderBytes;
  offsets_ = lengths_ + 4 * num_sequences_;
  documents_ = offsets_ + 8 * num_sequences_;
  if (left != 0) modes_ = documents_ + 8 * num_document_bounds_;
}

void IndexedDataset::check_sequences(Open open) {
  const int64_t width = token_type_bytes(type_);
  const int64_t limit =
      open == Open::kAll ? static_cast<int64_t>(bin_.size()) : std::numeric_limits<int64_t>::max();
  int64_t used_bytes = 0;
  for (int64_t i = 0; i < num_sequences_; ++i) {
    const int64_t tokens = length(i), at = byte_offset(i);
    if (tokens < 0) damaged(index_.path(), tr("sequence {} has length {}", i, tokens));
    if (at < 0 || at > limit || tokens * width > limit - at) {
      damaged(index_.path(), tr("sequence {} lies at bytes [{}, {}+{}), but {} has {} bytes", i, at,
                                at, tokens * width, tokens_path(prefix_).string(), limit));
    }
    used_bytes = std::max(used_bytes, at + tokens * width);
    num_tokens_ += tokens;
  }
  if (open == Open::kAll && used_bytes < limit) {
    log::warning("{}: the index uses {} of {} bytes: do both files come from the same run?",
                 bin_.path().string(), used_bytes, limit);
  }
}

void IndexedDataset::check_documents() const {
  int64_t previous = 0;
  for (int64_t k = 0; k < num_document_bounds_; ++k) {
    const int64_t start = load_at<int64_t>(documents_, k);
    if (k == 0 && start != 0) {
      damaged(index_.path(), tr("document 0 must start at sequence 0, got {}", start));
    }
    if (start < previous) {
      damaged(index_.path(), tr("document {} starts at sequence {}, before document {} at {}", k,
                                start, k - 1, previous));
    }
    previous = start;
  }
  if (previous != num_sequences_) {
    damaged(index_.path(), tr("the last document ends at sequence {}, there are {} sequences",
                              previous, num_sequences_));
  }
}

int32_t IndexedDataset::length(int64_t sequence) const {
  return load_at<int32_t>(lengths_, sequence);
}

std::vector<int32_t> IndexedDataset::lengths() const {
  std::vector<int32_t> lengths(static_cast<size_t>(num_sequences_));
  if (!lengths.empty()) std::memcpy(lengths.data(), lengths_, lengths.size() * sizeof(int32_t));
  return lengths;
}

int64_t IndexedDataset::byte_offset(int64_t sequence) const {
  return load_at<int64_t>(offsets_, sequence);
}

int64_t IndexedDataset::document_start(int64_t document) const {
  return load_at<int64_t>(documents_, document);
}

int8_t IndexedDataset::mode(int64_t sequence) const { return load_at<int8_t>(modes_, sequence); }

void IndexedDataset::read(int64_t sequence, int64_t offset, int64_t count, int32_t* out) const {
  const fs::path file = tokens_path(prefix_);
  if (sequence < 0 || sequence >= num_sequences_) {
    throw DataError(
        tr("{}: sequence {} asked for, there are {}", file.string(), sequence, num_sequences_));
  }
  if (offset < 0 || count < 0 || offset > length(sequence) || count > length(sequence) - offset) {
    throw DataError(tr("{}: tokens [{}, {}+{}) of sequence {} asked for, it has {}", file.string(),
                       offset, offset, count, sequence, length(sequence)));
  }
  if (!bin_.size() && count > 0) {
    throw DataError(tr("{}: opened for its index only, tokens cannot be read", file.string()));
  }
  const std::byte* from =
      bin_.bytes().data() + byte_offset(sequence) + offset * token_type_bytes(type_);
  switch (type_) {
    case TokenType::kU8:
      return widen<uint8_t>(from, count, out);
    case TokenType::kI8:
      return widen<int8_t>(from, count, out);
    case TokenType::kI16:
      return widen<int16_t>(from, count, out);
    case TokenType::kU16:
      return widen<uint16_t>(from, count, out);
    case TokenType::kI32:
      if (count > 0) std::memcpy(out, from, static_cast<size_t>(count) * sizeof(int32_t));
      return;
    case TokenType::kI64:
      for (int64_t i = 0; i < count; ++i) {
        const int64_t token = load_at<int64_t>(from, i);
        if (token != static_cast<int32_t>(token)) {
          damaged(file,
                  tr("token {} of sequence {} is {}, beyond 32 bits", offset + i, sequence, token));
        }
        out[i] = static_cast<int32_t>(token);
      }
      return;
    case TokenType::kF32:
    case TokenType::kF64:
      throw DataError(tr("{}: holds {} values, not tokens", file.string(), token_type_name(type_)));
  }
}

std::vector<int32_t> IndexedDataset::tokens(int64_t sequence) const {
  std::vector<int32_t> out;
  if (sequence >= 0 && sequence < num_sequences_) out.resize(static_cast<size_t>(length(sequence)));
  read(sequence, 0, static_cast<int64_t>(out.size()), out.data());
  return out;
}

std::string_view IndexedDataset::stored_bytes(int64_t sequence) const {
  return bin_.text().substr(static_cast<size_t>(byte_offset(sequence)),
                            static_cast<size_t>(length(sequence) * token_type_bytes(type_)));
}

uint64_t IndexedDataset::index_hash() const { return hash_bytes(index_.text()); }

uint64_t IndexedDataset::content_hash() const {
  uint64_t hash = index_hash();
  // The whole .bin may be terabytes: 64 windows spread over it, first and last bytes included.
  constexpr size_t kWindow = 4096, kWindows = 64;
  const std::string_view all = bin_.text();
  if (all.size() <= kWindow * kWindows) return hash_bytes(all, hash);
  for (size_t i = 0; i < kWindows; ++i) {
    const size_t at = (all.size() - kWindow) / (kWindows - 1) * i;
    hash = hash_bytes(all.substr(i + 1 == kWindows ? all.size() - kWindow : at, kWindow), hash);
  }
  return hash;
}

}  // namespace danlu::data
