#include "data/limited_source.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "data/answer_cut.h"

namespace danlu::data {
namespace {

/// Where runs start once the first `dropped` tokens and those from `end` on are gone.
std::vector<int32_t> starts_within(const std::vector<int32_t>& starts, int64_t dropped,
                                   int64_t end) {
  if (starts.empty()) return {};
  std::vector<int32_t> kept{0};
  for (const int32_t start : starts) {
    if (start > dropped && start < end) kept.push_back(static_cast<int32_t>(start - dropped));
  }
  return kept;
}

bool has_answers(SampleKind kind) {
  return kind == SampleKind::kPairs || kind == SampleKind::kUnpaired;
}

/// Segments of one prompt with an answer each.
std::vector<std::pair<std::vector<int32_t>, std::vector<int32_t>>> segments_of(
    const Sample& sample) {
  std::vector<std::pair<std::vector<int32_t>, std::vector<int32_t>>> segments;
  for (size_t s = 0; s < sample.segments.size(); ++s) {
    const auto begin = sample.segments[s];
    const auto end = s + 1 < sample.segments.size() ? sample.segments[s + 1]
                                                    : static_cast<int32_t>(sample.ids.size());
    segments.emplace_back(
        std::vector<int32_t>(sample.ids.begin() + begin, sample.ids.begin() + end),
        std::vector<int32_t>(sample.labels.begin() + begin, sample.labels.begin() + end));
  }
  return segments;
}

/// What length is limited: of answers and of a group's texts that of the longest, else that of the
/// sample.
int64_t limited_length(SampleKind kind, const Sample& sample) {
  if (!has_answers(kind) && kind != SampleKind::kGroups) return std::ssize(sample.ids);
  int64_t longest = 0;
  for (const auto& [ids, labels] : segments_of(sample))
    longest = std::max<int64_t>(longest, std::ssize(ids));
  return longest;
}

void cut_segments(const LengthLimit& limit, Sample* sample) {
  if (limited_length(limit.kind, *sample) <= limit.max_length) return;
  auto segments = segments_of(*sample);
  AnswerShares whole;
  for (const auto& [ids, labels] : segments) {
    const int64_t prompt = prompt_length(labels);
    whole.prompt = std::max(whole.prompt, prompt);
    whole.answer = std::max(whole.answer, std::ssize(ids) - prompt);
  }
  const AnswerShares shares = shares_within(whole.prompt, whole.answer, limit.max_length);
  sample->ids.clear();
  sample->labels.clear();
  sample->segments.clear();
  for (auto& [ids, labels] : segments) {
    cut_answer(shares, limit.truncation == Truncation::kLeft, &ids, &labels);
    sample->segments.push_back(static_cast<int32_t>(sample->ids.size()));
    sample->ids.insert(sample->ids.end(), ids.begin(), ids.end());
    sample->labels.insert(sample->labels.end(), labels.begin(), labels.end());
  }
}

/// Each text by itself; what is learnt at its last token is learnt where it ends now.
void cut_texts(const LengthLimit& limit, Sample* sample) {
  const auto segments = segments_of(*sample);
  const auto limited = static_cast<size_t>(limit.max_length);
  sample->ids.clear();
  sample->segments.clear();
  sample->labels.clear();
  for (const auto& [ids, labels] : segments) {
    const size_t kept = std::min(limited, ids.size());
    const auto begin = limit.truncation == Truncation::kLeft
                           ? ids.end() - static_cast<std::ptrdiff_t>(kept)
                           : ids.begin();
    sample->segments.push_back(static_cast<int32_t>(sample->ids.size()));
    sample->ids.insert(sample->ids.end(), begin, begin + static_cast<std::ptrdiff_t>(kept));
    sample->labels.resize(sample->ids.size(), kIgnoreLabel);
    sample->labels.back() = sample->ids.back();
  }
}

/// REQUIRES: a sample with pictures is cut at its end alone.
void cut_sample(const LengthLimit& limit, Sample* sample) {
  if (limit.kind == SampleKind::kGroups) return cut_texts(limit, sample);
  if (has_answers(limit.kind)) return cut_segments(limit, sample);
  const auto size = static_cast<int64_t>(sample->ids.size());
  if (size <= limit.max_length) return;
  if (limit.truncation == Truncation::kShares && sample->media.empty() &&
      limit.kind == SampleKind::kTokens && sample->segments.size() <= 1 &&
      !sample->labels_are_targets) {
    const std::vector<int32_t> answers = sample->labels;
    cut_turns(limit.max_length, answers, &sample->ids, &sample->labels);
    sample->position_starts = starts_within(sample->position_starts, 0, std::ssize(sample->ids));
    return;
  }
  const int64_t kept = uncut_length(sample->media, limit.max_length);
  const int64_t begin = limit.truncation == Truncation::kLeft ? size - kept : 0;
  const int64_t end = begin + kept;
  keep_spans_before(&sample->media, kept);
  for (std::vector<int32_t>* values : {&sample->ids, &sample->labels}) {
    values->erase(values->begin() + end, values->end());
    values->erase(values->begin(), values->begin() + begin);
  }
  sample->segments = starts_within(sample->segments, begin, end);
  sample->position_starts = starts_within(sample->position_starts, begin, end);
}

/// The first token of a segment is never a target, unless labels are targets.
bool has_target(const Sample& sample) {
  if (sample.labels_are_targets) {
    return std::any_of(sample.labels.begin(), sample.labels.end(),
                       [](int32_t label) { return label != kIgnoreLabel; });
  }
  for (size_t i = 0; i < sample.labels.size(); ++i) {
    if (sample.labels[i] == kIgnoreLabel) continue;
    if (!std::binary_search(sample.segments.begin(), sample.segments.end(),
                            static_cast<int32_t>(i))) {
      return true;
    }
  }
  return false;
}

class LimitedSource : public SampleSource {
 public:
  LimitedSource(std::shared_ptr<const SampleSource> base, LengthLimit limit,
                std::vector<int64_t> kept)
      : base_(std::move(base)), limit_(limit), kept_(std::move(kept)) {}

