// plan/stage_time.h: what a stage of a pipeline takes for a micro-batch, and its exchanges with the
// ranks beside it.
#pragma once
#include <map>
#include <vector>

#include "plan/layer_memory.h"
#include "plan/layer_time.h"
#include "plan/simulate.h"
#include "plan/traffic.h"

namespace danlu::plan {

/// What the time of a step is made of, in seconds of the slowest stage.
struct Parts {
  double products = 0, attention = 0;
  double moved = 0;  ///< everything else, which is bound by memory or by issuing
  double recompute = 0, tensor = 0, context = 0;
  double offload = 0;  ///< activations on their way that no work hides

  Parts& operator+=(const Parts& other);
  Parts operator*(double times) const;
};

struct ChunkTimes {
  WorkTimes work;         ///< without exchanges of the data axis
  WorkTimes with_copies;  ///< with those that come in every pass (ZeRO-2 and 3)
  Parts parts;            ///< of `work`
};

/// The groups that a rank of a request belongs to.
struct Paths {
  Path tensor, context, data;
};
Paths paths_of(const Request& request, const Machine& machine);

/// Keeps what it has worked out, of layers that are alike.
class StageClock {
 public:
  /// All outlive it.
  StageClock(const Request& request, const Machine& machine, const Engine& engine);

  /// The times of chunk `chunk`; traffic: of a stage of this request.
  ChunkTimes chunk(const arch::Stage& stage, int64_t chunk, const Traffic& traffic,
                   const Elements& elements);
  /// Once a step.
  DataExchanges exchanges(const arch::Stage& stage, const Elements& elements) const;

 private:
  const LayerTimes& layer(int64_t keys);
  void add_layers(const arch::Stage& chunk, const Traffic& traffic, ChunkTimes& times);
  void add_tower(const arch::Stage& chunk, const Traffic& traffic, ChunkTimes& times) const;
  void add_ends(const arch::Stage& chunk, ChunkTimes& times) const;
  void add_copies(const arch::Stage& chunk, const Elements& elements, double share,
                  ChunkTimes& times) const;

  const Request& request_;
  const Machine& machine_;
  const Engine& engine_;
  Paths paths_;
  std::map<int64_t, LayerTimes> layers_;  ///< by keys seen
  Uses uses_;                             ///< of a model with a vision tower
};

/// One run of layers of a stage, as a stage of its own.
arch::Stage chunk_of(const arch::Stage& stage, int64_t chunk);

}  // namespace danlu::plan
