// parallel/mesh.h: where a rank stands in the mesh of ranks, and the groups it belongs to.
#pragma once
#include <array>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "arch/axes.h"
#include "arch/shard.h"
#include "base/error.h"
#include "parallel/context.h"
#include "parallel/exchange.h"
#include "parallel/group.h"
#include "parallel/region.h"
#include "settings/mesh_shape.h"

namespace danlu::parallel {

/// All ranks of a job, as one of them sees them. It makes the groups that collectives go over.
class World {
 public:
  virtual ~World() = default;
  virtual int64_t rank() const = 0;
  virtual int64_t size() const = 0;
  /// The group of these world ranks, ascending. Every rank of the world makes the same groups in
  /// the same order; nullptr where it is not a member.
  virtual std::unique_ptr<Group> make_group(const std::vector<int64_t>& ranks) = 0;
  /// Makes every one of `groups` and returns the one that this rank is in, or nullptr if it is
  /// alone there.
  std::unique_ptr<Group> make_groups(const settings::RankGroups& groups);
  /// The group of all ranks.
  std::unique_ptr<Group> make_group_of_all();
  /// Leaves a note that every rank can see.
  virtual void post(const std::string& note) = 0;
  /// Returns when some rank has posted `note`, however long that takes. It asks rank 0, which keeps
  /// the notes, at growing intervals of at most `longest_pause_s`. Errors: CommError if rank 0 is
  /// gone.
  virtual void wait_for(const std::string& note, double longest_pause_s = 0.1) = 0;
  /// Takes a note away that no rank waits for any more.
  virtual void forget(const std::string& note) = 0;
  /// Says which step of the training this rank is in, for messages about the rank.
  virtual void note_step(int64_t /*step*/) {}
  /// Says that this rank is about to end with `error`. If it is an error of communication, waits
  /// until the ranks have found its cause, and may not return.
  virtual void give_up(const Error& /*error*/) {}
  /// Calls tell() once, on a thread of its own, before another rank's failure ends this process,
  /// which waits for it; it must take less than a second. The last one counts; one that another
  /// replaces, or that {} takes away, is not under way when this returns.
  virtual void before_end(std::function<void()> /*tell*/) {}
};

using settings::MeshShape;

/// Finds a group by the axes that it goes along. An axis of size 1 makes no difference, so sets
/// that differ only by such axes have one group.
class GroupsOver {
 public:
  /// Makes the groups of ranks that ranks_of(axes) lists, for every set in `sets`. Collective.
  GroupsOver(World& world, const MeshShape& shape, const std::vector<arch::Axes>& sets,
             const std::function<settings::RankGroups(arch::Axes)>& ranks_of);
  /// Errors: InternalError for a set that was not among `sets`.
  const Group& at(arch::Axes axes) const;
  void abort() const;

 private:
  MeshShape shape_;
  std::map<arch::Axes, std::unique_ptr<Group>> groups_;
};

/// The groups in which ranks hold parts, shares or stages of one model. Immutable; owns its groups.
///
/// `copied_on`: the axes on which a parameter is copied, as ParamSpec::copied_on says. The tensor
/// axis is ignored in it, because there each rectangle has holders of its own (HeldRect::holders).
class ModelGroups {
 public:
  /// with_stages: false makes pipeline() the group of this rank alone. REQUIRES: the world has
  /// shape.size() ranks. Collective.
  ModelGroups(World& world, const MeshShape& shape, bool with_stages = true);
  virtual ~ModelGroups() = default;
  ModelGroups(const ModelGroups&) = delete;
  ModelGroups& operator=(const ModelGroups&) = delete;

  const Group& tensor() const { return cutting({arch::Axis::kTensor}); }
  /// The ranks of one stage that together hold, once, a parameter that is cut on these axes.
  const Group& cutting(arch::Axes cut_on) const;
  /// The ranks that hold the same parameter and share one copy of it, each keeping a part.
  const Group& sharers(arch::Axes copied_on = kEveryCopy) const;
  /// One rank of each stage, in the order of the stages.
  const Group& pipeline() const { return or_alone(own_pipeline_); }
  /// Group::abort of every group.
  virtual void abort() const;

  /// The axes on which parameters other than experts' are copied.
  static constexpr arch::Axes kEveryCopy = {arch::Axis::kContext, arch::Axis::kExpert,
                                            arch::Axis::kData};

