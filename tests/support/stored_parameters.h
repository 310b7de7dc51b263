// tests/support/stored_parameters.h: loose parameters in a store, as training has a model's.
#pragma once
#include <utility>
#include <vector>

#include "parallel/store.h"

namespace danlu::test {

/// All are of the first place in a network without layers.
struct StoredParameters {
  explicit StoredParameters(std::vector<parallel::Parameter> list)
      : parameters(std::move(list)),
        store(parallel::Mesh::single(), parallel::Keeping{}, {{{0, 1}}, 1}) {
    std::vector<parallel::Parameter*> places;
    for (parallel::Parameter& parameter : parameters) {
      parameter.spec.role = arch::Role::kEmbedding;
      places.push_back(&parameter);
    }
    store.lay_out(places, /*keeps_values=*/true);
  }
  StoredParameters(const StoredParameters&) = delete;
  StoredParameters& operator=(const StoredParameters&) = delete;

  /// A backward of theirs.
  void backward(const at::Tensor& loss) {
    store.begin_backward(1);
    store.reach_backward(0);
    loss.backward();
    store.end_backward();
  }

  std::vector<parallel::Parameter> parameters;
  parallel::ParameterStore store;
};

}  // namespace danlu::test
