#include "weights/megatron/group_check.h"

#include <fmt/format.h>

#include "base/error.h"

namespace danlu::weights::megatron {
namespace {

using torch_file::PyKind;
using torch_file::PyValue;

[[noreturn]] void refuse(const std::string& where, const std::string& what) {
  throw ModelError(
      tr("{}: {}", where, what),
      tr("was it saved by a run that trains every parameter of this model with Adam?"));
}

void check_group(const PyValue& group, const ParameterGroup& expected, const std::string& where) {
  if (const PyValue* own = group.find("is_decoupled_lr"); own && *own == PyValue::boolean(true))
    refuse(where, "is_decoupled_lr is True; states of runs with --decoupled-lr are not converted");
  const double decay = expected.no_weight_decay ? 0.0 : 1.0;
  if (const PyValue* got = group.find("wd_mult"); got && got->as_float(where) != decay)
    refuse(where, tr("wd_mult is {}, expected {}", got->repr(), decay));
  const PyValue* params = group.find("params");
  const size_t count = params ? params->as_items(where + ".params").size() : expected.ids.size();
  if (count != expected.ids.size())
    refuse(where, fmt::format("{} parameters, expected {}", count, expected.ids.size()));
}

void check_member(const PyValue& optimizer, const RankOptimizer& expected,
                  const std::string& where) {
  const PyValue* inner = optimizer.find("optimizer");
  const PyValue* found = (inner ? *inner : optimizer).find("param_groups");
  if (!found) refuse(where, "no param_groups in it");
  const std::vector<PyValue>& groups = found->as_items(where + ".param_groups");
  if (groups.size() != expected.groups.size()) {
    refuse(where,
           fmt::format("{} param_groups, expected {}", groups.size(), expected.groups.size()));
  }
  for (size_t i = 0; i < groups.size(); ++i)
    check_group(groups[i], expected.groups[i], fmt::format("{}.param_groups[{}]", where, i));
}

std::string shown(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace).substr(0, 60);
}

}  // namespace

void check_groups(const PyValue& optimizer, const std::vector<RankOptimizer>& members,
                  const std::string& where) {
  if (!optimizer.is(PyKind::kList)) {
    if (members.size() != 1)
      refuse(where, tr("one optimizer, expected a list of {}", members.size()));
    return check_member(optimizer, members[0], where);
  }
  const std::vector<PyValue>& items = optimizer.items();
  if (items.size() != members.size())
    refuse(where, fmt::format("{} optimizers, expected {}", items.size(), members.size()));
  for (size_t i = 0; i < items.size(); ++i)
    check_member(items[i], members[i], fmt::format("{}[{}]", where, i));
}

void check_group_kinds(const Json& group, const std::string& where, const std::string& name) {
  if (!group.is_object())
    throw ModelError(tr("{}: {} must be an object, got {}", where, name, shown(group)));
  for (const auto& [key, value] : group.items()) {
    const bool is_factor = key == "wd_mult" || key == "lr_mult";
    const bool is_flag = key == "is_expert_parallel" || key == "is_decoupled_lr";
    if ((is_factor && !value.is_number()) || (is_flag && !value.is_boolean())) {
      throw ModelError(tr("{}: {}.{} must be {}, got {}", where, name, key,
                          is_factor ? "a number" : "true or false", shown(value)));
    }
  }
}

void check_settings(const OptimizerSettings& settings, const std::string& where) {
  if (!settings.groups.is_array())
    throw ModelError(tr("{}: groups must be a list, got {}", where, shown(settings.groups)));
  for (size_t i = 0; i < settings.groups.size(); ++i)
    check_group_kinds(settings.groups[i], where, fmt::format("groups[{}]", i));
  if (!settings.scheduler.is_object() && !settings.scheduler.is_null()) {
    throw ModelError(
        tr("{}: scheduler must be an object, got {}", where, shown(settings.scheduler)));
  }
}

}  // namespace danlu::weights::megatron
