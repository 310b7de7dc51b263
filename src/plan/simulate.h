// plan/simulate.h: what a pipeline's schedules come to in time: a discrete-event simulation of one
// pipeline (copies of the model go alike).
#pragma once
#include <cstdint>
#include <vector>

#include "arch/pipeline.h"

namespace danlu::plan {

/// Seconds that a stage's chunk takes for a micro-batch. A whole backward takes both parts.
struct WorkTimes {
  double forward = 0, backward_input = 0, backward_weight = 0;
};
/// One direction between neighbours, which work goes on beside; messages go one after another.
struct StageLink {
  double seconds = 0;  ///< a message occupies the link
  double latency = 0;  ///< until it is there
};

/// Exchanges of equal units of a chunk (its layers), one after another and beside the work.
struct Units {
  int64_t count = 0;
  double seconds = 0;  ///< each
};
/// The exchanges of a stage with its copies, by chunk; empty: none.
struct DataExchanges {
  /// What the last update left at other copies comes before the first forward goes through it.
  std::vector<Units> gathered = {};
  /// Gradients, unit by unit while the chunk's last backward goes through them.
  std::vector<Units> summed = {};
};

struct Span {
  int64_t stage, chunk, micro_batch;
  arch::Work work;  ///< forward or one of the backwards
  double start, end;
};
struct Simulated {
  double seconds = 0;                   ///< until the last work has ended
  double with_sums = 0;                 ///< and the last sum of gradients
  double bubble = 0;                    ///< share of stages × seconds without work
  std::vector<double> busy;             ///< seconds of each stage
  std::vector<int64_t> peak_in_flight;  ///< of each stage: activations kept, in chunks
  std::vector<Span> spans;              ///< by stage, then time
};

/// schedules[stage]; times[stage][chunk]. links[s]: from stage s to the next, in each direction;
/// the last one joins the last stage with the first, for chunks. Chunk c of stage s follows chunk c
/// of stage s - 1, and of the first stage chunk c - 1 of the last. What was computed is kept until
/// the backward, or the weights' part of it, has ended. exchanges: by stage, or empty.
/// REQUIRES: as many times and links as stages. Errors: UsageError if every stage waits for
/// another.
Simulated simulate(const std::vector<arch::Schedule>& schedules,
                   const std::vector<std::vector<WorkTimes>>& times,
                   const std::vector<StageLink>& links,
                   const std::vector<DataExchanges>& exchanges = {});

}  // namespace danlu::plan
