#include "weights/hf/stacked_experts.h"

#include <map>
#include <string>
#include <string_view>

#include "arch/stacked_experts.h"
#include "weights/layout_source.h"

namespace danlu::weights {
namespace {

using arch::Role;

/// The stacked tensors of one layer.
struct StackedLayer {
  std::string gate_up, down;                         ///< their names in files
  std::vector<std::string> gate_of, up_of, down_of;  ///< of each expert
};

/// "…experts.3.gate_proj.weight" -> "…experts."
std::string place_of_experts(const arch::ParamSpec& spec) {
  const std::string number = "." + std::to_string(spec.expert) + ".";
  return spec.name.substr(0, spec.name.rfind(number) + 1);
}

std::vector<StackedLayer> stacked_layers(const arch::ModelConfig& config) {
  std::map<int64_t, StackedLayer> layers;
  for (const arch::ParamSpec& spec : arch::parameters_of(config)) {
    if (spec.expert < 0) continue;
    StackedLayer& layer = layers[spec.layer];
    if (spec.expert == 0 && spec.role == Role::kExpertGate)
      layer.gate_up = place_of_experts(spec) + "gate_up_proj";
    if (spec.expert == 0 && spec.role == Role::kExpertDown)
      layer.down = place_of_experts(spec) + "down_proj";
    (spec.role == Role::kExpertGate ? layer.gate_of
     : spec.role == Role::kExpertUp ? layer.up_of
                                    : layer.down_of)
        .push_back(spec.name);
  }
  std::vector<StackedLayer> all;
  for (auto& [number, layer] : layers) all.push_back(std::move(layer));
  return all;
}

/// One below the other, of each expert the matrices that `parts` name: turned over and beside each
/// other, or as they are and below each other. at(name): its place among the global tensors.
template <typename At>
StoredTensor stacked(const std::string& name, const std::vector<std::vector<std::string>>& parts,
                     bool is_turned, const std::vector<TensorInfo>& globals, const At& at) {
  const auto experts = static_cast<int64_t>(parts.front().size());
  const auto count = static_cast<int64_t>(parts.size());
  const Rect first = matrix_of(globals[at(parts.front().front())].shape);
  const int64_t width = first.rows;
  const int64_t rows = is_turned ? first.cols : width * count,
                cols = is_turned ? width * count : first.cols;
  StoredTensor stored;
  stored.info = {name, globals[at(parts.front().front())].dtype, {experts, rows, cols}};
  for (int64_t expert = 0; expert < experts; ++expert) {
    Section section{.first = expert * rows * cols, .rows = rows, .cols = cols};
    for (size_t part = 0; part < parts.size(); ++part) {
      const size_t global = at(parts[part][static_cast<size_t>(expert)]);
      const int64_t before = static_cast<int64_t>(part) * width;
      section.pieces.push_back({.global = global,
                                .of = matrix_of(globals[global].shape),
                                .row = is_turned ? 0 : before,
                                .col = is_turned ? before : 0,
                                .transposed = is_turned});
    }
    stored.sections.push_back(std::move(section));
  }
  return stored;
}

std::map<std::string, size_t> places_by_name(const std::vector<TensorInfo>& globals) {
  std::map<std::string, size_t> places;
  for (size_t i = 0; i < globals.size(); ++i) places.emplace(globals[i].name, i);
  return places;
}

}  // namespace

std::shared_ptr<const TensorSource> with_single_experts(std::shared_ptr<const TensorSource> source,
                                                        const arch::ModelConfig& config) {
  if (!arch::stacks_experts(config) || !config.has_experts()) return source;
  std::map<std::string, std::vector<int64_t>> shapes;
  for (const arch::ParamSpec& spec : arch::parameters_of(config)) {
    if (spec.expert >= 0) shapes.emplace(spec.name, spec.shape);
  }
  Layout layout;
  layout.files = {source->files().empty() ? "" : source->files().front().string()};
  std::map<std::string, const TensorInfo*> others;
  for (const TensorInfo& info : source->tensors()) others.emplace(info.name, &info);
  struct Found {
    std::string name;
    std::vector<std::vector<std::string>> parts;
  };
  std::vector<Found> found;
  for (StackedLayer& layer : stacked_layers(config)) {
    if (others.erase(layer.gate_up))
      found.push_back({layer.gate_up, {std::move(layer.gate_of), std::move(layer.up_of)}});
    if (others.erase(layer.down)) found.push_back({layer.down, {std::move(layer.down_of)}});
  }
  if (found.empty()) return source;
  for (const Found& tensor : found) {
    const DType dtype = source->find(tensor.name)->dtype;
    for (const auto& names : tensor.parts) {
      for (const std::string& name : names)
        layout.globals.push_back({name, dtype, shapes.at(name)});
    }
  }
  const std::map<std::string, size_t> places = places_by_name(layout.globals);
  for (const Found& tensor : found) {
    layout.tensors.push_back(stacked(tensor.name, tensor.parts, arch::turns_stacked_experts(config),
                                     layout.globals,
                                     [&](const std::string& name) { return places.at(name); }));
  }
  for (const auto& [name, info] : others) {
    layout.tensors.push_back(whole_tensor(0, name, layout.globals.size(), *info));
    layout.globals.push_back(*info);
  }
  return open_layout(std::move(layout), {std::move(source)});
}

std::vector<StoredTensor> stacked_in_files(const arch::ModelConfig& config,
                                           const std::vector<TensorInfo>& globals) {
  // By the name of the first tensor of theirs.
  std::map<std::string, StoredTensor> stacks;
  std::map<std::string, std::string> first_of;  // of any tensor that is in a stack
  if (arch::stacks_experts(config)) {
    const std::map<std::string, size_t> places = places_by_name(globals);
    const auto at = [&](const std::string& name) { return places.at(name); };
    const auto add = [&](const std::string& name,
                         const std::vector<std::vector<std::string>>& parts) {
      if (!places.count(parts.front().front())) return;
      const std::string& first = parts.front().front();
      stacks.emplace(first, stacked(name, parts, arch::turns_stacked_experts(config), globals, at));
      for (const auto& names : parts) {
        for (const std::string& each : names) first_of.emplace(each, first);
      }
    };
    for (const StackedLayer& layer : stacked_layers(config)) {
      add(layer.gate_up, {layer.gate_of, layer.up_of});
      add(layer.down, {layer.down_of});
    }
  }
  std::vector<StoredTensor> all;
  for (size_t i = 0; i < globals.size(); ++i) {
    const auto first = first_of.find(globals[i].name);
    if (first == first_of.end()) {
      all.push_back(whole_tensor(0, globals[i].name, i, globals[i]));
    } else if (first->second == globals[i].name) {
      all.push_back(std::move(stacks.at(globals[i].name)));
    }
  }
  return all;
}

}  // namespace danlu::weights
