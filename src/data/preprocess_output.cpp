#include "data/preprocess_output.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <optional>

#include "base/error.h"
#include "base/ignore_label.h"
#include "base/threads.h"
#include "data/media_record.h"
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

/// Calls add(tokens, lengths) for some sequences after others, about a mebibyte of tokens each.
/// What was read of the stream is given back, so that memory does not grow with the data set.
template <typename Add>
void each_run(const TokenStore::Stream& stream, Add add) {
  constexpr int64_t kRunTokens = 1 << 18;
  const std::span<const int32_t> lengths = stream.lengths();
  size_t at = 0;
  for (size_t first = 0, last = 0; first < lengths.size(); first = last) {
    int64_t tokens = 0;
    while (last < lengths.size() && tokens < kRunTokens) tokens += lengths[last++];
    const auto count = static_cast<size_t>(tokens);
    add(stream.tokens().subspan(at, count), lengths.subspan(first, last - first));
    at += count;
    stream.forget();
  }
}

void add_sequences(const TokenStore::Stream& stream, IndexedWriter* writer) {
  each_run(stream, [&](std::span<const int32_t> tokens, std::span<const int32_t> lengths) {
    writer->add_documents(tokens, lengths);
  });
  writer->finish();
}

/// Sequences as long as the stream's, of ones.
void add_ones(const TokenStore::Stream& stream, IndexedWriter* writer) {
  std::vector<int32_t> ones;
  each_run(stream, [&](std::span<const int32_t> tokens, std::span<const int32_t> lengths) {
    ones.resize(std::max(ones.size(), tokens.size()), 1);
    writer->add_documents(std::span(ones).first(tokens.size()), lengths);
  });
  writer->finish();
}

/// At the same time: much of it is waiting for the disk.
void run_together(std::initializer_list<std::function<void()>> jobs) {
  parallel_for(jobs.size(), jobs.size(), [&](size_t i) { jobs.begin()[i](); });
}

constexpr size_t kMediaStream = 2;

bool holds_media(const TokenStore& store) {
  return store.num_streams() > kMediaStream && !store.stream(kMediaStream).tokens().empty();
}

struct InstructionWriters {
  InstructionWriters(const fs::path& prefix, bool has_media)
      : ids(writer_of(prefix, "input_ids")),
        mask(writer_of(prefix, "attention_mask")),
        labels(writer_of(prefix, "labels")) {
    if (has_media) media.emplace(writer_of(prefix, kMediaField));
  }
  static IndexedWriter writer_of(const fs::path& prefix, const char* field) {
    return IndexedWriter(instruction_field_prefix(prefix.string(), field), TokenType::kI32);
  }
  IndexedWriter ids, mask, labels;
  std::optional<IndexedWriter> media;
};

/// Every sample alone, in order.
void add_samples(const TokenStore& store, InstructionWriters* writers) {
  // Each has a mapping of its own of what it reads, to give back.
  run_together({[&] { add_sequences(store.stream(0), &writers->ids); },
                [&] { add_ones(store.stream(1), &writers->mask); },
                [&] { add_sequences(store.stream(1), &writers->labels); },
                [&] {
                  if (writers->media) add_sequences(store.stream(kMediaStream), &*writers->media);
                }});
}

/// Gives back what was read of the streams after every 64 MiB.
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

void add_packs(const TokenStore& store, const PackSettings& settings, InstructionWriters* writers,
               PreprocessReport* report) {
  const TokenStore::Stream id_stream = store.stream(0), label_stream = store.stream(1);
  const Sequences ids(id_stream), labels(label_stream);
  const Packs packs = pack_greedy(ids.lengths(), settings.seq_length - 1);
  const bool is_neat = settings.mode == PackMode::kNeat;
  const auto seq_length = static_cast<size_t>(settings.seq_length);
  ReadMemory memory({&id_stream, &label_stream});
  const TokenStore::Stream media_stream = store.stream(writers->media ? kMediaStream : 0);
  const Sequences media(media_stream);
  std::vector<int32_t> packed_ids, packed_labels, mask;
  for (int64_t group = 0; group < packs.size(); ++group) {
    packed_ids.clear();
    packed_labels.clear();
    mask.clear();
    int32_t segment = 1;
    std::vector<MediaSpan> spans;
    for (const int64_t sample : packs.group(group)) {
      if (writers->media) {
        append_spans(read_media_record(media[sample], "the token store"), std::ssize(packed_ids),
                     &spans);
      }
      packed_ids.insert(packed_ids.end(), ids[sample].begin(), ids[sample].end());
      packed_labels.insert(packed_labels.end(), labels[sample].begin(), labels[sample].end());
      mask.resize(packed_ids.size(), is_neat ? segment++ : 1);
    }
    report->padding_tokens += static_cast<int64_t>(seq_length - packed_ids.size());
    packed_ids.resize(seq_length, settings.pad_id);
    packed_labels.resize(seq_length, kIgnoreLabel);
    mask.resize(seq_length, is_neat ? 0 : 1);
    memory.add(2 * packed_ids.size());
    writers->ids.add_document(packed_ids);
    writers->labels.add_document(packed_labels);
    writers->mask.add_document(mask);
    if (writers->media) writers->media->add_document(media_record(spans));
  }
  report->packed_sequences = packs.size();
  run_together({[&] { writers->ids.finish(); }, [&] { writers->mask.finish(); },
                [&] { writers->labels.finish(); },
                [&] {
                  if (writers->media) writers->media->finish();
                }});
}

