// optim/adamw.h: AdamW with f32 master weights and moments for parameters of any floating type.
#pragma once
#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "optim/grad_buffer.h"
#include "optim/kernels.h"
#include "optim/parameter.h"

namespace danlu::optim {

struct AdamWConfig {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  GroupConfig groups = {};
  /// Errors: UsageError naming the field.
  void validate() const;
};

/// Tensors of the optimizer's state, in the pieces of their parameters: "exp_avg.<param>",
/// "exp_avg_sq.<param>", "master.<param>".
using StateTensors = std::vector<Parameter>;

/// Bytes of state per element: two moments, and a master copy where the parameter is not f32.
int64_t adamw_state_bytes(const std::vector<Parameter>& parameters);

namespace oracle {
/// adamw_update (optim/kernels.h) in ATen's operators: what devices without a kernel of their own
/// run, and what the kernel is held against. Flat f32 tensors of one length, updated in place.
void adamw_update(at::Tensor master, at::Tensor exp_avg, at::Tensor exp_avg_sq,
                  const at::Tensor& grad, const AdamWScalars& scalars);
}  // namespace oracle

/// Decoupled weight decay, bias correction. Not thread-safe; uses the engine's threads inside.
class AdamW {
 public:
  AdamW(std::vector<Parameter> parameters, const AdamWConfig& config);

  /// One update from `gradients` (same parameters, same order), each multiplied by `grad_scale`
  /// first. lr: the schedule's rate; a group's own factor comes on top. Parameters are written in
  /// place.
  void step(const GradBuffer& gradients, double lr, double grad_scale);

  int64_t updates() const { return updates_; }
  const std::vector<Parameter>& parameters() const { return parameters_; }
  const std::vector<ParameterSettings>& settings() const { return settings_; }

  /// Views of the state. exact_weights: also the weights of f32 parameters as "master.<param>", for
  /// checkpoints whose model files hold them in another type.
  StateTensors state(bool exact_weights) const;
  /// Copies state in and writes parameters from it; find(name) returns the whole tensor, undefined if
  /// absent. Where a parameter was its own master and is none now, find("<param>") is asked for the
  /// weight. Errors: ModelError naming a missing tensor or one of another shape.
  void load_state(const std::function<at::Tensor(const std::string&)>& find, int64_t updates);

 private:
  void update_fused(const GradBuffer& gradients, double lr, double grad_scale);
  void update_composite(const GradBuffer& gradients, double lr, double grad_scale);
  /// True if the parameter of that name is f32, so that it is its own master.
  bool lives_in_parameter(const std::string& name) const;
  /// Writes the master of parameter `index`, elements [begin, end), into the parameter.
  void write_back(size_t index, int64_t begin, int64_t end);

  std::vector<Parameter> parameters_;
  AdamWConfig config_;
  std::vector<ParameterSettings> settings_;
  FlatLayout layout_;
  at::Tensor exp_avg_, exp_avg_sq_;  ///< flat f32
  std::vector<at::Tensor>
      masters_;  ///< f32, the parameter's shape; the parameter itself where it is f32
  int64_t updates_ = 0;
};

}  // namespace danlu::optim
