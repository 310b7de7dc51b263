// parallel/bell.h: rank 0 calls the other ranks, who wait for it outside of exchanges.
#pragma once
#include <cstdint>

#include "parallel/mesh.h"

namespace danlu::parallel {

/// Work that comes whenever it likes, such as requests of users, is waited for here: a wait in an
/// exchange would end after --dist-timeout. Every rank has one of its own.
class Bell {
 public:
  explicit Bell(World& world) : world_(world) {}

  /// Rank 0 calls it. REQUIRES: since the last ring all ranks were in an exchange whose result
  /// needs all.
  void ring();
  /// The other ranks wait here until the next ring, however long that takes. Errors: CommError when
  /// rank 0 is gone.
  void await();

 private:
  World& world_;
  int64_t rings_ = 0;
};

}  // namespace danlu::parallel
