// parallel/ranks.h: the processes that compute together, as one of them sees the others.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "base/rank_place.h"
#include "parallel/mesh.h"

namespace danlu::parallel {

/// Tells the ranks that this process ends before it has become one of them, so that they do not
/// wait for it.
void tell_ranks(const RankPlace& place, const Error& why);

class Ranks {
 public:
  /// Connects to the processes that `place` names, arranged as `shape`; waits `timeout_s` for them,
  /// here and in every exchange. `settings`: of the run, an object; those of every rank must be the
  /// same. Errors: CommError naming who did not come, or a port that is taken; as require_same.
  Ranks(const RankPlace& place, const MeshShape& shape, double timeout_s, const Json& settings);

  const Mesh& mesh() const { return own_mesh_ ? *own_mesh_ : Mesh::single(); }
  int64_t rank() const { return mesh().rank(); }
  int64_t size() const { return all().size(); }
  /// Rank 0 speaks, writes and prepares for all.
  bool is_first() const { return rank() == 0; }
  /// leads(): the first rank of every machine, ascending. lead(): that of this rank's machine.
  const std::vector<int64_t>& leads() const { return leads_; }
  int64_t lead() const { return lead_; }

  /// REQUIRES: there are several.
  World& world() const { return *world_; }

  void wait_for_all() const { all().barrier(); }
  const Group& all() const { return all_ ? *all_ : mesh().all(); }
  /// A group of these ranks, ascending; nullptr if this rank is not among them. Collective.
  std::unique_ptr<Group> group_of(const std::vector<int64_t>& ranks) const {
    return world_->make_group(ranks);
  }
  /// Calls make() on rank `first`, and after it, however long that takes, on the other ranks that
  /// name `first`, so that they find what it left on disk.
  template <typename Make>
  auto in_turn(int64_t first, const Make& make) const {
    wait_for_turn(first);
    auto made = make();
    end_turn(first);
    return made;
  }
  /// Returns when rank `first` has come here too. Unlike in an exchange, that may take any time.
  void wait_for(int64_t first) const {
    wait_for_turn(first);
    end_turn(first);
  }
  /// Rank 0's text, on every rank.
  std::string from_first(const std::string& text) const { return from(0, text); }
  std::string from(int64_t rank, const std::string& text) const;
  /// The largest of everybody's numbers.
  int64_t largest(int64_t number) const;
  /// Warns on rank 0, naming the first rank that computes with another number of threads.
  void compare_threads() const;
  /// Refuses ranks that differ. Errors, on every rank: UsageError naming `what`, the first rank
  /// whose `value` is not rank 0's, both values, and `where` they come from.
  void require_same(const std::string& what, const std::string& value,
                    const std::string& where = "") const;

  /// The step that this rank is in, for the others' messages about it.
  void note_step(int64_t step) const {
    if (world_) world_->note_step(step);
  }
  /// Calls work(). If it fails, the other ranks end too and say why.
  template <typename Work>
  auto do_or_give_up(const Work& work) const {
    try {
      return work();
    } catch (...) {
      give_up();
      throw;
    }
  }

 private:
  /// REQUIRES: called inside a catch block.
  void give_up() const;
  /// Does what require_same does for each member of an object.
  void require_same_settings(const Json& settings) const;
  /// Errors: UsageError with `difference` of the first rank where it is not empty.
  void refuse(const std::string& what, const std::string& difference) const;
  /// Errors, on every rank: UsageError where a machine's ranks do not follow each other.
  void find_leads(const RankPlace& place);
  void wait_for_turn(int64_t first) const;
  void end_turn(int64_t first) const;

  std::vector<int64_t> leads_ = {0};
  int64_t lead_ = 0;
  mutable int64_t turns_ = 0;
  std::unique_ptr<World> world_;
  std::unique_ptr<Group> all_;  ///< until the mesh has it
  std::unique_ptr<Mesh> own_mesh_;
};

}  // namespace danlu::parallel
