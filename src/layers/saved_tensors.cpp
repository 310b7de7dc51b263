#include "layers/saved_tensors.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/csrc/autograd/saved_variable_hooks.h>

#include <mutex>
#include <utility>

#include "base/error.h"

namespace danlu::layers {
namespace {

using torch::autograd::SavedVariable;

thread_local const SavedTensors* innermost = nullptr;

}  // namespace

/// The hooks of one saved tensor.
class ScopeHooks : public torch::autograd::SavedVariableHooks {
 public:
  void call_pack_hook(const at::Tensor& tensor) override {
    // What a scope does with a tensor is none of its own business.
    const SavedTensors* const all = std::exchange(innermost, nullptr);
    try {
      for (const SavedTensors* scope = all; scope && !restore_; scope = scope->outside_)
        restore_ = scope->take_(tensor);
    } catch (...) {
      innermost = all;
      throw;
    }
    innermost = all;
    // With its history an operator's own output would hold the operator.
    if (!restore_) kept_ = tensor.detach();
  }
  at::Tensor call_unpack_hook() override { return restore_ ? restore_() : kept_; }

 private:
  Restore restore_;
  at::Tensor kept_;
};

namespace {

/// libtorch asks its engine for hooks of what is saved; Python's has an answer, the base has none.
struct HookedEngine : torch::autograd::Engine {
  std::unique_ptr<torch::autograd::SavedVariableHooks> get_default_saved_variable_hooks() override {
    return innermost ? std::make_unique<ScopeHooks>() : nullptr;
  }
};

torch::autograd::Engine& hooked_engine() {
  // Its threads may still wait when static objects go.
  static auto* const engine = new HookedEngine;
  return *engine;
}

/// What makes one tensor again, shared by all that saved it.
struct Recipe {
  std::vector<SavedVariable> sources;
  Make make;
  std::mutex mutex;
  at::Tensor made;

  at::Tensor get() {
    const std::lock_guard lock(mutex);
    if (made.defined()) return made;
    std::vector<at::Tensor> inputs;
    for (const SavedVariable& source : sources) inputs.push_back(source.unpack());
    const at::NoGradGuard no_grad;
    made = make(inputs);
    return made;
  }
};

/// A view of what `recipe` makes as `saved` is one of `output`.
Restore view_of(const std::shared_ptr<Recipe>& recipe, const at::Tensor& saved,
                const at::Tensor& output) {
  return [recipe, sizes = saved.sizes().vec(), strides = saved.strides().vec(),
          shift = saved.storage_offset() - output.storage_offset(), shape = output.sizes().vec(),
          layout = output.strides().vec()] {
    const at::Tensor made = recipe->get();
    if (made.sizes() != at::IntArrayRef(shape) || made.strides() != at::IntArrayRef(layout))
      throw InternalError("[recompute] what is made again has another shape than it had");
    return made.as_strided(sizes, strides, made.storage_offset() + shift);
  };
}

}  // namespace

SavedTensors::SavedTensors(std::function<Restore(const at::Tensor&)> take)
    : take_(std::move(take)), outside_(innermost) {
  prepare_saved_tensors();
  innermost = this;
}

SavedTensors::~SavedTensors() { innermost = outside_; }

void prepare_saved_tensors() {
  static std::once_flag once;
  std::call_once(once, [] { torch::autograd::set_default_engine_stub(&hooked_engine); });
}

MadeAgain::MadeAgain(const at::Tensor& output, const std::vector<at::Tensor>& sources, Make make) {
  if (!at::GradMode::is_enabled()) return;
  auto recipe = std::make_shared<Recipe>();
  for (const at::Tensor& source : sources) recipe->sources.emplace_back(source.detach(), false);
  recipe->make = std::move(make);
  scope_ = std::make_unique<SavedTensors>([output = output.detach(), recipe](const at::Tensor& t) {
    const bool is_it =
        t.defined() && t.has_storage() && t.scalar_type() == output.scalar_type() &&
        t.storage().unsafeGetStorageImpl() == output.storage().unsafeGetStorageImpl();
    return is_it ? view_of(recipe, t, output) : Restore();
  });
}

}  // namespace danlu::layers
