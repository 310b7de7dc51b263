#include "data/megatron/indexed_writer.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>

#include "base/descriptor.h"
#include "base/error.h"
#include "base/temporary.h"
#include "data/megatron/indexed_layout.h"

namespace danlu::data {
namespace {

constexpr size_t kSpoolBufferBytes = 1 << 18;

/// A file without a name that is written once and then read back from the start.
class Spool {
 public:
  explicit Spool(const fs::path& beside) : beside_(beside) {
    fd_ = open_nameless(fs::absolute(beside).parent_path());
    if (fd_ < 0) fail("create a temporary file for");
  }
  Spool(const Spool&) = delete;
  Spool& operator=(const Spool&) = delete;
  ~Spool() { ::close(fd_); }

  template <typename T>
  void put(T value) {
    const char* bytes = reinterpret_cast<const char*>(&value);
    buffer_.insert(buffer_.end(), bytes, bytes + sizeof(T));
    if (buffer_.size() >= kSpoolBufferBytes) flush();
  }

  /// Calls `visit(value)` for each value put, in order.
  template <typename T, typename Visit>
  void replay(Visit visit) {
    flush();
    std::vector<T> chunk(kSpoolBufferBytes / sizeof(T));
    for (off_t at = 0;;) {
      const ssize_t got = ::pread(fd_, chunk.data(), chunk.size() * sizeof(T), at);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) fail("read the temporary file of");
      if (got == 0) return;
      // A short read may end inside a value: take whole values, read the rest again.
      const auto count = static_cast<size_t>(got) / sizeof(T);
      for (size_t i = 0; i < count; ++i) visit(chunk[i]);
      at += static_cast<off_t>(count * sizeof(T));
    }
  }

 private:
  [[noreturn]] void fail(const char* doing) const {
    throw IoError(tr("{}: cannot {} it: {}", beside_.string(), doing, std::strerror(errno)));
  }
  void flush() {
    if (!write_all(fd_, buffer_.data(), buffer_.size())) fail("write the temporary file of");
    buffer_.clear();
  }

  fs::path beside_;
  int fd_ = -1;
  std::vector<char> buffer_;
};

struct Range {
  int64_t low, high;
};

Range representable(TokenType type) {
  switch (type) {
    case TokenType::kU8:
      return {0, 0xff};
    case TokenType::kI8:
      return {-0x80, 0x7f};
    case TokenType::kI16:
      return {-0x8000, 0x7fff};
    case TokenType::kU16:
      return {0, 0xffff};
    default:
      return {std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max()};
  }
}

template <typename T>
void narrow(std::span<const int32_t> tokens, std::vector<char>& out) {
  out.resize(tokens.size() * sizeof(T));
  for (size_t i = 0; i < tokens.size(); ++i) {
    const T value = static_cast<T>(tokens[i]);
    std::memcpy(out.data() + i * sizeof(T), &value, sizeof(T));
  }
}

template <typename T>
void put(AtomicFile& file, T value) {
  file.write(&value, sizeof value);
}

}  // namespace

struct IndexedWriter::State {
  State(const fs::path& prefix, TokenType type)
      : prefix(prefix),
        type(type),
        range(representable(type)),
        bin(tokens_path(prefix)),
        lengths(index_path(prefix)),
        documents(index_path(prefix)) {}

  /// Errors: DataError naming the next sequence and the token that does not fit the type.
  void write_tokens(std::span<const int32_t> tokens);

  fs::path prefix;
  TokenType type;
  Range range;
  AtomicFile bin;
  std::optional<AtomicFile> index;  ///< from finish() on
  Spool lengths, documents;         // int32 per sequence; int64 end of each document, in sequences
  int64_t num_sequences = 0, num_documents = 0, num_tokens = 0, closed_sequences = 0;
  std::vector<char> scratch;
};

IndexedWriter::IndexedWriter(const fs::path& prefix, TokenType type) {
  if (type == TokenType::kF32 || type == TokenType::kF64) {
    throw UsageError(tr("{}: tokens cannot be stored as {}", index_path(prefix).string(),
                        token_type_name(type)));
  }
  const fs::path parent = index_path(prefix).parent_path();
  if (!parent.empty()) require_writable_directory(parent);
  state_ = std::make_unique<State>(prefix, type);
}

IndexedWriter::~IndexedWriter() = default;
IndexedWriter::IndexedWriter(IndexedWriter&&) noexcept = default;

void IndexedWriter::add_sequence(std::span<const int32_t> tokens) {
  State& s = *state_;
  if (tokens.size() > static_cast<size_t>(std::numeric_limits<int32_t>::max())) {
    throw DataError(tr("{}: sequence {} has {} tokens, the format counts them in 32 bits",
                       tokens_path(s.prefix).string(), s.num_sequences, tokens.size()));
  }
  s.write_tokens(tokens);
  s.lengths.put(static_cast<int32_t>(tokens.size()));
  ++s.num_sequences;
  s.num_tokens += static_cast<int64_t>(tokens.size());
}

