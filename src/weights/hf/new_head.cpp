#include "weights/hf/new_head.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "weights/convert/joined_source.h"
#include "weights/hf/renamed_source.h"
#include "weights/source_base.h"

namespace danlu::weights {
namespace {

/// Tensors of zeros, which lie nowhere.
class ZeroTensors final : public SourceBase<char> {
 public:
  explicit ZeroTensors(const std::vector<TensorInfo>& infos) {
    std::vector<std::pair<TensorInfo, char>> tensors;
    for (const TensorInfo& info : infos) tensors.emplace_back(info, '\0');
    set_tensors(std::move(tensors));
  }
  void read(const std::string& name, std::span<std::byte> out) const override {
    read_range(name, 0, info_of(name).num_elements(), out);
  }
  void read_range(const std::string& name, int64_t begin, int64_t end,
                  std::span<std::byte> out) const override {
    check_range(info_of(name), begin, end, out.size());
    std::fill(out.begin(), out.end(), std::byte{0});
  }
  std::span<const std::byte> mapped(const std::string&) const override { return {}; }
  std::filesystem::path file_of(const std::string&) const override { return "-"; }
  std::vector<std::filesystem::path> files() const override { return {}; }

 private:
  const TensorInfo& info_of(const std::string& name) const { return infos_[index_of(name, "-")]; }
};

}  // namespace

std::shared_ptr<const TensorSource> with_empty_head(std::shared_ptr<const TensorSource> source,
                                                    const arch::ModelConfig& config) {
  std::vector<TensorInfo> missing;
  for (const arch::ParamSpec& spec : arch::parameters_of(config)) {
    const bool is_head = spec.role == arch::Role::kScore || spec.role == arch::Role::kScoreDense;
    if (!is_head || source->find(spec.name)) continue;
    missing.push_back({.name = spec.name, .dtype = DType::kF32, .shape = spec.shape});
  }
  if (missing.empty()) return source;
  return join_tensors(std::move(source), std::make_shared<ZeroTensors>(missing));
}

void drop_zero_bias(std::shared_ptr<const TensorSource>& source, arch::ModelConfig& config) {
  if (!config.score || config.score->labels != 1) return;
  const std::string bias = config.score->module() + ".bias";
  const TensorInfo* const info = source->find(bias);
  if (!info) return;
  std::vector<std::byte> bytes(info->size_bytes());
  source->read(bias, bytes);
  if (std::any_of(bytes.begin(), bytes.end(), [](std::byte one) { return one != std::byte{0}; }))
    return;
  RenamedSource::Names names;
  for (const TensorInfo& kept : source->tensors()) {
    if (kept.name != bias) names.emplace(kept.name, kept.name);
  }
  source = std::make_shared<RenamedSource>(source, names);
  config = arch::with_score(config, {.form = arch::ScoreForm::kSequence, .labels = 1});
}

}  // namespace danlu::weights
