#include "data/preprocess_output.h"

#include <fmt/format.h>

#include <numeric>

#include "base/error.h"
#include "base/ignore_label.h"
#include "data/megatron/indexed_writer.h"
#include "data/megatron/instruction_dataset.h"
#include "data/packing.h"

namespace danlu::data {
namespace {

/// The sequences of a stream by index.
class Sequences {
 public:
  explicit Sequences(const TokenStore::Stream& stream)
      : tokens_(stream.tokens()), lengths_(stream.lengths()) {
    starts_.reserve(lengths_.size() + 1);
    starts_.push_back(0);
    for (const int32_t length : lengths_) starts_.push_back(starts_.back() + length);
  }
  std::span<const int32_t> lengths() const { return lengths_; }
  std::span<const int32_t> operator[](int64_t index) const {
    const auto at = static_cast<size_t>(index);
    return tokens_.subspan(static_cast<size_t>(starts_[at]), static_cast<size_t>(lengths_[at]));
  }

 private:
  std::span<const int32_t> tokens_, lengths_;
  std::vector<int64_t> starts_;
};

/// Gives back what was read of the streams after every 64 MiB, so that memory does not grow with
/// the data set.
class ReadMemory {
 public:
  explicit ReadMemory(std::vector<const TokenStore::Stream*> streams)
      : streams_(std::move(streams)) {}
  void add(size_t tokens) {
    tokens_ += tokens;
    if (tokens_ * sizeof(int32_t) < size_t{64} << 20) return;
    for (const TokenStore::Stream* stream : streams_) stream->forget();
    tokens_ = 0;
  }

 private:
  std::vector<const TokenStore::Stream*> streams_;
  size_t tokens_ = 0;
};

/// Every sample alone, in order: what no packing means.
Packs one_each(size_t count) {
  Packs packs;
  packs.samples.resize(count);
  std::iota(packs.samples.begin(), packs.samples.end(), 0);
  packs.starts.resize(count + 1);
  std::iota(packs.starts.begin(), packs.starts.end(), 0);
  return packs;
}

}  // namespace

void write_text_datasets(const TokenStore& store, const fs::path& prefix,
                         const std::vector<std::string>& keys) {
  std::vector<IndexedWriter> writers;
  for (size_t i = 0; i < keys.size(); ++i) {
    IndexedWriter& writer = writers.emplace_back(
        fmt::format("{}_{}_document", prefix.string(), keys[i]), TokenType::kI32);
    const TokenStore::Stream stream = store.stream(i);
    ReadMemory memory({&stream});
    size_t at = 0;
    for (const int32_t length : stream.lengths()) {
      writer.add_document(stream.tokens().subspan(at, static_cast<size_t>(length)));
      at += static_cast<size_t>(length);
      memory.add(static_cast<size_t>(length));
    }
    writer.finish();
  }
  for (IndexedWriter& writer : writers) writer.commit();
}

void write_instruction_datasets(const TokenStore& store, const fs::path& prefix,
                                const PackSettings& settings, PreprocessReport* report) {
  const TokenStore::Stream id_stream = store.stream(0), label_stream = store.stream(1);
  const Sequences ids(id_stream), labels(label_stream);
  const bool packing = settings.mode != PackMode::kNone;
  const Packs packs = packing ? pack_greedy(ids.lengths(), settings.seq_length - 1)
                              : one_each(ids.lengths().size());
  const auto writer_of = [&](const char* field) {
    return IndexedWriter(instruction_field_prefix(prefix.string(), field), TokenType::kI32);
  };
  IndexedWriter id_writer = writer_of("input_ids");
  IndexedWriter mask_writer = writer_of("attention_mask");
  IndexedWriter label_writer = writer_of("labels");
  ReadMemory memory({&id_stream, &label_stream});
  std::vector<int32_t> packed_ids, packed_labels, mask;
  for (int64_t group = 0; group < packs.size(); ++group) {
    packed_ids.clear();
    packed_labels.clear();
    mask.clear();
    int32_t segment = 1;
    for (const int64_t sample : packs.group(group)) {
      packed_ids.insert(packed_ids.end(), ids[sample].begin(), ids[sample].end());
      packed_labels.insert(packed_labels.end(), labels[sample].begin(), labels[sample].end());
      mask.resize(packed_ids.size(), settings.mode == PackMode::kNeat ? segment++ : 1);
    }
    if (packing) {
      const auto seq_length = static_cast<size_t>(settings.seq_length);
      report->padding_tokens += static_cast<int64_t>(seq_length - packed_ids.size());
      packed_ids.resize(seq_length, settings.pad_id);
      packed_labels.resize(seq_length, kIgnoreLabel);
      mask.resize(seq_length, settings.mode == PackMode::kNeat ? 0 : 1);
    }
    memory.add(2 * packed_ids.size());
    id_writer.add_document(packed_ids);
    label_writer.add_document(packed_labels);
    mask_writer.add_document(mask);
  }
  if (packing) report->packed_sequences = packs.size();
  for (IndexedWriter* writer : {&id_writer, &mask_writer, &label_writer}) writer->finish();
  for (IndexedWriter* writer : {&id_writer, &mask_writer, &label_writer}) writer->commit();
}

}  // namespace danlu::data
