// plan/stage_time.h: what a stage of a pipeline takes for a micro-batch, and its exchanges with the
// ranks beside it.
#pragma once
#include <map>
#include <utility>
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
  double expert = 0;   ///< rows on their way to experts and back
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
  Path expert;         ///< ranks that divide experts among them
  Path expert_copies;  ///< ranks that hold the same experts
  Path replicas;       ///< ranks of equal shares
};
Paths paths_of(const Request& request, const Machine& machine);

/// Keeps what it has worked out, of layers that are alike.
class StageClock {
 public:
  /// The arguments outlive the clock.
  StageClock(const Request& request, const Machine& machine, const ProgramTraits& program);

  /// The times of chunk `chunk`; traffic: of a stage of this request.
  ChunkTimes chunk(const arch::Stage& stage, int64_t chunk, const Traffic& traffic,
                   const Elements& elements);
  /// Once a step.
  DataExchanges exchanges(const arch::Stage& stage, const Elements& elements) const;

 private:
  const LayerTimes& layer(int64_t keys, bool sparse);
  void add_layers(const arch::Stage& chunk, const Traffic& traffic, ChunkTimes& times);
  void add_tower(const arch::Stage& chunk, const Traffic& traffic, ChunkTimes& times) const;
  void add_ends(const arch::Stage& chunk, ChunkTimes& times) const;
  void add_predictions(const arch::Stage& chunk, const Traffic& traffic, ChunkTimes& times);
  /// Seconds of half a sum over the copies of what they hold, at so many bytes an element. which:
  /// all of it or what is trained.
  double half_sum_of_copies(const Elements& elements, int64_t Held::* which, double width) const;
  double sum_of_replicas(const Elements& elements, double width) const;
  void add_copies(const arch::Stage& chunk, const Elements& elements, double share,
                  ChunkTimes& times) const;

  const Request& request_;
  const Machine& machine_;
  const ProgramTraits& program_;
  Paths paths_;
  double busiest_ = 1;  ///< rows of the rank with the most, as a multiple of the mean
  std::map<std::pair<int64_t, bool>, LayerTimes> layers_;  ///< by keys seen; with experts or not
  Uses uses_;                                              ///< of a model with a vision tower
};

/// One run of layers of a stage, as a stage of its own.
arch::Stage chunk_of(const arch::Stage& stage, int64_t chunk);

}  // namespace danlu::plan
