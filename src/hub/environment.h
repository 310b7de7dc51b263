// hub/environment.h: the variables that the hubs' own tools read: where a hub is, who asks, where
// the caches are.
#pragma once
#include <filesystem>
#include <optional>
#include <string>

#include "hub/repository.h"

namespace danlu::hub {

/// HF_ENDPOINT, or MODELSCOPE_ENDPOINT and the older MODELSCOPE_DOMAIN; without a last slash.
/// Errors: UsageError if it is no http or https URL.
std::string endpoint_of(Hub hub);
/// HF_TOKEN, HUGGING_FACE_HUB_TOKEN, else the file that a login left; MODELSCOPE_API_TOKEN, else
/// that of ModelScope's. Empty: none.
std::string token_of(Hub hub);
/// HF_HUB_CACHE (HUGGINGFACE_HUB_CACHE), HF_HOME/hub, XDG_CACHE_HOME/huggingface/hub,
/// ~/.cache/huggingface/hub; MODELSCOPE_CACHE, ~/.cache/modelscope.
std::filesystem::path cache_of(Hub hub);
/// HF_HUB_OFFLINE or TRANSFORMERS_OFFLINE: the name of the one that is on; empty: none is.
std::string offline_variable();
/// What USE_HF, USE_MODELSCOPE_HUB or, where only one of the two is set, HF_ENDPOINT and
/// MODELSCOPE_ENDPOINT choose.
std::optional<Hub> hub_by_environment();

}  // namespace danlu::hub
