#include "layers/linear_inputs.h"

#include "base/error.h"

namespace danlu::layers {

std::atomic<const LinearInputs::See*> linear_inputs_listener = nullptr;

LinearInputs::LinearInputs(See see) : see_(std::move(see)) {
  if (linear_inputs_listener.exchange(&see_))
    throw InternalError("[linear] somebody listens to the inputs of layers already");
}

LinearInputs::~LinearInputs() { linear_inputs_listener = nullptr; }

}  // namespace danlu::layers
