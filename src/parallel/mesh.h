// parallel/mesh.h: where a rank stands among all, and the groups it belongs to.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "arch/shard.h"
#include "base/error.h"
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

/// Immutable. Owns its groups.
class Mesh {
 public:
  /// REQUIRES: the world has shape.size() ranks. Collective.
  Mesh(World& world, const MeshShape& shape);

  const MeshShape& shape() const { return shape_; }
  int64_t rank() const { return rank_; }
  const Group& tensor() const { return *tensor_; }
  const Group& data() const { return *data_; }
  /// The ranks of the data axis that keep shares of one copy, and those that keep the same share.
  const Group& sharers() const { return own_sharers_ ? *own_sharers_ : *data_; }
  const Group& replicas() const { return own_replicas_ ? *own_replicas_ : Group::alone(); }
  const Group& all() const { return all_ ? *all_ : Group::alone(); }
  /// The ranks of the tensor axis that hold one piece in common: `copies` neighbours.
  const Group& copies(int64_t copies) const;
  /// The borders of what the tensor axis divides.
  Region region() const { return {*tensor_, shape_.sequence_parallel}; }
  /// The same ranks in groups of their own, for exchanges beside those of a pass.
  const Mesh& background() const { return background_ ? *background_ : *this; }
  /// tensor() and sharers() once more, for files that are written beside passes and their
  /// background.
  const Mesh& saving() const { return saving_ ? *saving_ : *this; }
  /// Group::abort of every group.
  void abort() const;
  /// Where this rank stands on the axes that cut parameters.
  arch::Coord coord() const;

  /// The mesh of one rank.
  static const Mesh& single();

 private:
  Mesh();
  void make_groups(World& world);
  /// Those that cut parameters, and no others.
  void make_cutting_groups(World& world);
  MeshShape shape_;
  int64_t rank_ = 0;
  std::map<int64_t, std::unique_ptr<Group>> copies_;  ///< 1 < copies < shape.tensor
  std::unique_ptr<Group> own_tensor_, own_data_, all_;
  std::unique_ptr<Group> own_sharers_, own_replicas_;  ///< where not all of the axis share
  const Group *tensor_, *data_;
  std::unique_ptr<Mesh> background_, saving_;  ///< none of one rank
};

}  // namespace danlu::parallel
