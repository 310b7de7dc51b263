// api/adapter_requests.h: the bodies of POST /v1/load_lora_adapter and /v1/unload_lora_adapter.
#pragma once
#include <string>

#include "api/fields.h"

namespace danlu::api {

struct LoadAdapterRequest {
  std::string name, path;   ///< not empty; a directory of the server's machine
  bool replaces = false;    ///< one of that name
  std::string parent = {};  ///< "": the base model's name
};
/// Errors: Refusal.
LoadAdapterRequest read_load_adapter_request(const Json& body);

/// The adapter's name, not empty. Errors: Refusal.
std::string read_unload_adapter_request(const Json& body);

}  // namespace danlu::api
