// parallel/comm/c10d.h: ranks as processes that libtorch's c10d connects: Gloo over TCP.
#pragma once
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "parallel/mesh.h"

namespace danlu::parallel {

struct C10dJob {
  int64_t rank = 0, size = 1;
  std::string master_address;  ///< where rank 0 keeps the store
  int64_t master_port = 0;
  /// How long a rank waits for the others: to appear, and within a collective.
  std::chrono::milliseconds timeout = std::chrono::minutes(30);
};

/// Connects to the other ranks. Errors: CommError naming the address, and who did not come, after
/// `timeout`; or that rank 0's port is taken.
std::unique_ptr<World> connect_c10d(const C10dJob& job);

}  // namespace danlu::parallel
