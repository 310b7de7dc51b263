#include "weights/hf/stored_form.h"

#include <set>
#include <string>
#include <utility>

#include "arch/turned_matrices.h"
#include "weights/hf/packed_weights.h"
#include "weights/hf/stacked_experts.h"
#include "weights/layout_source.h"
#include "weights/lora/adapter_places.h"

namespace danlu::weights {
namespace {

/// Names of the matrices that files of the family hold turned over.
std::set<std::string> turned_matrices(const arch::ModelConfig& config) {
  std::set<std::string> names;
  if (!arch::turns_matrices(config)) return names;
  for (const arch::ParamSpec& spec : arch::parameters_of(config)) {
    if (spec.layer >= 0 && spec.shape.size() == 2) names.insert(spec.name);
  }
  return names;
}

/// The matrix `global` [out, in] in a file as [in, out].
StoredTensor turned_over(const TensorInfo& info, size_t global) {
  const Rect matrix = matrix_of(info.shape);
  StoredTensor stored;
  stored.info = {info.name, info.dtype, {matrix.cols, matrix.rows}};
  stored.sections.push_back({.rows = matrix.cols,
                             .cols = matrix.rows,
                             .pieces = {{.global = global, .of = matrix, .transposed = true}}});
  return stored;
}

/// Names, among `infos` of an adapter, of such matrices that are saved whole.
std::set<std::string> turned_in_adapter(const arch::ModelConfig& config,
                                        const std::vector<TensorInfo>& infos) {
  const std::set<std::string> of_model = turned_matrices(config);
  std::set<std::string> names;
  if (of_model.empty()) return names;
  for (const TensorInfo& info : infos) {
    const auto name = parse_adapter_name(info.name);
    if (name && name->part == AdapterPart::kSavedModule &&
        of_model.count(base_module(*name) + ".weight"))
      names.insert(info.name);
  }
  return names;
}

/// Whole tensors, those in `turned` as [in, out].
std::vector<StoredTensor> stored_turned(const std::vector<TensorInfo>& globals,
                                        const std::set<std::string>& turned) {
  std::vector<StoredTensor> all;
  for (size_t i = 0; i < globals.size(); ++i) {
    all.push_back(turned.count(globals[i].name) ? turned_over(globals[i], i)
                                                : whole_tensor(0, globals[i].name, i, globals[i]));
  }
  return all;
}

std::shared_ptr<const TensorSource> with_turned_matrices(std::shared_ptr<const TensorSource> source,
                                                         const std::set<std::string>& turned) {
  if (turned.empty()) return source;
  Layout layout;
  layout.files = {source->files().empty() ? "" : source->files().front().string()};
  for (const TensorInfo& info : source->tensors()) {
    const size_t global = layout.globals.size();
    if (turned.count(info.name) && info.shape.size() == 2) {
      layout.globals.push_back({info.name, info.dtype, {info.shape[1], info.shape[0]}});
      layout.tensors.push_back(turned_over(layout.globals.back(), global));
    } else {
      layout.globals.push_back(info);
      layout.tensors.push_back(whole_tensor(0, info.name, global, info));
    }
  }
  return open_layout(std::move(layout), {std::move(source)});
}

}  // namespace

std::shared_ptr<const TensorSource> as_parameters(std::shared_ptr<const TensorSource> source,
                                                  const arch::ModelConfig& config) {
  source = with_single_experts(std::move(source), config);
  std::set<std::string> turned = turned_matrices(config);
  std::erase_if(turned, [&](const std::string& name) {
    return source->find(name) != nullptr &&
           (source->nf4_form(name).has_value() || is_packed_linear(*source, name));
  });
  return with_turned_matrices(std::move(source), turned);
}

std::shared_ptr<const TensorSource> as_adapter_parameters(
    std::shared_ptr<const TensorSource> source, const arch::ModelConfig& config) {
  const std::set<std::string> turned = turned_in_adapter(config, source->tensors());
  return with_turned_matrices(std::move(source), turned);
}

std::vector<StoredTensor> stored_in_files(const arch::ModelConfig& config,
                                          const std::vector<TensorInfo>& globals) {
  if (arch::turns_matrices(config)) return stored_turned(globals, turned_matrices(config));
  return stacked_in_files(config, globals);
}

std::vector<StoredTensor> stored_in_adapter(const arch::ModelConfig& config,
                                            const std::vector<TensorInfo>& globals) {
  return stored_turned(globals, turned_in_adapter(config, globals));
}

}  // namespace danlu::weights
