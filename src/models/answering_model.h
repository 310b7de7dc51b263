// models/answering_model.h: a model that ranks train in pieces, as one that answers: all layers, or
// their parts on the tensor axis.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "models/causal_lm.h"
#include "ops/nf4.h"

namespace danlu::models {

/// What a rank trains of the model it takes as it is, without a copy. What other stages hold, and
/// other ranks' experts, comes when it is used and goes afterwards.
class AnsweringModel {
 public:
  /// mesh: in which the tensor axis stands as in that of `trained`, and no other axis cuts the
  /// model. Both outlive it. REQUIRES: models::keep was called. Collective over the ranks that hold
  /// one model together.
  AnsweringModel(CausalLM& trained, const parallel::Mesh& mesh);
  ~AnsweringModel();
  AnsweringModel(const AnsweringModel&) = delete;
  AnsweringModel& operator=(const AnsweringModel&) = delete;

  /// Calls use() with a model that has the values and adapters which are being trained. They do
  /// not change meanwhile. Collective, and over the data axis where it shares parameters.
  void with_weights(const std::function<void(const CausalLM& model)>& use);

 private:
  /// Where a tensor comes from.
  struct Origin {
    int64_t stage = 0;
    /// Ranks that have it among those of a stage with other experts, each a part if they are
    /// several; empty: all have it.
    std::vector<int64_t> owners = {};
    bool is_adapter = false;
    int64_t layer = -1;
    std::vector<int64_t> shape;  ///< of its memory
    at::ScalarType dtype = at::kFloat;
    std::optional<ops::Nf4Form> nf4 = {};
  };
  void find_origins();
  void take_list(const std::string& list, int64_t stage);
  void make();
  void fill();
  void fill_with(bool adapters);
  void forget();
  at::Tensor brought(const std::string& name, const Origin& origin) const;
  /// The parameters of `model_`, by name.
  std::map<std::string, Parameter*> places() const;
  const parallel::Group& owners() const;
  /// Whether that owner's part of an expert is the one that this rank has of its own experts.
  bool cuts_as_here(int64_t owner) const;

  CausalLM& trained_;
  const parallel::Mesh& mesh_;
  std::map<std::string, Parameter*> own_;  ///< of `trained_`
  std::map<std::string, Origin> origins_;  ///< the same on every rank, so that they take turns
  std::unique_ptr<CausalLM> model_;
};

}  // namespace danlu::models
