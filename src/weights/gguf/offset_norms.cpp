#include "weights/gguf/offset_norms.h"

#include <cstring>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "weights/cast.h"
#include "weights/source_base.h"

namespace danlu::weights::gguf {
namespace {

constexpr const char* kExactNorms = "danlu.norms";

/// Names of the norms of a model that scales by 1 + w, in the order of its parameters; else none.
std::vector<std::string> offset_norms(const arch::ModelConfig& config) {
  std::vector<std::string> names;
  if (config.norm != arch::NormKind::kRmsOffset) return names;
  for (const arch::ParamSpec& spec : arch::parameters_of(config)) {
    if (spec.shape.size() == 1 && !spec.is_bias) names.push_back(spec.name);
  }
  return names;
}

std::vector<float> floats_of(const TensorSource& source, const TensorInfo& info, int64_t begin,
                             int64_t end) {
  const auto count = static_cast<size_t>(end - begin);
  std::vector<std::byte> stored(count * dtype_size_bytes(info.dtype));
  source.read_range(info.name, begin, end, stored);
  std::vector<float> numbers(count);
  cast_weights(source, info, stored.data(), reinterpret_cast<std::byte*>(numbers.data()),
               DType::kF32, count);
  return numbers;
}

/// Every tensor, and where a norm's numbers begin among those of all norms; -1: it is none.
using Places = std::vector<std::pair<TensorInfo, int64_t>>;

Places places_in(const TensorSource& source, const arch::ModelConfig& config) {
  std::map<std::string, int64_t> begins;
  int64_t next = 0;
  for (const std::string& name : offset_norms(config)) {
    const TensorInfo* info = source.find(name);
    if (!info) continue;  // who opens the source says so
    begins[name] = next;
    next += info->num_elements();
  }
  Places places;
  for (const TensorInfo& info : source.tensors()) {
    const auto begin = begins.find(info.name);
    places.emplace_back(info, begin == begins.end() ? -1 : begin->second);
    if (begin != begins.end()) places.back().first.dtype = DType::kF32;
  }
  return places;
}

enum class Way { kAdd, kTake };

class OffsetNorms final : public SourceBase<int64_t> {
 public:
  OffsetNorms(std::shared_ptr<const TensorSource> from, Places places, Way way,
              std::vector<float> exact)
      : from_(std::move(from)), way_(way), exact_(std::move(exact)) {
    set_tensors(std::move(places));
    metadata_ = from_->metadata();
    if (const auto files = from_->files(); !files.empty()) first_file_ = files.front();
  }
  void read(const std::string& name, std::span<std::byte> out) const override {
    read_range(name, 0, infos_[place(name)].num_elements(), out);
  }
  void read_range(const std::string& name, int64_t begin, int64_t end,
                  std::span<std::byte> out) const override {
    const size_t at = place(name);
    if (locations_[at] < 0) return from_->read_range(name, begin, end, out);
    check_range(infos_[at], begin, end, out.size());
    std::vector<float> numbers = floats_of(*from_, *from_->find(name), begin, end);
    for (size_t i = 0; i < numbers.size(); ++i)
      numbers[i] = changed(numbers[i], static_cast<size_t>(locations_[at] + begin) + i);
    std::memcpy(out.data(), numbers.data(), out.size());
  }
  void read_rect(const std::string& name, const Rect& rect, std::byte* out,
                 int64_t out_stride) const override {
    if (locations_[place(name)] < 0) return from_->read_rect(name, rect, out, out_stride);
    TensorSource::read_rect(name, rect, out, out_stride);
  }
  std::span<const std::byte> mapped(const std::string& name) const override {
    return locations_[place(name)] < 0 ? from_->mapped(name) : std::span<const std::byte>();
  }
  Storage storage(const std::string& name) const override { return from_->storage(name); }
  std::optional<Nf4Form> nf4_form(const std::string& name) const override {
    return from_->nf4_form(name);
  }
  Nf4Codes read_nf4(const std::string& name) const override { return from_->read_nf4(name); }
  std::filesystem::path file_of(const std::string& name) const override {
    return from_->file_of(name);
  }
  std::vector<std::filesystem::path> files() const override { return from_->files(); }
  void forget() const override { from_->forget(); }

 private:
  size_t place(const std::string& name) const { return index_of(name, first_file_); }
  /// index: among the numbers of all norms.
  float changed(float number, size_t index) const {
    if (way_ == Way::kAdd) return 1.0f + number;
    // A file whose norms were changed since has other numbers.
    if (index < exact_.size() && 1.0f + exact_[index] == number) return exact_[index];
    return number - 1.0f;
  }

  std::shared_ptr<const TensorSource> from_;
  std::filesystem::path first_file_;  ///< for errors
  Way way_;
  std::vector<float> exact_;
};

void append_exact_norms(const TensorSource& source, const arch::ModelConfig& config,
                        Metadata& metadata) {
  std::vector<float> all;
  bool comes_back = true;
  for (const std::string& name : offset_norms(config)) {
    const TensorInfo* info = source.find(name);
    if (!info) continue;
    for (const float number : floats_of(source, *info, 0, info->num_elements())) {
      const float back = (1.0f + number) - 1.0f;
      comes_back &= std::memcmp(&back, &number, sizeof back) == 0;
      all.push_back(number);
    }
  }
  if (!comes_back) metadata.emplace_back(kExactNorms, number_array(all));
}

}  // namespace

std::shared_ptr<const TensorSource> with_one_added(std::shared_ptr<const TensorSource> source,
                                                   const arch::ModelConfig& config,
                                                   Metadata& metadata) {
  if (config.norm != arch::NormKind::kRmsOffset) return source;
  if (!find(metadata, kExactNorms)) append_exact_norms(*source, config, metadata);
  Places places = places_in(*source, config);
  return std::make_shared<OffsetNorms>(std::move(source), std::move(places), Way::kAdd,
                                       std::vector<float>());
}

std::shared_ptr<const TensorSource> with_one_taken(std::shared_ptr<const TensorSource> source,
                                                   const arch::ModelConfig& config,
                                                   const Metadata& metadata) {
  if (config.norm != arch::NormKind::kRmsOffset) return source;
  const Value* key = find(metadata, kExactNorms);
  const auto* list = key ? std::get_if<Array>(key) : nullptr;
  std::vector<float> exact = list ? list->as<float>() : std::vector<float>();
  Places places = places_in(*source, config);
  return std::make_shared<OffsetNorms>(std::move(source), std::move(places), Way::kTake,
                                       std::move(exact));
}

}  // namespace danlu::weights::gguf
