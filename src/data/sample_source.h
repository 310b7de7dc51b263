// data/sample_source.h: random access to tokenised samples.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/batch.h"
#include "data/sample_order.h"

namespace danlu::data {

/// Samples by index. Thread-safe.
class SampleSource {
 public:
  virtual ~SampleSource() = default;
  virtual int64_t size() const = 0;
  /// Errors: DataError naming file and index for damaged data.
  virtual Sample get(int64_t index) const = 0;
  /// Tokens of sample `index`, without reading them.
  virtual int64_t length(int64_t index) const = 0;
  /// Its pictures and videos without their files, whose bytes are not read. Errors: as get.
  virtual std::vector<MediaSpan> spans(int64_t index) const { return get(index).media; }
  /// Hash of the content: resuming checks that the data did not change.
  virtual uint64_t content_hash() const = 0;
  /// For prompts: the row's other columns as the text of a JSON object, for rewards. "": none.
  virtual std::string columns(int64_t index) const {
    (void)index;
    return {};
  }
};

/// Samples held in memory.
class VectorSource : public SampleSource {
 public:
  explicit VectorSource(std::vector<Sample> samples) : samples_(std::move(samples)) {}
  int64_t size() const override { return static_cast<int64_t>(samples_.size()); }
  Sample get(int64_t index) const override { return samples_.at(static_cast<size_t>(index)); }
  int64_t length(int64_t index) const override {
    return static_cast<int64_t>(samples_.at(static_cast<size_t>(index)).ids.size());
  }
  uint64_t content_hash() const override;

 private:
  std::vector<Sample> samples_;
};

/// Sample i is sample ids[i] of another source: subsets, repetitions and prescribed orders.
class SelectedSource : public SampleSource {
 public:
  /// Errors: InternalError if an id is not in [0, base->size()).
  SelectedSource(std::shared_ptr<const SampleSource> base, std::vector<int64_t> ids);
  int64_t size() const override { return static_cast<int64_t>(ids_.size()); }
  Sample get(int64_t index) const override {
    return base_->get(ids_.at(static_cast<size_t>(index)));
  }
  int64_t length(int64_t index) const override {
    return base_->length(ids_.at(static_cast<size_t>(index)));
  }
  std::vector<MediaSpan> spans(int64_t index) const override {
    return base_->spans(ids_.at(static_cast<size_t>(index)));
  }
  uint64_t content_hash() const override;
  std::string columns(int64_t index) const override {
    return base_->columns(ids_.at(static_cast<size_t>(index)));
  }

 private:
  std::shared_ptr<const SampleSource> base_;
  std::vector<int64_t> ids_;
};

}  // namespace danlu::data
