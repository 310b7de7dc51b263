#include "nn/plan.h"

#include <algorithm>
#include <cstdlib>

#include "core/config.h"
#include "core/report.h"

namespace npu_sim {

std::string shown(const std::vector<int64_t>& dims) {
  std::string text = "[";
  for (size_t i = 0; i < dims.size(); ++i) text += (i ? "," : "") + std::to_string(dims[i]);
  return text + "]";
}

Tensor Plan::add(const aclTensor* tensor, const char* name, bool reads, bool writes,
                 bool may_be_null) {
  aclOpExecutor& e = *executor_;
  if (!tensor) {
    if (!may_be_null) throw Refused{161001, std::string("'") + name + "' is null"};
    return {};
  }
  const uint64_t number = number_in_book(tensor, Kind::kTensor);
  if (!number) {
    violation(e.op + ": '" + name + "' is a tensor that does not live");
    throw Refused{161001, std::string("'") + name + "' does not live"};
  }
  if (tensor->view.dtype == ACL_BF16 && !config().chip.has_bf16()) {
    throw Refused{161002, std::string("'") + name + "': DT_BFLOAT16 is not supported on " +
                              config().chip.name};
  }
  // Blocked layouts are those of weights of operators of their own (…WeightNz), of which none is
  // here.
  for (const int blocked : {3, 4, 12, 29, 32, 33}) {
    if (static_cast<int>(tensor->format) == blocked)
      throw Refused{161002, std::string("'") + name + "': a private format is not supported"};
  }
  const int slot = static_cast<int>(e.slots.size());
  e.slots.push_back({tensor->view, tensor->data, reads, writes, name});
  e.used.push_back({tensor, Kind::kTensor, number, name});
  if (reads) e.inputs.push_back(slot);
  if (writes) e.outputs.push_back(slot);
  return {tensor->view, slot};
}

Tensor Plan::in(const aclTensor* t, const char* name) { return add(t, name, true, false, false); }
Tensor Plan::optional(const aclTensor* t, const char* name) {
  return add(t, name, true, false, true);
}
Tensor Plan::out(const aclTensor* t, const char* name) { return add(t, name, false, true, false); }
Tensor Plan::optional_out(const aclTensor* t, const char* name) {
  return add(t, name, false, true, true);
}
Tensor Plan::inout(const aclTensor* t, const char* name) { return add(t, name, true, true, false); }

std::vector<Tensor> Plan::in_list(const aclTensorList* list, const char* name) {
  std::vector<Tensor> tensors;
  if (!list) return tensors;
  executor_->used.push_back(
      {list, Kind::kTensorList, number_in_book(list, Kind::kTensorList), name});
  for (const aclTensor* tensor : list->tensors) tensors.push_back(in(tensor, name));
  return tensors;
}

std::vector<Tensor> Plan::out_list(const aclTensorList* list, const char* name) {
  std::vector<Tensor> tensors;
  if (!list) return tensors;
  executor_->used.push_back(
      {list, Kind::kTensorList, number_in_book(list, Kind::kTensorList), name});
  for (const aclTensor* tensor : list->tensors) tensors.push_back(out(tensor, name));
  return tensors;
}

std::vector<Tensor> Plan::inout_list(const aclTensorList* list, const char* name) {
  std::vector<Tensor> tensors;
  if (!list) return tensors;
  executor_->used.push_back(
      {list, Kind::kTensorList, number_in_book(list, Kind::kTensorList), name});
  for (const aclTensor* tensor : list->tensors) tensors.push_back(inout(tensor, name));
  return tensors;
}

const aclScalar& Plan::scalar(const aclScalar* scalar, const char* name) {
  if (!scalar) throw Refused{161001, std::string("'") + name + "' is null"};
  const uint64_t number = number_in_book(scalar, Kind::kScalar);
  if (!number) {
    violation(executor_->op + ": '" + name + "' is a scalar that does not live");
    throw Refused{161001, std::string("'") + name + "' does not live"};
  }
  executor_->used.push_back({scalar, Kind::kScalar, number, name});
  return *scalar;
}

std::vector<int64_t> Plan::optional_ints(const aclIntArray* array, const char* name) {
  if (!array) return {};
  const uint64_t number = number_in_book(array, Kind::kArray);
  if (!number) {
    violation(executor_->op + ": '" + name + "' is an array that does not live");
    throw Refused{161001, std::string("'") + name + "' does not live"};
  }
  executor_->used.push_back({array, Kind::kArray, number, name});
  return array->values;
}

std::vector<int64_t> Plan::ints(const aclIntArray* array, const char* name) {
  if (!array) throw Refused{161001, std::string("'") + name + "' is null"};
  return optional_ints(array, name);
}

std::vector<bool> Plan::bools(const aclBoolArray* array, const char* name) {
  if (!array) throw Refused{161001, std::string("'") + name + "' is null"};
  const uint64_t number = number_in_book(array, Kind::kArray);
  if (!number) {
    violation(executor_->op + ": '" + name + "' is an array that does not live");
    throw Refused{161001, std::string("'") + name + "' does not live"};
  }
  executor_->used.push_back({array, Kind::kArray, number, name});
  return array->values;
}

void Plan::require(bool holds, const std::string& text) const {
  if (!holds) throw Refused{161002, text};
}

void Plan::dtype(const Tensor& t, std::initializer_list<aclDataType> allowed) const {
  if (!t || std::find(allowed.begin(), allowed.end(), t.dtype()) != allowed.end()) return;
  std::string names;
  for (const aclDataType one : allowed)
    names += std::string(names.empty() ? "" : ",") + name_of(one);
  throw Refused{161002, "'" + executor_->slots[static_cast<size_t>(t.slot)].name + "' has " +
                            name_of(t.dtype()) + ", which is not in the list [" + names + "]"};
}

void Plan::same_dtype(const Tensor& a, const Tensor& b) const {
  const auto& slots = executor_->slots;
  require(!a || !b || a.dtype() == b.dtype(),
          "'" + slots[static_cast<size_t>(std::max(a.slot, 0))].name + "' has " +
              name_of(a.dtype()) + ", '" + slots[static_cast<size_t>(std::max(b.slot, 0))].name +
              "' has " + name_of(b.dtype()));
}

void Plan::shape(const Tensor& t, const std::vector<int64_t>& dims) const {
  if (!t || t.dims() == dims) return;
  throw Refused{161002, "'" + executor_->slots[static_cast<size_t>(t.slot)].name +
                            "' has the shape " + shown(t.dims()) + ", " + shown(dims) +
                            " is needed"};
}

void Plan::only_910b() const {
  if (config().chip.family == Family::k910B) return;
  throw Refused{561003, std::string("no kernel for ") + config().chip.name};
}

int64_t Plan::axis(const Tensor& t, int64_t dim) const {
  const int64_t rank = std::max<int64_t>(t.rank(), 1);
  require(dim >= -rank && dim < rank,
          "dimension " + std::to_string(dim) + " of a tensor of " + std::to_string(rank));
  return dim < 0 ? dim + rank : dim;
}

uint64_t Plan::workspace() const {
  uint64_t hash = 1469598103934665603ull;
  for (const char c : executor_->op)
    hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ull;
  // Odd on purpose: nobody may count on a round size.
  return 512 + hash % 4096 + scratch_ + 1 - (hash + scratch_) % 2;
}

aclnnStatus plan(const char* op, uint64_t* workspaceSize, aclOpExecutor** executor,
                 const std::function<void(Plan&)>& body) {
  const auto refuse = [&](aclnnStatus code, const std::string& text) {
    const bool argument = code == 161001 || code == 161002;
    return fail(
        code, std::string(argument ? "EZ1001: AclNN_Parameter_Error: " : "EZ9999: Inner Error: ") +
                  op + ": " + text + " [NPU SIMULATOR]");
  };
  if (!workspaceSize || !executor) return refuse(161001, "null workspaceSize or executor");
  Context* context = nullptr;
  const std::string name = std::string(op) + "GetWorkspaceSize";
  if (const aclError error = enter(name.c_str(), Need::kContext, &context)) {
    const char* text = take_message();
    const bool own = error == 161001 || error == 161002 || error / 1000 == 561;
    return refuse(own ? error : 361001,
                  "runtime error " + std::to_string(error) + ": " + (text ? text : ""));
  }
  static const bool needs_path = number_from_environment("NPU_SIM_NEED_OPP_PATH", 0) != 0;
  if (needs_path && !std::getenv("ASCEND_OPP_PATH"))
    return refuse(561107, "ASCEND_OPP_PATH is not set");
  count("phase1");
  Plan p(op);
  try {
    body(p);
  } catch (const Refused& refused) {
    return refuse(refused.code, refused.text);
  }
  aclOpExecutor& made = p.executor();
  bool nothing = true;
  for (const Slot& slot : made.slots) nothing = nothing && (!slot.writes || slot.view.numel() == 0);
  made.work = std::make_shared<Work>(nothing ? Work{} : p.work());
  made.workspace = nothing ? 0 : p.workspace();
  made.context = context;
  *workspaceSize = made.workspace;
  *executor = p.take();
  enter_book(*executor, Kind::kExecutor);
  return 0;
}

}  // namespace npu_sim
