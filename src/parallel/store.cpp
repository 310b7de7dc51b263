#include "parallel/store.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <c10/core/DeviceGuard.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "device/file_memory.h"
#include "device/late_memory.h"

namespace danlu::parallel {
namespace {

/// Another tensor of the same memory with a version counter of its own: autograd, which has saved
/// views of a unit, must not take its gathering again for a change by an in-place operation.
at::Tensor alias_of(const at::Tensor& tensor) { return tensor.variable_data(); }

}  // namespace

ParameterStore::ParameterStore(const Mesh& mesh, const Keeping& keeping, const Places& places)
    : mesh_(mesh),
      keeping_(keeping),
      sharding_(mesh.sharers().is_alone() ? Sharding::kNone : keeping.sharding),
      places_(places),
      needed_(static_cast<size_t>(places.last_of_all) + 1),
      first_trained_(places.last_of_all + 1),
      background_(std::make_unique<Background>([&mesh] { mesh.background().abort(); })) {}

void ParameterStore::lay_out(const std::vector<Parameter*>& parameters, bool keeps_values) {
  const at::NoGradGuard no_grad;
  std::map<std::tuple<int64_t, bool, bool, arch::Axes, at::ScalarType>, Unit> fresh;
  std::map<std::string, Parameter*> ends;
  for (Parameter* parameter : parameters) {
    if (!parameter->spec.tied_to.empty()) continue;
    ends[parameter->name()] = parameter;
    const int64_t place = parameter->place;
    const bool trained = parameter->trainable;
    if (trained) first_trained_ = std::min(first_trained_, place);
    if (!trained && !shares_parameters()) continue;
    // Alone in its unit, it is divided alike at both ends.
    const bool in_both_ends = parameter->in_both_ends;
    const arch::Axes copied_on =
        mesh_.shape().several_of(parameter->spec.copied_on().without(arch::Axis::kTensor));
    Unit& unit = fresh[{place, !trained, in_both_ends, copied_on, parameter->held().scalar_type()}];
    unit.place = place;
    unit.in_both_ends = in_both_ends;
    unit.is_copy = in_both_ends && place == places_.last_of_all;
    unit.copied_on = copied_on;
    unit.trainable = trained;
    unit.parameters.push_back(parameter);
  }
  for (auto& [key, unit] : fresh) lay_out_unit(std::move(unit), keeps_values);
  for (Parameter* parameter : parameters) {
    if (parameter->spec.tied_to.empty()) continue;
    const Parameter* end = ends.at(parameter->spec.tied_to);
    parameter->tensor = end->tensor;
    parameter->main_grad = end->main_grad;
    const auto holds = [&](size_t unit) {
      const auto& list = units_[unit].parameters;
      return std::find(list.begin(), list.end(), end) != list.end();
    };
    if (end->place == parameter->place) continue;
    for (const size_t unit : needed_[static_cast<size_t>(end->place)]) {
      if (holds(unit)) needed_[static_cast<size_t>(parameter->place)].push_back(unit);
    }
  }
}

void ParameterStore::lay_out_unit(Unit unit, bool keeps_values) {
  std::vector<int64_t> sizes;
  for (const Parameter* parameter : unit.parameters) sizes.push_back(parameter->held().numel());
  const bool divided = sharding_ != Sharding::kNone;
  const Group& sharers = divided ? mesh_.sharers(unit.copied_on) : Group::alone();
  unit.layout = FlatLayout(sizes, sharers.size());
  unit.share = unit.layout.share(sharers.rank());
  const auto options = unit.parameters.front()->held().options().requires_grad(false);
  unit.flat = shares_parameters() ? device::tensor_without_memory({unit.layout.total()}, options)
                                  : kept_memory(unit.layout.total(), options);
  if (shares_parameters() && keeps_values) allocate(unit);
  // What lies between tensors travels with them.
  if (keeps_values || !shares_parameters()) unit.flat.zero_();
  for (size_t i = 0; i < unit.parameters.size(); ++i) {
    Parameter& parameter = *unit.parameters[i];
    const Range& range = unit.layout.range(i);
    at::Tensor view =
        alias_of(unit.flat.narrow(0, range.begin, range.size()).view(parameter.held().sizes()));
    if (keeps_values) view.copy_(parameter.held().detach());
    parameter.hold(view.requires_grad_(unit.trainable));
    parameter.main_grad = unit.trainable ? std::make_shared<ops::MainGrad>() : nullptr;
  }
  const auto share = [&](const at::Tensor& flat) {
    return alias_of(flat.narrow(0, unit.share.begin, unit.share.size()));
  };
  unit.shard = shares_parameters() ? kept_memory(unit.share.size(), options) : share(unit.flat);
  needed_[static_cast<size_t>(unit.place)].push_back(units_.size());
  for (const Parameter* parameter : unit.parameters) by_name_[parameter->name()] = units_.size();
  units_.push_back(std::move(unit));
  states_.emplace_back();
  if (!shares_parameters()) return;
  if (keeps_values) keep_share(units_.back());
}

at::Tensor ParameterStore::kept_memory(int64_t elements, const at::TensorOptions& options) const {
  if (keeping_.parameters_in.empty()) return at::empty({elements}, options);
  return device::FileTensor(keeping_.parameters_in, elements,
                            c10::typeMetaToScalarType(options.dtype()))
      .tensor();
}

void ParameterStore::allocate(Unit& unit) {
  auto* memory = unit.flat.storage().unsafeGetStorageImpl();
  const auto bytes = static_cast<size_t>(unit.layout.total()) * unit.flat.element_size();
  // A vocabulary's memory is not for a layer.
  const auto fits = std::find_if(spare_.begin(), spare_.end(), [&](const Memory& spare) {
    return spare.bytes >= bytes && spare.bytes <= 2 * bytes;
  });
  if (fits != spare_.end()) {
    memory->set_data_ptr_noswap(std::move(fits->pointer));
    memory->set_nbytes(fits->bytes);
    spare_.erase(fits);
    return;
  }
  const c10::DeviceGuard guard(unit.flat.device());
  memory->set_data_ptr_noswap(c10::GetAllocator(unit.flat.device().type())->allocate(bytes));
  memory->set_nbytes(bytes);
}

void ParameterStore::free(Unit& unit) {
  // The unit in use, the next, and one that is being let go.
  constexpr size_t kMostSpare = 2;
  auto* memory = unit.flat.storage().unsafeGetStorageImpl();
  const size_t bytes = memory->nbytes();
  at::DataPtr pointer = memory->set_data_ptr(at::DataPtr(nullptr, unit.flat.device()));
  memory->set_nbytes(0);
  if (spare_.size() == kMostSpare) spare_.erase(spare_.begin());
  spare_.push_back({std::move(pointer), bytes});
}

void ParameterStore::keep_share(Unit& unit) {
  unit.shard.copy_(unit.flat.narrow(0, unit.share.begin, unit.share.size()));
  free(unit);
}

void ParameterStore::fill(int64_t place, const std::function<void()>& body) {
  const at::NoGradGuard no_grad;
  std::vector<Unit*> opened;
  for (Unit& unit : units_) {
    if (unit.place != place || !shares_parameters()) continue;
    allocate(unit);
    unit.flat.zero_();
    opened.push_back(&unit);
  }
  body();
  for (Unit* unit : opened) keep_share(*unit);
  if (!opened.empty()) spare_.clear();  // places differ, and nothing passes yet
}

void ParameterStore::with(int64_t place, const std::function<void()>& use) {
  prefetch_place(place);
  const std::vector<size_t>& needed = needed_[static_cast<size_t>(place)];
  for (const size_t unit : needed) unshard(unit);
  try {
    use();
  } catch (...) {
    for (const size_t unit : needed) reshard(unit);
    throw;
  }
  for (const size_t unit : needed) reshard(unit);
}

std::optional<size_t> ParameterStore::unit_of(const std::string& name) const {
  const auto found = by_name_.find(name);
  if (found == by_name_.end()) return std::nullopt;
  return found->second;
}

Range ParameterStore::range_of(size_t unit, const std::string& name) const {
  const std::vector<Parameter*>& list = units_[unit].parameters;
  const auto is_it = [&](const Parameter* parameter) { return parameter->name() == name; };
  const auto found = std::find_if(list.begin(), list.end(), is_it);
  return units_[unit].layout.range(static_cast<size_t>(found - list.begin()));
}

at::Tensor ParameterStore::gathered(size_t index, const ModelGroups& groups) const {
  const Unit& unit = units_[index];
  const at::Tensor all = groups.sharers(unit.copied_on).gather(unit.shard, 0);
  return all.defined() ? all.view({-1}) : all;
}

void ParameterStore::prefetch(size_t index) {
  Unit& unit = units_[index];
  State& state = states_[index];
  if (!shares_parameters() || state.users > 0 || state.coming.valid()) return;
  allocate(unit);
  gather(index);
}

void ParameterStore::gather(size_t index) {
  const Unit& unit = units_[index];
  const at::Tensor flat = alias_of(unit.flat);
  states_[index].coming = background_->run(
      [sharers = &mesh_.background().sharers(unit.copied_on), flat, shard = unit.shard] {
        at::Tensor all = flat;
        sharers->all_gather_into(shard, all);
      },
      flat.device(), {flat, unit.shard});
}

void ParameterStore::unshard(size_t index) {
  prefetch(index);
  State& state = states_[index];
  if (state.coming.valid()) state.coming.get();
  state.coming = {};
  ++state.users;
}

void ParameterStore::reshard(size_t index) {
  State& state = states_[index];
  if (state.users == 0) throw InternalError("[store] a place was left that was not entered");
  if (--state.users == 0 && shares_parameters()) free(units_[index]);
}

const Places::Run& ParameterStore::run_of(int64_t place) const {
  for (const Places::Run& run : places_.runs) {
    if (run.has(place)) return run;
  }
  throw InternalError("[store] no parameters of place " + std::to_string(place) + " are here");
}

void ParameterStore::prefetch_place(int64_t place) {
  for (const size_t unit : needed_[static_cast<size_t>(place)]) prefetch(unit);
}

void ParameterStore::begin_step() {
  backward_at_ = -1;
  for (size_t unit = 0; unit < units_.size(); ++unit) {
    if (states_[unit].users == 0) continue;
    states_[unit].users = 1;
    reshard(unit);
  }
}

void ParameterStore::before_forward(int64_t place) {
  prefetch_place(place);
  for (const size_t unit : needed_[static_cast<size_t>(place)]) unshard(unit);
  if (run_of(place).has(place + 1)) prefetch_place(place + 1);
}

void ParameterStore::after_forward(int64_t place, bool keeps) {
  // The last place is needed again at once.
  const Places::Run& run = run_of(place);
  const bool returns = keeps && place == run.last && lowest_of(run) <= run.last;
  if (returns && is_read_in_backward(place)) return;
  for (const size_t unit : needed_[static_cast<size_t>(place)]) reshard(unit);
}

int64_t ParameterStore::first_with(int64_t place) const {
  for (const Places::Run& joint : joint_) {
    if (joint.has(place)) return joint.first;
  }
  return place;
}

void ParameterStore::begin_backward(int64_t place) {
  backward_at_ = place;
  const int64_t first = first_with(place);
  // The parameters of the last place are there since the forward.
  for (int64_t other = place - 1; other >= first; --other) need_in_backward(other);
  prefetch_behind(first);
  for (int64_t other = place; other >= first; --other) announce(other);
}

bool ParameterStore::is_read_in_backward(int64_t place) const {
  const std::vector<int64_t>& unread = places_.unread_in_backward;
  return std::find(unread.begin(), unread.end(), place) == unread.end();
}

void ParameterStore::prefetch_behind(int64_t place) {
  const int64_t lowest = lowest_of(run_of(place));
  int64_t next = place - 1;
  while (next >= lowest && !is_read_in_backward(next)) --next;
  if (next >= lowest) prefetch_place(next);
}

void ParameterStore::need_in_backward(int64_t place) {
  if (!is_read_in_backward(place)) return;
  prefetch_place(place);
  for (const size_t unit : needed_[static_cast<size_t>(place)]) unshard(unit);
}

void ParameterStore::announce(int64_t place) const {
  for (const size_t unit : needed_[static_cast<size_t>(place)]) {
    if (listener_.before && units_[unit].trainable) listener_.before(unit);
  }
}

void ParameterStore::reach_backward(int64_t place) {
  while (backward_at_ > place) after_backward(backward_at_--);
  const int64_t first = first_with(place);
  for (int64_t needed = place; needed >= std::max(first, lowest_of(run_of(place))); --needed)
    need_in_backward(needed);
  prefetch_behind(first);
  for (int64_t told = place; told >= first; --told) announce(told);
}

void ParameterStore::after_backward(int64_t place) {
  for (const size_t unit : needed_[static_cast<size_t>(place)]) {
    if (is_read_in_backward(place)) reshard(unit);
    const bool complete = units_[unit].trainable && units_[unit].place == place;
    if (complete && listener_.after) listener_.after(unit);
  }
}

void ParameterStore::end_backward() {
  if (backward_at_ < 0) return;
  const int64_t lowest = lowest_of(run_of(backward_at_));
  while (backward_at_ >= lowest) after_backward(backward_at_--);
  backward_at_ = -1;
  spare_.clear();
}

void ParameterStore::forward_idly(size_t run, bool keeps) {
  const auto [first, last] = places_.runs[run];
  for (int64_t place = first; place <= last; ++place) {
    before_forward(place);
    after_forward(place, keeps);
  }
}

void ParameterStore::backward_idly(size_t run) {
  const Places::Run& of = places_.runs[run];
  // Where nothing is trained no other rank has a backward either.
  if (of.is_empty() || lowest_of(of) > of.last) return;
  begin_backward(of.last);
  for (int64_t place = first_with(of.last) - 1; place >= lowest_of(of);
       place = first_with(place) - 1)
    reach_backward(place);
  end_backward();
}

void ParameterStore::publish(size_t index) {
  const bool divided = sharding_ == Sharding::kState || sharding_ == Sharding::kGradients;
  if (!divided) return;
  gather(index);
}

void ParameterStore::settle() {
  for (State& state : states_) {
    if (!state.coming.valid()) continue;
    state.coming.get();
    // What was prefetched is there, and will be asked for.
    if (!shares_parameters()) state.coming = {};
  }
}

int64_t ParameterStore::kept_bytes() const {
  int64_t bytes = 0;
  for (const Unit& unit : units_) {
    const int64_t elements = shares_parameters() ? unit.share.size() : unit.layout.total();
    bytes += elements * static_cast<int64_t>(unit.flat.element_size());
  }
  return bytes;
}

}  // namespace danlu::parallel
