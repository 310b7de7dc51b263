// train/ranks.h: the processes that train together, as one of them sees the others.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "base/rank_place.h"
#include "parallel/mesh.h"

namespace danlu::train {

class Ranks {
 public:
  /// Connects to the processes that `place` names, arranged as `shape`; waits `timeout_s` for them,
  /// here and in every exchange. Errors: CommError naming who did not come; IoError where the port
  /// is taken.
  Ranks(const RankPlace& place, const parallel::MeshShape& shape, double timeout_s);

  const parallel::Mesh& mesh() const { return own_mesh_ ? *own_mesh_ : parallel::Mesh::single(); }
  int64_t rank() const { return mesh().rank(); }
  int64_t size() const { return mesh().all().size(); }
  /// Rank 0 speaks, writes and prepares for all.
  bool is_first() const { return rank() == 0; }

  void wait_for_all() const { mesh().all().barrier(); }
  /// make(), by rank 0 first and by the others when it is done: they find what it left on disk.
  template <typename Make>
  auto in_turn(const Make& make) const {
    if (!is_first()) wait_for_all();
    auto made = make();
    if (is_first()) wait_for_all();
    return made;
  }
  /// What rank 0 says, to everybody.
  std::string from_first(const std::string& text) const { return from(0, text); }
  /// The largest of everybody's numbers.
  int64_t largest(int64_t number) const;
  /// Errors, on every rank: UsageError naming the first rank whose `value` of `what` is not rank
  /// 0's, with both.
  void require_same(const std::string& what, const std::string& value) const;

 private:
  std::string from(int64_t rank, const std::string& text) const;

  std::unique_ptr<parallel::World> world_;
  std::unique_ptr<parallel::Mesh> own_mesh_;
};

}  // namespace danlu::train
