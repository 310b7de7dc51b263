#include "data/sample_views.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/rng.h"

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
    }
    return result;
  }
  int64_t length(int64_t index) const override {
    int64_t sum = 0;
    for (const int64_t member : group(index)) sum += base_->length(member);
    return sum;
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
  uint64_t content_hash() const override { return hash_; }

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

}  // namespace

std::shared_ptr<const SampleSource> packs_of(std::shared_ptr<const SampleSource> base,
                                             Packs packs) {
  return std::make_shared<Packed>(std::move(base), std::move(packs));
}

std::shared_ptr<const SampleSource> joined(std::vector<std::shared_ptr<const SampleSource>> parts) {
  if (parts.size() == 1) return parts[0];
  return std::make_shared<Joined>(std::move(parts));
}

}  // namespace danlu::data
