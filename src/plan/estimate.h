// plan/estimate.h: a whole plan: memory, traffic and time of a step of a configuration on a
// machine.
#pragma once
#include <string>
#include <vector>

#include "base/json.h"
#include "plan/machine.h"
#include "plan/memory.h"
#include "plan/simulate.h"
#include "plan/traffic.h"

namespace danlu::plan {

struct StagePlan {
  arch::Stage stage;
  Memory memory = {};
  Traffic traffic = {};
  int64_t in_flight = 0;
};
struct Plan {
  Request request;
  Machine machine;
  int64_t parameters = 0, trained = 0;  ///< of the model
  std::vector<StagePlan> stages = {};
  size_t fullest = 0;  ///< the stage whose ranks need the most memory
  Simulated simulated = {};
  double exposed_s = 0;    ///< exchanges of the data axis that no backward hides
  double optimizer_s = 0;  ///< reading and writing state
  double step_s = 0, tokens_per_s = 0, mfu = 0;
  double checkpoint_bytes = 0, checkpoint_s = 0;

  int64_t world() const { return request.mesh.size(); }
  int64_t memory() const { return stages[fullest].memory.total(); }
  bool fits() const { return static_cast<double>(memory()) <= machine.memory_bytes; }
  /// What most of the step, or what does not fit, is due to.
  std::string limit() const;
};

/// Errors: UsageError of sizes that do not go together.
Plan make_plan(const Request& request, const Machine& machine);
/// The fastest plans that fit `world` devices, at most `limit`, over the splits, ZeRO, recompute
/// and sizes of micro-batches of `samples` a step. If none fits, those that need the least memory.
std::vector<Plan> search_plans(const Request& request, const Machine& machine, int64_t world,
                               int64_t samples, size_t limit);

std::string describe(const Plan& plan);
std::string describe_line(const Plan& plan);
Json to_json(const Plan& plan);

}  // namespace danlu::plan
