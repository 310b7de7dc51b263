// weights/megatron/lora_names.h: the names of matrices and of their adapters in a file. Internal to
// weights/megatron.
#pragma once
#include <optional>
#include <string>

namespace danlu::weights::megatron {

/// A linear layer's matrix: "X.weight", or of experts beside each other "X.weight3"
/// (ExpertForm::kTeGrouped). Its adapter's are "X.lora_A.default.weight" and
/// "X.lora_A.default.weight3". Source: PEFT's names; ms-swift's LoraParallelLinear.
struct MatrixName {
  std::string module;  ///< "X", without ".base_layer"
  std::string matrix;  ///< ".weight3"

  std::string base() const { return module + ".base_layer" + matrix; }
  std::string a() const { return module + ".lora_A.default" + matrix; }
  std::string b() const { return module + ".lora_B.default" + matrix; }
};

inline std::optional<MatrixName> matrix_name(const std::string& name) {
  const size_t dot = name.rfind('.');
  constexpr std::string_view kWeight = ".weight", kBase = ".base_layer";
  if (dot == std::string::npos || name.compare(dot, kWeight.size(), kWeight) != 0 ||
      name.find_first_not_of("0123456789", dot + kWeight.size()) != std::string::npos)
    return std::nullopt;
  MatrixName found{name.substr(0, dot), name.substr(dot)};
  if (found.module.ends_with(kBase)) found.module.resize(found.module.size() - kBase.size());
  // GroupedMLP's weight1 and weight2 are no linear layers'.
  if (found.matrix != kWeight && found.module.ends_with(".experts")) return std::nullopt;
  return found;
}

}  // namespace danlu::weights::megatron
