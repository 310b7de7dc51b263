// plan/request.h: what a plan is made of, and how it follows from what a training is told.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "arch/pipeline.h"
#include "settings/config.h"
#include "weights/lora/peft.h"

namespace danlu::plan {

/// Answers that the model draws itself before it learns from them.
struct Rollout {
  arch::ModelConfig model;
  int64_t at_a_time = 0;                      ///< on a rank
  int64_t prompt_tokens = 0, new_tokens = 0;  ///< of the longest
  int64_t begun_tokens = 0;                   ///< of an answer when its last part is drawn
};

/// A model that answers beside the one that is trained.
struct Frozen {
  arch::ModelConfig model;
  double nf4_bits = 0;  ///< as Request's
};

/// What a plan is made of: no data, no weights.
struct Request {
  arch::ModelConfig model;
  settings::MeshShape mesh;
  arch::PipelineLayers pipeline;
  settings::Sharding sharding = settings::Sharding::kNone;
  settings::RecomputeFlags recompute = {};
  settings::ActivationOffload offload = {};
  settings::Precision precision = settings::Precision::kBF16;
  std::optional<weights::PeftConfig> adapters = {};  ///< what is trained; none: the model
  /// Further models whose weights lie beside this one's, frozen.
  std::vector<Frozen> frozen = {};
  /// The one of `frozen` whose distributions are compared with the model's (distillation).
  std::optional<arch::ModelConfig> teacher = {};
  /// A model that is trained beside this one in steps of its own (PPO's critic).
  std::optional<arch::ModelConfig> critic = {};
  double critic_nf4_bits = 0;  ///< as nf4_bits, of the critic
  std::optional<Rollout> rollout = {};
  /// Copies of logits in f32 from which log-probabilities of tokens are made; 0: the loss has none.
  int64_t wide_logits = 0;
  /// Bits that a number of a frozen matrix in NF4 takes (weights::takes_nf4 says of which); 0: none
  /// is held so.
  double nf4_bits = 0;
  /// Patterns of names of parameters that are not trained, as CausalLM::freeze takes them.
  std::vector<std::string> freeze = {};
  /// Whether parameters, and the optimizer's state, lie outside the rank's memory: in files, or in
  /// the memory of a device's host.
  bool parameters_in_files = false, state_in_files = false;
  settings::AdamWConfig adamw = {};  ///< what settings::state_rule follows from
  bool widens = false;               ///< attention multiplies 16-bit types as f32
  int64_t packed_columns = 64;       ///< attention pads the width of a head to a multiple of this
  int64_t tokens = 0;                ///< in a sample
  int64_t micro_batch_size = 1;      ///< samples in a micro-batch
  int64_t num_micro_batches = 1;
  /// If samples of a step share passes: tokens of the longest sample, and the most of a pass. Else
  /// 0.
  int64_t longest = 0, packed = 0;

  /// For a model that sees pictures: patches of a sample's pictures, at most, and how many of them
  /// stand in one frame, where they see each other (0: all).
  int64_t patches = 0, frame_patches = 0;
  /// Where these were found in the data: of so many samples, with so many visual tokens on average.
  int64_t samples_looked_at = 0;
  double mean_visual_tokens = 0;

  /// For a model whose experts ranks divide among them: the rows of the rank that is given the
  /// most, as a multiple of the mean.
  double expert_imbalance = 1.0;
  bool router_noise = false;  ///< routers read what is made for them alone

  arch::PipelineOrder order = arch::PipelineOrder::kOneForwardOneBackward;

  void set_visual_tokens(int64_t tokens) {
    const int64_t merge = model.vision ? model.vision->merge_size : 0;
    patches = tokens * merge * merge;
  }
  /// Cuts the same step into other micro-batches.
  void cut_into(int64_t micro_batches, int64_t samples) {
    num_micro_batches = micro_batches;
    micro_batch_size = samples;
    if (packed > 0) tokens = std::min(longest * micro_batches, std::max(longest, packed));
  }
  /// The tokens of a pass on one rank of the context axis.
  int64_t pass_tokens() const {
    const int64_t ranks = mesh.context.size();
    return (tokens * micro_batch_size + ranks - 1) / ranks;
  }
  /// The patches of a pass on one rank of the context axis: as many more as it has samples.
  int64_t pass_patches() const {
    const int64_t ranks = mesh.context.size();
    const int64_t all = packed > 0 && longest > 0 ? patches * tokens / longest : patches;
    return (all * micro_batch_size + ranks - 1) / ranks;
  }
  /// Rows of the head's matrix.
  int64_t head_rows() const { return model.score ? model.score->labels : model.vocab_size; }
  /// Picks of a rank's tokens in a layer with experts.
  int64_t routed_rows() const { return pass_tokens() * model.experts.per_token; }
  /// How many ranks have experts of their own, where some cut each of them.
  int64_t expert_owners() const { return mesh.expert * mesh.expert_dealers; }
  /// Ranks that cut an expert between them and send the rows of an equal part of the tokens each.
  int64_t row_senders() const {
    return mesh.sequence_parallel && mesh.expert > 1 ? mesh.expert_tensor() : 1;
  }
  /// Rows that a rank takes to experts, its own or others': of the experts that its number has on
  /// every owner, and of its part of the tokens.
  int64_t sent_rows() const;
  /// Rows that the experts of a rank are given, of the rank with the most.
  int64_t expert_rows() const;
  /// These as a multiple of the mean over ranks.
  double busiest_rank() const;
  /// Bytes that `count` numbers in NF4 take less than in the passes' type.
  int64_t saved_by_nf4(int64_t count) const {
    return nf4_bits > 0
               ? static_cast<int64_t>(static_cast<double>(count) *
                                      (static_cast<double>(element_bytes()) - nf4_bits / 8))
               : 0;
  }
  int64_t element_bytes() const { return precision == settings::Precision::kF32 ? 4 : 2; }
  /// Bytes of memory for an element's f32 master beside the weight. A bf16 weight is itself the
  /// upper half of its master.
  int64_t master_bytes() const {
    if (precision == settings::Precision::kF32) return 0;
    return precision == settings::Precision::kBF16 && !state_in_files ? 2 : 4;
  }
  /// The number of ranks that share what `sharding` names.
  int64_t sharers() const { return mesh.are_some_sharers() ? mesh.sharers : mesh.model_copies(); }
  /// The number of ranks among them that hold the same experts.
  int64_t expert_sharers() const { return sharers() / mesh.expert; }
  /// The number of ranks that hold the same share: above 1 where each machine shares for itself.
  int64_t replicas() const { return mesh.model_copies() / sharers(); }
};

/// The most visual tokens of one picture in a sample of `longest` tokens: as many as the limits of
/// `config`, else those that stand beside the model, let a picture have. 0: the model sees none.
int64_t visual_tokens_of(const settings::TrainConfig& config, const arch::ModelConfig& model,
                         int64_t longest);

/// The request for the training that `config` describes, with samples of up to `longest` tokens,
/// which have one picture of visual_tokens_of() each. `widens` and `packed_columns` keep their
/// defaults, because only the device knows them.
Request request_of(const settings::TrainConfig& config, const arch::ModelConfig& model,
                   int64_t longest);

}  // namespace danlu::plan
