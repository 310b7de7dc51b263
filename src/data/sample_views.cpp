#include "data/sample_views.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/rng.h"
#include "data/answer_cut.h"

namespace danlu::data {
namespace {

class Packed : public SampleSource {
 public:
  Packed(std::shared_ptr<const SampleSource> base, Packs packs)
      : base_(std::move(base)), packs_(std::move(packs)) {
    hash_ = mix64(base_->content_hash(), static_cast<uint64_t>(packs_.size()));
    for (const int64_t sample : packs_.samples) hash_ = mix64(hash_, static_cast<uint64_t>(sample));
  }
  int64_t size() const override { return packs_.size(); }
  Sample get(int64_t index) const override {
    Sample result;
    result.segments.clear();
    for (const int64_t member : group(index)) {
      const Sample sample = base_->get(member);
      const auto offset = static_cast<int32_t>(result.ids.size());
      for (const int32_t start : sample.segments) result.segments.push_back(offset + start);
      append_spans(sample.media, offset, &result.media);
      result.ids.insert(result.ids.end(), sample.ids.begin(), sample.ids.end());
      result.labels.insert(result.labels.end(), sample.labels.begin(), sample.labels.end());
      result.segment_values.insert(result.segment_values.end(), sample.segment_values.begin(),
                                   sample.segment_values.end());
      result.segment_labels.insert(result.segment_labels.end(), sample.segment_labels.begin(),
                                   sample.segment_labels.end());
      result.labels_are_targets = sample.labels_are_targets;
    }
    return result;
  }
  int64_t length(int64_t index) const override {
    int64_t sum = 0;
    for (const int64_t member : group(index)) sum += base_->length(member);
    return sum;
  }
  std::vector<MediaSpan> spans(int64_t index) const override {
    std::vector<MediaSpan> all;
    int64_t offset = 0;
    for (const int64_t member : group(index)) {
      append_spans(base_->spans(member), offset, &all);
      offset += base_->length(member);
    }
    return all;
  }
  uint64_t content_hash() const override { return hash_; }

 private:
  std::span<const int64_t> group(int64_t index) const {
    if (index < 0 || index >= size()) {
      throw InternalError(fmt::format("pack {} of {}", index, size()));
    }
    return packs_.group(index);
  }
  std::shared_ptr<const SampleSource> base_;
  Packs packs_;
  uint64_t hash_ = 0;
};

class Joined : public SampleSource {
 public:
  explicit Joined(std::vector<std::shared_ptr<const SampleSource>> parts)
      : parts_(std::move(parts)) {
    for (const auto& part : parts_) {
      ends_.push_back((ends_.empty() ? 0 : ends_.back()) + part->size());
      hash_ = mix64(hash_, part->content_hash());
    }
  }
  int64_t size() const override { return ends_.back(); }
  Sample get(int64_t index) const override {
    const size_t part = part_of(index);
    return parts_[part]->get(index - start(part));
  }
  int64_t length(int64_t index) const override {
    const size_t part = part_of(index);
    return parts_[part]->length(index - start(part));
  }
  std::vector<MediaSpan> spans(int64_t index) const override {
    const size_t part = part_of(index);
    return parts_[part]->spans(index - start(part));
  }
  uint64_t content_hash() const override { return hash_; }
  std::string columns(int64_t index) const override {
    const size_t part = part_of(index);
    return parts_[part]->columns(index - start(part));
  }