  int64_t size() const override { return static_cast<int64_t>(kept_.size()); }
  Sample get(int64_t index) const override {
    Sample sample = base_->get(kept_.at(static_cast<size_t>(index)));
    cut_sample(limit_, &sample);
    return sample;
  }
  int64_t length(int64_t index) const override {
    if (limit_.kind == SampleKind::kGroups) return std::ssize(get(index).ids);
    const int64_t segments = limit_.kind == SampleKind::kPairs ? 2 : 1;
    return std::min(base_->length(kept_.at(static_cast<size_t>(index))),
                    segments * limit_.max_length);
  }
  std::vector<MediaSpan> spans(int64_t index) const override {
    const int64_t of_base = kept_.at(static_cast<size_t>(index));
    std::vector<MediaSpan> spans = base_->spans(of_base);
    if (base_->length(of_base) > limit_.max_length)
      keep_spans_before(&spans, uncut_length(spans, limit_.max_length));
    return spans;
  }
  std::string columns(int64_t index) const override {
    return base_->columns(kept_.at(static_cast<size_t>(index)));
  }
  uint64_t content_hash() const override {
    const int64_t about[] = {limit_.max_length, static_cast<int64_t>(limit_.truncation)};
    return hash_bytes({reinterpret_cast<const char*>(about), sizeof about}, base_->content_hash());
  }

 private:
  std::shared_ptr<const SampleSource> base_;
  LengthLimit limit_;
  std::vector<int64_t> kept_;
};

const std::string kRaiseLimit = tr(
    "raise --max-length (--seq-length), or cut long samples with --truncation right, and prompts "
    "that are answered with left");

/// Sorts the samples of one source by what becomes of them.
class Limiter {
 public:
  Limiter(const SampleSource& base, const LengthLimit& limit, const std::string& name,
          PreprocessReport* report)
      : base_(base), limit_(limit), name_(name), report_(report) {}

  void add(int64_t index) {
    ++report_->rows_read;
    const int64_t stored = base_.length(index);
    if (limit_.max_length > 0 && stored > limit_.max_length && !fits(index)) return;
    ++report_->rows_kept;
    const int64_t longest = (limit_.kind == SampleKind::kPairs ? 2 : 1) * limit_.max_length;
    const bool is_bounded = longest > 0 && limit_.kind != SampleKind::kGroups;
    report_->lengths.add(is_bounded ? std::min(stored, longest) : stored);
    kept.push_back(index);
  }

  std::vector<int64_t> kept;
  bool touched = false;  ///< some sample is dropped or cut

 private:
  bool fits(int64_t index) {
    Sample sample = base_.get(index);
    const int64_t length = limited_length(limit_.kind, sample);
    if (length <= limit_.max_length) return true;
    touched = true;
    const std::string reason = fmt::format("longer than {} tokens", limit_.max_length);
    const std::string example = fmt::format("{}: sample {}: {} tokens", name_, index, length);
    if (limit_.truncation == Truncation::kDelete || limit_.truncation == Truncation::kSplit) {
      drop(reason, example);
      return false;
    }
    if (limit_.truncation == Truncation::kLeft && !sample.media.empty()) {
      drop(reason + ", and a cut at its front would take pictures", example);
      return false;
    }
    cut_sample(limit_, &sample);
    if (limit_.kind != SampleKind::kPrompts && !has_target(sample)) {
      drop("no token carries loss after truncation", example);
      return false;
    }
    count_reason(&report_->truncated, reason, [&] { return example; });
    return true;
  }

  void drop(const std::string& reason, const std::string& example) {
    if (limit_.strict)
      throw DataError(tr("{}: {}", example, translated_filled(reason)), kRaiseLimit);
    count_reason(&report_->dropped, reason, [&] { return example; });
  }

  const SampleSource& base_;
  const LengthLimit& limit_;
  const std::string& name_;
  PreprocessReport* report_;
};

}  // namespace

std::shared_ptr<const SampleSource> limit_samples(std::shared_ptr<const SampleSource> base,
                                                  const LengthLimit& limit, const std::string& name,
                                                  PreprocessReport* report) {
  PreprocessReport of_this;
  Limiter limiter(*base, limit, name, &of_this);
  for (int64_t i = 0; i < base->size(); ++i) limiter.add(i);
  if (limiter.kept.empty() && base->size() > 0) {
    throw DataError(tr("{}: none of the {} samples is left: longer than {} tokens, or "
                       "without a target once cut",
                       name, base->size(), limit.max_length),
                    kRaiseLimit);
  }
  of_this.datasets = {fmt::format("{}: preprocessed, {} samples", name, base->size())};
  judge_dropped(&of_this, limit.max_dropped_ratio);
  report->add(of_this);
  if (!limiter.touched) return base;
  return std::make_shared<LimitedSource>(std::move(base), limit, std::move(limiter.kept));
}

}  // namespace danlu::data
