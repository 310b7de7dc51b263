// parallel/mesh.h: where a rank stands among all, and the groups it belongs to.
#pragma once
#include <array>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "arch/shard.h"
#include "base/error.h"
#include "parallel/context.h"
#include "parallel/group.h"
#include "parallel/region.h"
#include "settings/sharing.h"

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
  /// Groups of `size` ranks, `stride` apart, of which the whole is made; this rank's, or nullptr
  /// where groups have one member.
  std::unique_ptr<Group> make_groups(int64_t size, int64_t stride);
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

/// The ranks that hold one model between them. Immutable; owns its groups.
class ModelGroups {
 public:
  /// REQUIRES: the world has shape.size() ranks. Collective.
  /// with_stages: else pipeline() is of this rank alone.
  ModelGroups(World& world, const MeshShape& shape, bool with_stages = true);
  virtual ~ModelGroups() = default;
  ModelGroups(const ModelGroups&) = delete;
  ModelGroups& operator=(const ModelGroups&) = delete;

  const Group& tensor() const { return *tensor_; }
  /// The ranks of the data and context axes that keep shares of one copy.
  const Group& sharers() const { return *sharers_; }
  /// Those of the stages, in their order.
  const Group& pipeline() const { return or_alone(own_pipeline_); }
  /// Group::abort of every group.
  virtual void abort() const;

 protected:
  ModelGroups() = default;
  static const Group& or_alone(const std::unique_ptr<Group>& group) {
    return group ? *group : Group::alone();
  }

 private:
  std::unique_ptr<Group> own_tensor_, own_sharers_, own_pipeline_;
  const Group *tensor_ = &Group::alone(), *sharers_ = &Group::alone();
};

/// And those with which they sum gradients.
class PassGroups : public ModelGroups {
 public:
  PassGroups(World& world, const MeshShape& shape, bool with_stages = true);

  /// Of the data and the context axis: those that hold the same parameters.
  const Group& data() const { return own_data_ ? *own_data_ : sharers(); }
  /// Those of them that keep the same share.
  const Group& replicas() const { return or_alone(own_replicas_); }
  /// The ranks of the tensor axis that hold one piece in common: `copies` neighbours.
  const Group& copies(int64_t copies) const;
  void abort() const override;

 protected:
  PassGroups() = default;

 private:
  std::map<int64_t, std::unique_ptr<Group>> copies_;  ///< 1 < copies < the tensor axis' size
  std::unique_ptr<Group> own_data_, own_replicas_;    ///< where not all of the axis share
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
  arch::Coord coord() const;

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
