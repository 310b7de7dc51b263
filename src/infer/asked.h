// infer/asked.h: what an engine can be asked.
#pragma once
#include "arch/model_config.h"
#include "infer/engine.h"

namespace danlu::infer {

/// Errors: those of Engine::add. has_followers: other ranks hold parts of the model; has_peers:
/// each of them has an engine.
void check_asked(const EngineRequest& asked, const arch::ModelConfig& model,
                 const EngineSettings& settings, bool has_followers, bool has_peers);

/// The settings with which an engine of this model works: an encoder's keys depend on what follows,
/// so that prompts that begin alike share none.
EngineSettings fitting(EngineSettings settings, const arch::ModelConfig& model);

/// What such a model answers: a head of an encoder reads the first token, whatever is asked.
EngineRequest fitting(EngineRequest asked, const arch::ModelConfig& model);

}  // namespace danlu::infer
