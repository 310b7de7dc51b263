#include "data/megatron/describe.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/file.h"
#include "data/megatron/indexed_dataset.h"
#include "data/megatron/instruction_dataset.h"
#include "data/preprocess_report.h"

namespace danlu::data {
namespace {

constexpr size_t kShownIds = 64;

std::string lengths_line(const IndexedDataset& dataset) {
  const std::vector<int32_t> lengths = dataset.lengths();
  if (lengths.empty()) return "lengths: none\n";
  const auto [low, high] = std::minmax_element(lengths.begin(), lengths.end());
  const double mean =
      static_cast<double>(dataset.num_tokens()) / static_cast<double>(lengths.size());
  double squares = 0;
  for (const int32_t length : lengths) squares += (length - mean) * (length - mean);
  return fmt::format("lengths: mean {:.1f}, std {:.1f}, min {}, max {}\n", mean,
                     std::sqrt(squares / static_cast<double>(lengths.size())), *low, *high);
}

std::string summary(const IndexedDataset& dataset, const std::string& title) {
  const fs::path bin = tokens_path(dataset.prefix());
  std::string text = fmt::format("{}: {}\n", title, dataset.prefix().string());
  text += fmt::format("type: {}{}\n", token_type_name(dataset.type()),
                      dataset.has_modes() ? ", with mode bytes (multimodal)" : "");
  text += fmt::format("sequences: {}, documents: {}, tokens: {}\n", dataset.num_sequences(),
                      dataset.num_documents(), dataset.num_tokens());
  text += lengths_line(dataset);
  text += fmt::format(".bin: {}\n", fs::exists(bin) ? fmt::format("{} bytes", fs::file_size(bin))
                                                    : std::string("missing"));
  return text;
}

std::string ids_text(const std::vector<int32_t>& ids) {
  const size_t shown = std::min(ids.size(), kShownIds);
  std::string text = fmt::format(
      "{}", fmt::join(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(shown), " "));
  if (shown < ids.size()) text += fmt::format(" … ({} more)", ids.size() - shown);
  return text;
}

/// The same of samples with pictures, whose placeholders are folded: "151652 [151655 * 9] 151653".
std::string ids_text(const Sample& sample) {
  if (sample.media.empty()) return ids_text(sample.ids);
  std::vector<std::string> parts;
  const auto id = [&](int64_t at) { return std::to_string(sample.ids[static_cast<size_t>(at)]); };
  each_part(
      std::ssize(sample.ids), sample.media,
      [&](int64_t begin, int64_t end) {
        for (int64_t at = begin; at < end; ++at) parts.push_back(id(at));
      },
      [&](int64_t begin, int64_t count) {
        parts.push_back(fmt::format("[{} * {}]", id(begin), count));
      });
  const size_t shown = std::min(parts.size(), kShownIds);
  std::string text = fmt::format(
      "{}", fmt::join(parts.begin(), parts.begin() + static_cast<std::ptrdiff_t>(shown), " "));
  if (shown < parts.size()) text += fmt::format(" … ({} more)", parts.size() - shown);
  return text;
}

/// Labels with runs of "no loss" folded: "[-100 * 27] 15 8 2".
std::string labels_text(const std::vector<int32_t>& labels) {
  std::string text;
  size_t shown = 0;
  for (size_t i = 0; i < labels.size();) {
    if (shown++ == kShownIds) return text + fmt::format(" … ({} more)", labels.size() - i);
    if (!text.empty()) text += ' ';
    size_t end = i;
    while (end < labels.size() && labels[end] == kIgnoreLabel) ++end;
    if (end > i) {
      text += fmt::format("[-100 * {}]", end - i);
      i = end;
    } else {
      text += fmt::format("{}", labels[i++]);
    }
  }
  return text;
}

void require_sample(int64_t sample, int64_t count, const std::string& prefix) {
  if (sample >= 0 && sample < count) return;
  throw UsageError(
      tr("{}: sample {} asked for, there are {} (numbered from 0)", prefix, sample, count));
}

std::string describe_instruction_sample(const std::string& prefix, int64_t index,
                                        const DecodeIds& decode) {
  const Sample sample = InstructionDataset(prefix).get(index);
  std::string text = fmt::format("sample {}: {} tokens in {} segment(s)\n", index,
                                 sample.ids.size(), sample.segments.size());
  text += fmt::format("segment starts: {}\n", ids_text(sample.segments));
  text += fmt::format("input_ids: {}\n", ids_text(sample));
  text += describe_media(sample.media);
  text += fmt::format("labels: {}\n", labels_text(sample.labels));
  if (!decode) return text;
  std::vector<int32_t> answer;
  for (const int32_t label : sample.labels) {
    if (label != kIgnoreLabel) answer.push_back(label);
  }
  std::string whole;
  const auto part = [&](int64_t begin, int64_t end) {
    return decode({sample.ids.begin() + begin, sample.ids.begin() + end});
  };
  each_part(
      std::ssize(sample.ids), sample.media,
      [&](int64_t begin, int64_t end) { whole += part(begin, end); },
      [&](int64_t begin, int64_t count) {
        whole += fmt::format("[{} * {}]", part(begin, begin + 1), count);
      });
  text += fmt::format("text: {}\n", whole);
  return text + fmt::format("text with loss: {}\n", decode(answer));
}

}  // namespace

std::string describe_dataset(const std::string& prefix, std::optional<int64_t> sample,
                             const DecodeIds& decode) {
  const bool plain = fs::exists(index_path(prefix));
  const std::string ids_prefix = instruction_field_prefix(prefix, "input_ids");
  if (!plain && fs::exists(index_path(ids_prefix))) {
    const IndexedDataset ids(ids_prefix, IndexedDataset::Open::kIndexOnly);
    std::string text =
        summary(ids, "Megatron instruction data set (input_ids, attention_mask, labels)");
    if (!sample) return text;
    require_sample(*sample, ids.num_sequences(), prefix);
    return text + describe_instruction_sample(prefix, *sample, decode);
  }
  const IndexedDataset dataset(
      prefix, sample ? IndexedDataset::Open::kAll : IndexedDataset::Open::kIndexOnly);
  std::string text = summary(dataset, "Megatron indexed data set");
  if (!sample) return text;
  require_sample(*sample, dataset.num_sequences(), prefix);
  const std::vector<int32_t> ids = dataset.tokens(*sample);
  text += fmt::format("sequence {}: {} tokens\nids: {}\n", *sample, ids.size(), ids_text(ids));
  if (decode) text += fmt::format("text: {}\n", decode(ids));
  return text;
}

}  // namespace danlu::data
