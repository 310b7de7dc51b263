// layers/linear_inputs.h: what goes into linear layers, for those who calibrate on it.
#pragma once
#include <ATen/core/TensorBody.h>

#include <atomic>
#include <functional>

namespace danlu::layers {

struct Linear;

/// While it lives, see(layer, x_NI) hears of each input of a linear layer outside of adapters. One
/// at a time in the process; passes meanwhile run in one thread.
class LinearInputs {
 public:
  using See = std::function<void(const Linear& linear, const at::Tensor& x_NI)>;
  explicit LinearInputs(See see);
  ~LinearInputs();
  LinearInputs(const LinearInputs&) = delete;
  LinearInputs& operator=(const LinearInputs&) = delete;

 private:
  See see_;
};

/// Who listens; nullptr: nobody.
extern std::atomic<const LinearInputs::See*> linear_inputs_listener;

/// Tells who listens, if anybody does.
inline void tell_input(const Linear& linear, const at::Tensor& x_NI) {
  if (const LinearInputs::See* const see = linear_inputs_listener.load(std::memory_order_relaxed))
    (*see)(linear, x_NI);
}

}  // namespace danlu::layers