void IndexedWriter::State::write_tokens(std::span<const int32_t> tokens) {
  if (type == TokenType::kI32) return bin.write(tokens.data(), tokens.size_bytes());
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] < range.low || tokens[i] > range.high) {
      throw DataError(tr("{}: token {} of sequence {} is {}, {} holds {}..{}",
                         tokens_path(prefix).string(), i, num_sequences, tokens[i],
                         token_type_name(type), range.low, range.high));
    }
  }
  switch (token_type_bytes(type)) {
    case 1:
      narrow<int8_t>(tokens, scratch);
      break;
    case 2:
      narrow<int16_t>(tokens, scratch);
      break;
    default:
      narrow<int64_t>(tokens, scratch);
  }
  bin.write(scratch.data(), scratch.size());
}

void IndexedWriter::add_documents(std::span<const int32_t> tokens,
                                  std::span<const int32_t> lengths) {
  State& s = *state_;
  if (s.type == TokenType::kI32 && s.closed_sequences == s.num_sequences) {
    s.write_tokens(tokens);
    for (const int32_t length : lengths) {
      s.lengths.put(length);
      s.documents.put(++s.num_sequences);
    }
    s.closed_sequences = s.num_sequences;
    s.num_documents += std::ssize(lengths);
    s.num_tokens += std::ssize(tokens);
    return;
  }
  for (const int32_t length : lengths) {
    add_document(tokens.first(static_cast<size_t>(length)));
    tokens = tokens.subspan(static_cast<size_t>(length));
  }
}

void IndexedWriter::end_document() {
  State& s = *state_;
  s.closed_sequences = s.num_sequences;
  s.documents.put(s.num_sequences);
  ++s.num_documents;
}

void IndexedWriter::add_document(std::span<const int32_t> tokens) {
  add_sequence(tokens);
  end_document();
}

void IndexedWriter::append(const IndexedDataset& other) {
  State& s = *state_;
  const std::string name = index_path(other.prefix()).string();
  if (other.type() != s.type) {
    throw DataError(tr("{}: holds {}, cannot be appended to {} which holds {}", name,
                       token_type_name(other.type()), index_path(s.prefix).string(),
                       token_type_name(s.type)));
  }
  if (other.has_modes()) {
    throw DataError(
        tr("{}: has mode bytes (multimodal data), which this writer cannot keep", name));
  }
  if (s.closed_sequences != s.num_sequences) {
    throw InternalError("[indexed_writer] append() inside an open document");
  }
  const int64_t base = s.num_sequences;
  for (int64_t i = 0; i < other.num_sequences(); ++i) {
    s.bin.write(other.stored_bytes(i));
    s.lengths.put(other.length(i));
  }
  for (int64_t k = 1; k <= other.num_documents(); ++k) {
    s.documents.put(base + other.document_start(k));
  }
  s.num_sequences += other.num_sequences();
  s.closed_sequences = s.num_sequences;
  s.num_documents += other.num_documents();
  s.num_tokens += other.num_tokens();
}

int64_t IndexedWriter::num_sequences() const { return state_->num_sequences; }
int64_t IndexedWriter::num_documents() const { return state_->num_documents; }
int64_t IndexedWriter::num_tokens() const { return state_->num_tokens; }

void IndexedWriter::finish() {
  State& s = *state_;
  if (s.closed_sequences != s.num_sequences) {
    throw InternalError(fmt::format("[indexed_writer] {}: the last document was not ended",
                                    index_path(s.prefix).string()));
  }
  AtomicFile& index = s.index.emplace(index_path(s.prefix));
  index.write(kIndexMagic);
  put(index, kIndexVersion);
  put(index, static_cast<uint8_t>(s.type));
  put(index, static_cast<uint64_t>(s.num_sequences));
  put(index, static_cast<uint64_t>(s.num_documents + 1));
  s.lengths.replay<int32_t>([&](int32_t length) { put(index, length); });
  const int64_t width = token_type_bytes(s.type);
  int64_t offset_bytes = 0;
  s.lengths.replay<int32_t>([&](int32_t length) {
    put(index, offset_bytes);
    offset_bytes += length * width;
  });
  put(index, int64_t{0});
  s.documents.replay<int64_t>([&](int64_t end) { put(index, end); });
  s.bin.finish();
  index.finish();
}

void IndexedWriter::commit() {
  State& s = *state_;
  if (!s.index) finish();
  // An old index must never stand beside the new tokens: whoever looks between the two renames
  // finds no data set rather than a wrong one.
  std::error_code ignored;
  fs::remove(index_path(s.prefix), ignored);
  s.bin.commit();
  s.index->commit();
}

void merge_indexed_datasets(const std::vector<fs::path>& inputs, const fs::path& output) {
  if (inputs.empty()) throw UsageError(tr("[merge] no data set to merge"));
  for (const fs::path& input : inputs) {
    if (fs::weakly_canonical(index_path(input)) == fs::weakly_canonical(index_path(output))) {
      throw UsageError(tr("[merge] {} is both input and output", index_path(output).string()));
    }
  }
  std::optional<IndexedWriter> writer;
  for (const fs::path& input : inputs) {
    const IndexedDataset dataset(input);
    if (!writer) writer.emplace(output, dataset.type());
    writer->append(dataset);
  }
  writer->commit();
}

}  // namespace danlu::data
