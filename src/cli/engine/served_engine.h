// cli/engine/served_engine.h: the engine as the server sees it, of one process or of several.
#pragma once
#include <exception>
#include <functional>
#include <memory>
#include <utility>

#include "infer/engine.h"
#include "infer/followers.h"
#include "parallel/ranks.h"
#include "serve/step_engine.h"

namespace danlu::cli {

/// Makes them on rank 0, one after the other.
class EngineMaker {
 public:
  /// followers: of the model's other parts; nullptr: it is whole. All outlive this.
  EngineMaker(const models::CausalLM& model, const infer::EngineSettings& settings,
              const parallel::Ranks& ranks, infer::Followers* followers)
      : model_(model), settings_(settings), ranks_(ranks), followers_(followers) {}

  /// What went wrong on one of several processes is the end of all: they are told, and every later
  /// call throws it again.
  std::unique_ptr<serve::StepEngine> make();
  /// Called on the engine's thread when another process cannot be reached any more: why that is may
  /// take seconds to find, and end this process.
  void on_loss(std::function<void()> tell) { on_loss_ = std::move(tell); }

 private:
  class Served;
  const models::CausalLM& model_;
  const infer::EngineSettings settings_;
  const parallel::Ranks& ranks_;
  infer::Followers* followers_;
  std::function<void()> on_loss_;
  std::exception_ptr lost_;
};

}  // namespace danlu::cli
