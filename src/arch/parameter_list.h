// arch/parameter_list.h: how kinds of layers say what parameters they have.
#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "arch/model_config.h"

namespace danlu::arch {

/// Appends parameters in order; knows the naming, not the architecture.
class ParameterList {
 public:
  ParameterList(std::string prefix, int64_t layer, std::vector<ParamSpec>& out, int64_t expert = -1)
      : prefix_(std::move(prefix)), layer_(layer), out_(out), expert_(expert) {}

  /// A list for one place of the vision tower.
  static ParameterList of_tower(std::string prefix, int64_t place, std::vector<ParamSpec>& out) {
    ParameterList list(std::move(prefix), -1, out);
    list.tower_place_ = place;
    return list;
  }

  /// Appends to the same list under a longer prefix.
  ParameterList within(const std::string& name, int64_t expert = -1) const {
    return {prefix_ + name, layer_, out_, expert};
  }

  void weight(Role role, const std::string& name, std::vector<int64_t> shape, Cut cut) {
    add(role, name + ".weight", std::move(shape), false, cut);
  }
  /// `name` is the whole name.
  void vector(Role role, const std::string& name, int64_t size, Cut cut) {
    add(role, name, {size}, false, cut);
  }
  void bias(Role role, const std::string& name, int64_t size, Cut cut) {
    add(role, name + ".bias", {size}, true, cut);
  }
  /// weight [rows, columns] and, if `has_bias`, bias [rows].
  void linear(Role role, const std::string& name, int64_t rows, int64_t columns, Cut cut,
              bool has_bias) {
    weight(role, name, {rows, columns}, cut);
    // A column-cut product is summed over ranks: its bias is added once, by all alike.
    if (has_bias) bias(role, name, rows, cut == Cut::kColumns ? Cut::kCopiedBetween : cut);
  }

 private:
  void add(Role role, const std::string& name, std::vector<int64_t> shape, bool is_bias, Cut cut) {
    out_.push_back({.name = prefix_ + name,
                    .shape = std::move(shape),
                    .role = role,
                    .layer = layer_,
                    .is_bias = is_bias,
                    .cut = cut,
                    .expert = expert_,
                    .tower_place = tower_place_});
  }

  std::string prefix_;
  int64_t layer_;
  std::vector<ParamSpec>& out_;
  int64_t expert_;
  int64_t tower_place_ = -1;
};

}  // namespace danlu::arch
