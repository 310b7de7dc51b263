// serve/step_engine.h: what answers requests, as the server sees it.
#pragma once
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
  virtual std::vector<infer::EngineOutput> step() = 0;
  virtual infer::EngineCounts counts() const = 0;
  virtual infer::EngineSettings settings() const = 0;
};

}  // namespace danlu::serve