 private:
  int64_t start(size_t part) const { return part == 0 ? 0 : ends_[part - 1]; }
  size_t part_of(int64_t index) const {
    if (index < 0 || index >= size()) {
      throw InternalError(fmt::format("sample {} of {}", index, size()));
    }
    return static_cast<size_t>(std::upper_bound(ends_.begin(), ends_.end(), index) - ends_.begin());
  }
  std::vector<std::shared_ptr<const SampleSource>> parts_;
  std::vector<int64_t> ends_;
  uint64_t hash_ = 0;
};

class WithPreviousAnswers : public SampleSource {
 public:
  WithPreviousAnswers(std::shared_ptr<const SampleSource> base, int64_t max_length,
                      bool keep_prompt_end)
      : base_(std::move(base)), max_length_(max_length), keep_prompt_end_(keep_prompt_end) {
    std::vector<uint64_t> hashes;  // of prompts
    for (int64_t i = 0; i < base_->size(); ++i) {
      const Sample sample = base_->get(i);
      prompts_.push_back(static_cast<int32_t>(prompt_length(sample.labels)));
      answers_.push_back(static_cast<int32_t>(std::ssize(sample.ids)) - prompts_.back());
      hashes.push_back(hash_bytes({reinterpret_cast<const char*>(sample.ids.data()),
                                   sizeof(int32_t) * static_cast<size_t>(prompts_.back())}));
    }
    find_lenders(hashes);
  }
  int64_t size() const override { return base_->size(); }
  Sample get(int64_t index) const override {
    Sample sample = base_->get(index);
    const int64_t prompt = prompt_length(sample.labels);
    std::vector<int32_t> ids(sample.ids.begin(), sample.ids.begin() + prompt);
    std::vector<int32_t> labels(static_cast<size_t>(prompt), kIgnoreLabel);
    const Sample other = base_->get(before(index));
    const int64_t answer = prompt_length(other.labels);
    ids.insert(ids.end(), other.ids.begin() + answer, other.ids.end());
    labels.insert(labels.end(), other.labels.begin() + answer, other.labels.end());
    if (is_cut(index)) cut_answer(shares_of(index), keep_prompt_end_, &ids, &labels);
    sample.segments.push_back(static_cast<int32_t>(sample.ids.size()));
    sample.ids.insert(sample.ids.end(), ids.begin(), ids.end());
    sample.labels.insert(sample.labels.end(), labels.begin(), labels.end());
    sample.segment_values.push_back(0);
    return sample;
  }
  int64_t length(int64_t index) const override {
    const AnswerShares second = shares_of(index);
    return prompts_[at(index)] + answers_[at(index)] + second.prompt + second.answer;
  }
  uint64_t content_hash() const override {
    const uint64_t plain =
        mix64(base_->content_hash(), mix64(static_cast<uint64_t>(max_length_), keep_prompt_end_));
    return skips_ ? mix64(plain, 1) : plain;
  }

 private:
  static size_t at(int64_t index) { return static_cast<size_t>(index); }
  int64_t before(int64_t index) const { return lenders_[at(index)]; }
  /// The nearest row before each one, in a circle, that has another prompt: an answer to the same
  /// one is trained itself. Where all prompts are one, the row before.
  void find_lenders(const std::vector<uint64_t>& prompts) {
    const int64_t count = size();
    const auto previous = [&](int64_t row) { return row == 0 ? count - 1 : row - 1; };
    for (int64_t row = 0; row < count; ++row) lenders_.push_back(previous(row));
    int64_t first = 0;
    while (first < count && prompts[at(first)] == prompts[at(previous(first))]) ++first;
    if (first == count) {
      if (count > 1) {
        log::warning(
            "[kto] all {} rows have one prompt: the drift from the reference is measured on "
            "answers that are trained themselves",
            count);
      }
      return;
    }
    for (int64_t step = 1; step < count; ++step) {
      const int64_t row = (first + step) % count, last = previous(row);
      if (prompts[at(row)] != prompts[at(last)]) continue;
      lenders_[at(row)] = lenders_[at(last)];
      skips_ = true;
    }
  }
  bool is_cut(int64_t index) const {
    return max_length_ > 0 && prompts_[at(index)] + answers_[at(before(index))] > max_length_;
  }
  AnswerShares shares_of(int64_t index) const {
    const int64_t prompt = prompts_[at(index)], answer = answers_[at(before(index))];
    return is_cut(index) ? shares_within(prompt, answer, max_length_)
                         : AnswerShares{prompt, answer};
  }

  std::shared_ptr<const SampleSource> base_;
  int64_t max_length_;
  bool keep_prompt_end_;
  std::vector<int32_t> prompts_, answers_;  ///< tokens of each
  std::vector<int64_t> lenders_;            ///< of each the row whose answer it gets
  bool skips_ = false;                      ///< whether one of them is not the row before
};

}  // namespace

std::shared_ptr<const SampleSource> packs_of(std::shared_ptr<const SampleSource> base,
                                             Packs packs) {
  return std::make_shared<Packed>(std::move(base), std::move(packs));
}

std::shared_ptr<const SampleSource> joined(std::vector<std::shared_ptr<const SampleSource>> parts) {
  if (parts.size() == 1) return parts[0];
  return std::make_shared<Joined>(std::move(parts));
}

std::shared_ptr<const SampleSource> with_previous_answers(std::shared_ptr<const SampleSource> base,
                                                          int64_t max_length,
                                                          bool keep_prompt_end) {
  return std::make_shared<WithPreviousAnswers>(std::move(base), max_length, keep_prompt_end);
}

}  // namespace danlu::data
