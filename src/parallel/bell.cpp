#include "parallel/bell.h"

#include <fmt/format.h>

#include <string>

namespace danlu::parallel {
namespace {

/// Users wait for the first token so much longer after a silence.
constexpr double kLongestPauseSeconds = 0.02;

std::string note_of(int64_t ring) { return fmt::format("ring {}", ring); }

}  // namespace

void Bell::ring() {
  // Nobody waits for the last one any more, and rank 0 would keep every one that ever was.
  if (rings_ > 0) world_.forget(note_of(rings_ - 1));
  world_.post(note_of(rings_++));
}

void Bell::await() { world_.wait_for(note_of(rings_++), kLongestPauseSeconds); }

}  // namespace danlu::parallel
