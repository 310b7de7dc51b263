#include "api/adapter_requests.h"

namespace danlu::api {

LoadAdapterRequest read_load_adapter_request(const Json& body) {
  Fields fields(body);
  LoadAdapterRequest request;
  request.name = fields.text("lora_name").value_or("");
  request.path = fields.text("lora_path").value_or("");
  request.replaces = fields.boolean_or("load_inplace", false);
  request.parent = fields.text("base_model_name").value_or("");
  if (request.name.empty() || request.path.empty()) {
    throw Refusal("Both 'lora_name' and 'lora_path' must be provided.",
                  request.name.empty() ? "lora_name" : "lora_path");
  }
  if (request.path.find('\0') != request.path.npos)
    throw Refusal("'lora_path' has a NUL in it, as no path has", "lora_path");
  return request;
}

std::string read_unload_adapter_request(const Json& body) {
  Fields fields(body);
  const std::string name = fields.text("lora_name").value_or("");
  if (name.empty())
    throw Refusal("'lora_name' needs to be provided to unload a LoRA adapter.", "lora_name");
  return name;
}

}  // namespace danlu::api
