// plan/estimate.h: a whole plan: memory, traffic and time of a step of a configuration on a
// machine.
#pragma once
#include <string>
#include <vector>

#include "base/json.h"
#include "plan/stage_time.h"

namespace danlu::plan {

/// Bytes that one rank sends in a step.
struct Sent {
  double node = 0;     ///< to devices of its node
  double network = 0;  ///< to others
  double all() const { return node + network; }
};

struct StagePlan {
  arch::Stage stage;
  Memory memory = {};
  Traffic traffic = {};
  Sent data = {}, tensor = {}, context = {}, pipeline = {}, expert = {};  ///< by axis
  int64_t in_flight = 0;
};
struct Plan {
  Request request;
  Machine machine;
  int64_t parameters = 0, trained = 0;  ///< of the model
  std::vector<StagePlan> stages = {};
  size_t fullest = 0;  ///< the stage whose ranks need the most memory
  size_t slowest = 0;  ///< the stage with the most work
  Simulated simulated = {};
  Parts parts = {};        ///< of a step of the slowest stage
  double exposed_s = 0;    ///< exchanges of the data axis that no work hides
  double optimizer_s = 0;  ///< reading and writing state
  double step_s = 0, tokens_per_s = 0, mfu = 0;
  double checkpoint_bytes = 0;  ///< of all ranks
  double checkpoint_s = 0;      ///< to write it; training goes on beside it
  double restart_bytes = 0;     ///< read by a node
  double restart_s = 0;
  double away_bytes = 0;   ///< activations of a pass that a rank offloads, at most
  int64_t save_steps = 0;  ///< between checkpoints; 0: not said
  double host_bytes = 0;   ///< of a node's memory: what is offloaded

  int64_t world() const { return request.mesh.size(); }
  int64_t memory() const { return stages[fullest].memory.total(); }
  bool fits() const {
    return static_cast<double>(memory()) <= machine.memory_bytes &&
           host_bytes <= machine.host_bytes;
  }
  /// Expected: what was computed since the last checkpoint, and reading it. 0: save_steps is.
  double failure_s() const {
    return save_steps == 0 ? 0 : static_cast<double>(save_steps) * step_s / 2 + restart_s;
  }
  /// What most of the step beside the model's own products, or what does not fit, is due to.
  std::string limit() const;
};

/// Errors: UsageError of sizes that do not go together.
Plan make_plan(const Request& request, const Machine& machine, const ProgramTraits& program = {});

struct Search {
  int64_t world = 1;    ///< devices
  int64_t samples = 1;  ///< of a step
  size_t limit = 10;    ///< plans
};
/// The fastest plans that fit, one for each split (axes, virtual stages, micro-batch), with the
/// fastest of ZeRO, recompute and offload that fit it. Long samples: over sizes of the context axis
/// too, unless the request has one. If none fits, those that need the least memory.
std::vector<Plan> search_plans(const Request& request, const Machine& machine,
                               const Search& search);

std::string describe(const Plan& plan);
/// The head of a table, and a plan's line of it.
std::string describe_head();
std::string describe_line(const Plan& plan);
Json to_json(const Plan& plan);

}  // namespace danlu::plan
