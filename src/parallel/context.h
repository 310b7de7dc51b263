// parallel/context.h: attention of tokens that several ranks hold between them.
//
// Within a group heads are exchanged for tokens (DeepSpeed-Ulysses, arXiv:2309.14509 §3.1); among
// groups keys and values go round a ring (ring attention, arXiv:2310.01889 §3; two rings:
// LoongTrain, arXiv:2406.18485 §4.4), the next on their way while those at hand are met. Which
// tokens a rank holds: settings/context_cut.h.
#pragma once
#include <array>
#include <memory>
#include <vector>

#include "ops/attention.h"
#include "parallel/background.h"
#include "parallel/group.h"
#include "settings/mesh_shape.h"

namespace danlu::parallel {

class World;

/// Where this rank stands on the context axis, and its groups. Used by passes alone.
class Context {
 public:
  /// The context axis of one rank.
  Context() = default;
  /// Collective.
  Context(World& world, const settings::MeshShape& mesh);
  ~Context();

  const settings::ContextShape& shape() const { return shape_; }
  bool is_alone() const { return shape_.is_alone(); }
  /// On the axis.
  int64_t rank() const { return rank_; }
  int64_t group() const { return rank_ / shape_.ulysses; }
  /// Every rank of the axis: for sums over a sequence's tokens.
  const Group& all() const { return own_all_ ? *own_all_ : Group::alone(); }
  void abort() const;
  /// What this rank has sent on the axis so far.
  Traffic traffic() const;

  /// Attention of ops/attention.h over all tokens, of which every tensor holds this rank's.
  /// segments: of all tokens. options: of all heads of these tensors. Collective over the axis, in
  /// backward too.
  ///
  /// Shapes  q_nQD [n, Q, D]; k_nKD [n, K, D]; v_nKD [n, K, Dv]; result [n, Q, Dv].
  /// Errors  ModelError for heads that the ranks of a group cannot share (require_shares), and as
  ///         ops::require_masks; on every rank.
  at::Tensor attention(const at::Tensor& q_nQD, const at::Tensor& k_nKD, const at::Tensor& v_nKD,
                       const ops::Segments& segments, const ops::AttentionOptions& options) const;

  // For the functions of autograd that do it.
  const Group& heads() const { return *heads_; }
  /// What goes round: keys and values within a window, or from window to window, or their
  /// gradients. Each has a thread and groups of its own.
  enum class Way { kInner, kOuter, kGradients };
  /// `out` leaves for the next on this way while `in` comes. leaves_window: of gradients, for the
  /// next window.
  Background::Job hop(Way way, const at::Tensor& out, const at::Tensor& in,
                      bool leaves_window) const;

 private:
  struct Link {
    std::unique_ptr<Group> group;
    std::unique_ptr<Background> thread;
  };
  void make_links(World& world, const settings::RankGroups& rings);

  settings::ContextShape shape_;
  int64_t rank_ = 0;
  std::unique_ptr<Group> own_heads_, own_all_;
  const Group* heads_ = &Group::alone();
  mutable std::array<Link, 3> links_;  ///< by Way
};

}  // namespace danlu::parallel
