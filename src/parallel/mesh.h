// parallel/mesh.h: where a rank stands among all, and the groups it belongs to.
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
#include "parallel/group.h"
#include "parallel/region.h"
#include "settings/mesh_shape.h"

namespace danlu::parallel {

/// All ranks of a job as one of them sees them; makes the groups that collectives go over.
class World {
 public:
  virtual ~World() = default;
  virtual int64_t rank() const = 0;
  virtual int64_t size() const = 0;
  /// The group of these world ranks, ascending. Every rank of the world makes the same groups in
  /// the same order; nullptr where it is not a member.
  virtual std::unique_ptr<Group> make_group(const std::vector<int64_t>& ranks) = 0;
  /// Every one of `groups`; returns this rank's, or nullptr where it is alone in it.
  std::unique_ptr<Group> make_groups(const settings::RankGroups& groups);
  /// That of all ranks.
  std::unique_ptr<Group> make_group_of_all();
  /// Leaves a note that every rank can see.
  virtual void post(const std::string& note) = 0;
  /// Returns when somebody has posted it, however long that takes. Errors: CommError when rank 0,
  /// which keeps the notes, is gone.
  virtual void wait_for(const std::string& note) = 0;
  /// The step of the training that this rank is in, for messages about it.
  virtual void note_step(int64_t /*step*/) {}
  /// This rank is about to end with an error; where that is of communication, waits for what the
  /// ranks find to be its cause, and may not return.
  virtual void give_up(const Error& /*error*/) {}
};

using settings::MeshShape;

/// Groups by the axes that they go along; axes along which one rank stands count for nothing.
class GroupsOver {
 public:
  /// With `ranks_of` made for each set of axes that differs from the others in this shape.
  /// Collective.
  GroupsOver(World& world, const MeshShape& shape, const std::vector<arch::Axes>& sets,
             const std::function<settings::RankGroups(arch::Axes)>& ranks_of);
  /// Errors: InternalError for a set that was not among `sets`.
  const Group& at(arch::Axes axes) const;
  void abort() const;

 private:
  MeshShape shape_;
  std::map<arch::Axes, std::unique_ptr<Group>> groups_;
};

/// The ranks that hold one model between them. Immutable; owns its groups.
///
/// `copied_on`: the axes on which a parameter is copied, as ParamSpec::copied_on says; of the
/// tensor axis each piece says for itself (Piece::copies), and it counts for nothing here.
class ModelGroups {
 public:
  /// REQUIRES: the world has shape.size() ranks. Collective.
  /// with_stages: else pipeline() is of this rank alone.
  ModelGroups(World& world, const MeshShape& shape, bool with_stages = true);
  virtual ~ModelGroups() = default;
  ModelGroups(const ModelGroups&) = delete;
  ModelGroups& operator=(const ModelGroups&) = delete;

  const Group& tensor() const { return cutting({arch::Axis::kTensor}); }
  /// The ranks of a stage that hold the parts of what is cut on these axes, once.
  const Group& cutting(arch::Axes cut_on) const;
  /// Those that hold the same, and keep shares of one copy of it between them.
  const Group& sharers(arch::Axes copied_on = kEveryCopy) const;
  /// Those of the stages, in their order.
  const Group& pipeline() const { return or_alone(own_pipeline_); }
  /// Group::abort of every group.
  virtual void abort() const;

  /// Where parameters are copied that are no expert's.
  static constexpr arch::Axes kEveryCopy = {arch::Axis::kContext, arch::Axis::kExpert,
                                            arch::Axis::kData};

 protected:
  ModelGroups() = default;
  static const Group& or_alone(const std::unique_ptr<Group>& group) {
    return group ? *group : Group::alone();
  }

 private:
  std::optional<GroupsOver> cutting_, sharers_;  ///< none: of one rank
  std::unique_ptr<Group> own_pipeline_;
};

/// And those with which they sum gradients.
class PassGroups : public ModelGroups {
 public:
  PassGroups(World& world, const MeshShape& shape, bool with_stages = true);

  /// The ranks that hold the same.
  const Group& copies(arch::Axes copied_on) const;
  /// Those of them that keep the same share.
  const Group& replicas(arch::Axes copied_on = kEveryCopy) const;
  /// The ranks between whom the samples of a step are divided, and the tokens of a sample.
  const Group& data() const { return copies(kEveryCopy); }
  /// The ranks of the tensor axis that hold one piece in common: `copies` neighbours.
  const Group& neighbours(int64_t copies) const;
  void abort() const override;

 protected:
  PassGroups() = default;

 private:
  std::map<int64_t, std::unique_ptr<Group>> neighbours_;  ///< 1 < number < the tensor axis' size
  std::optional<GroupsOver> copies_, replicas_;           ///< where not all copies share
};

/// Where a rank stands among all, and its groups: those of its passes, all ranks, and the same
/// again for what goes on beside passes.
class Mesh : public PassGroups {
 public:
  /// REQUIRES: the world has shape.size() ranks. all: the group of all ranks, if it was needed
  /// before. Collective.
  Mesh(World& world, const MeshShape& shape, std::unique_ptr<Group> all = nullptr);

  const MeshShape& shape() const { return shape_; }
  int64_t rank() const { return rank_; }
  const Group& all() const { return or_alone(all_); }
  int64_t stage() const { return shape_.stage(rank_); }
  /// The first stage and the last; alone() in between.
  const Group& ends() const { return or_alone(own_ends_); }
  /// A stage and the next, which is the first after the last in a ring: one gives hidden states
  /// (kHidden), the other their gradients back (kGrad). Exchanges beside all others. REQUIRES: they
  /// are stages.
  enum class Way { kHidden, kGrad };
  const Group& with_next(Way way) const { return *links_[static_cast<size_t>(way)].next; }
  const Group& with_previous(Way way) const { return *links_[static_cast<size_t>(way)].previous; }
  /// The ranks that hold the tokens of one micro-batch between them.
  const Context& context() const { return *context_; }
  /// The borders of what the tensor axis divides.
  Region region() const { return {tensor(), shape_.sequence_parallel}; }
  /// For exchanges beside those of a pass, which are within a stage.
  const PassGroups& background() const {
    if (background_) return *background_;
    return *this;
  }
  /// For files that are written beside passes and their background.
  const ModelGroups& saving() const {
    if (saving_) return *saving_;
    return *this;
  }
  void abort() const override;
  /// Where this rank stands on the axes that cut parameters.
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
  struct Link {
    std::unique_ptr<Group> previous, next;
  };
  std::array<Link, 2> links_;               ///< by Way
  std::unique_ptr<PassGroups> background_;  ///< none of one rank, as saving_
  std::unique_ptr<ModelGroups> saving_;
};

}  // namespace danlu::parallel