/// What a field of samples is written from.
struct FieldSource {
  std::string name;
  size_t stream = 0;
  bool is_mask = false;      ///< ones, as many as the stream's tokens
  bool may_be_zero = false;  ///< left out if all of its values are 0
};

std::vector<FieldSource> field_sources(SampleKind kind,
                                       const std::vector<std::string>& additional_keys) {
  switch (kind) {
    case SampleKind::kTokens:
      break;
    case SampleKind::kPairs:
      return {{"chosen_input_ids", 0},
              {"chosen_labels", 1},
              {"rejected_input_ids", 2},
              {"rejected_labels", 3},
              {"margin", 4, false, true}};
    case SampleKind::kUnpaired:
      return {{"input_ids", 0}, {"labels", 1}, {"liked", 2}};
    case SampleKind::kSteps:
      return {{"input_ids", 0}, {"attention_mask", 0, true}, {"labels", 1}};
    case SampleKind::kLabelled:
      return {{"input_ids", 0}, {"label", 1}};
    case SampleKind::kGroups:
      return {{"input_ids", 0}, {"group", 1}};
    case SampleKind::kPrompts: {
      std::vector<FieldSource> fields{
          {"input_ids", 0}, {"attention_mask", 0, true}, {"columns", 1}};
      for (size_t i = 0; i < additional_keys.size(); ++i)
        fields.push_back({additional_keys[i], 2 + i});
      return fields;
    }
  }
  throw InternalError("samples of this kind are no fields");
}

bool is_all_zero(const TokenStore::Stream& stream) {
  const std::span<const int32_t> values = stream.tokens();
  return std::all_of(values.begin(), values.end(), [](int32_t value) { return value == 0; });
}

}  // namespace

void write_text_datasets(const TokenStore& store, const fs::path& prefix,
                         const std::vector<std::string>& keys) {
  std::vector<IndexedWriter> writers;
  for (size_t i = 0; i < keys.size(); ++i) {
    writers.emplace_back(fmt::format("{}_{}_document", prefix.string(), keys[i]), TokenType::kI32);
    add_sequences(store.stream(i), &writers.back());
  }
  for (IndexedWriter& writer : writers) writer.commit();
}

std::vector<std::string> fields_of_kind(SampleKind kind,
                                        const std::vector<std::string>& additional_keys) {
  std::vector<std::string> names;
  for (const FieldSource& field : field_sources(kind, additional_keys)) {
    if (!field.may_be_zero) names.push_back(field.name);
  }
  return names;
}

void write_kind_datasets(const TokenStore& store, const fs::path& prefix, SampleKind kind,
                         const std::vector<std::string>& additional_keys) {
  std::vector<IndexedWriter> writers;
  for (const FieldSource& field : field_sources(kind, additional_keys)) {
    const fs::path path = instruction_field_prefix(prefix.string(), field.name);
    const TokenStore::Stream stream = store.stream(field.stream);
    if (field.may_be_zero && is_all_zero(stream)) {
      // Files that lie here are of other data, which are replaced.
      std::error_code ignored;
      fs::remove(index_path(path), ignored);
      fs::remove(tokens_path(path), ignored);
      continue;
    }
    writers.emplace_back(path, TokenType::kI32);
    field.is_mask ? add_ones(stream, &writers.back()) : add_sequences(stream, &writers.back());
  }
  for (IndexedWriter& writer : writers) writer.commit();
}

void write_instruction_datasets(const TokenStore& store, const fs::path& prefix,
                                const PackSettings& settings, PreprocessReport* report) {
  InstructionWriters writers(prefix, holds_media(store));
  if (settings.mode == PackMode::kNone) {
    add_samples(store, &writers);
  } else {
    add_packs(store, settings, &writers, report);
  }
  if (writers.media) {
    writers.media->commit();
  } else {
    // Files that lie here are of other data, which are replaced.
    const fs::path media = media_output_of(prefix);
    std::error_code ignored;
    fs::remove(index_path(media), ignored);
    fs::remove(tokens_path(media), ignored);
  }
  for (IndexedWriter* writer : {&writers.ids, &writers.mask, &writers.labels}) writer->commit();
}

}  // namespace danlu::data