 protected:
  ModelGroups() = default;
  static const Group& or_alone(const std::unique_ptr<Group>& group) {
    return group ? *group : Group::alone();
  }

 private:
  std::optional<GroupsOver> cutting_, sharers_;  ///< empty in the mesh of one rank
  std::unique_ptr<Group> own_pipeline_;
};

/// ModelGroups, and the groups that sum gradients.
class PassGroups : public ModelGroups {
 public:
  PassGroups(World& world, const MeshShape& shape, bool with_stages = true);

  /// All ranks that hold the same parameter, whether or not they share one copy.
  const Group& holders(arch::Axes copied_on) const;
  /// The ranks among them that keep the same share.
  const Group& replicas(arch::Axes copied_on = kEveryCopy) const;
  /// The ranks that divide the batch of a step among them: its samples, and the tokens of a sample.
  const Group& batch_ranks() const { return holders(kEveryCopy); }
  /// This rank and those beside it on the tensor axis that hold the same rectangle of a parameter:
  /// `count` ranks together. REQUIRES: `count` divides the tensor axis.
  const Group& neighbours(int64_t count) const;
  void abort() const override;

 protected:
  PassGroups() = default;

 private:
  std::map<int64_t, std::unique_ptr<Group>> neighbours_;  ///< by count, where a part of the axis
  std::optional<GroupsOver> holders_, replicas_;          ///< only where not all holders share
};

/// Where a rank stands in the mesh, and its groups: those of its passes, and further ones of the
/// same ranks for threads beside passes, since a group belongs to one thread.
class Mesh : public PassGroups {
 public:
  /// all: the group of all ranks, if there is one already. REQUIRES: the world has shape.size()
  /// ranks. Collective.
  Mesh(World& world, const MeshShape& shape, std::unique_ptr<Group> all = nullptr);

  const MeshShape& shape() const { return shape_; }
  int64_t rank() const { return rank_; }
  const Group& all() const { return or_alone(all_); }
  int64_t stage() const { return shape_.stage(rank_); }
  /// This rank and its counterpart at the other end of the pipeline, if it is in the first or the
  /// last stage; else this rank alone.
  const Group& ends() const { return or_alone(own_ends_); }
  /// This rank and its counterpart in the next or the previous stage; with virtual stages the first
  /// stage follows the last. Hidden states go to the next stage (kHidden) and their gradients back
  /// (kGrad), and each way has a group of its own. REQUIRES: that stage exists.
  enum class Way { kHidden, kGrad };
  const Group& with_next(Way way) const { return *links_[static_cast<size_t>(way)].next; }
  const Group& with_previous(Way way) const { return *links_[static_cast<size_t>(way)].previous; }
  /// The ranks that divide the tokens of one micro-batch among them.
  const Context& context() const { return *context_; }
  /// Carries rows along the expert axis while passes compute; nullptr: nobody asked for it, or the
  /// axis has one rank.
  const AsyncExchange* experts_beside() const { return experts_beside_.get(); }
  /// The exchanges at the borders of what the tensor axis divides.
  Region region() const { return {tensor(), shape_.sequence_parallel}; }
  /// Groups for exchanges that run beside a pass. They stay within a stage.
  const PassGroups& background() const {
    if (background_) return *background_;
    return *this;
  }
  /// Groups for writing files, which runs beside both passes and background().
  const ModelGroups& saving() const {
    if (saving_) return *saving_;
    return *this;
  }
  void abort() const override;
  /// Adds up a count over the model: over the stages, `common` and the sum of `of_experts` over the
  /// ranks that hold other experts. `common` is what those ranks count alike. Collective.
  int64_t sum_over_stages(int64_t common, int64_t of_experts) const;
  /// This rank's position on the axes that cut parameters.
  arch::Coord coord() const { return shape_.coord(rank_); }

  /// The mesh of one rank.
  static const Mesh& single();

 private:
  Mesh() = default;
  void make_links(World& world);
  MeshShape shape_;
  int64_t rank_ = 0;
  std::unique_ptr<Group> all_, own_ends_;
  std::unique_ptr<Context> context_ = std::make_unique<Context>();
  std::unique_ptr<AsyncExchange> experts_beside_;
  struct Link {
    std::unique_ptr<Group> previous, next;
  };
  std::array<Link, 2> links_;               ///< by Way
  std::unique_ptr<PassGroups> background_;  ///< nullptr in the mesh of one rank
  std::unique_ptr<ModelGroups> saving_;     ///< the same
};

}  // namespace danlu::parallel
