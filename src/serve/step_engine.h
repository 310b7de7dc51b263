// serve/step_engine.h: what answers requests, as the server sees it.
#pragma once
#include <functional>
#include <memory>
#include <vector>

#include "infer/engine.h"

namespace danlu::serve {

/// infer::Engine, or something smaller of a test. One thread uses it.
class StepEngine {
 public:
  virtual ~StepEngine() = default;
  virtual infer::RequestHandle add(infer::EngineRequest request) = 0;
  virtual void cancel(infer::RequestHandle handle) = 0;
  virtual bool has_work() const = 0;
  /// Errors go out, and it is of no further use.
  virtual std::vector<infer::EngineOutput> step() = 0;
  /// Requests of which the last step was the first to compute anything.
  virtual std::vector<infer::RequestHandle> begun() const = 0;
  virtual infer::EngineCounts counts() const = 0;
  virtual infer::EngineSettings settings() const = 0;
};

using MakeStepEngine = std::function<std::unique_ptr<StepEngine>()>;

}  // namespace danlu::serve
