// api/output_form.h: what form an answer must have: response_format, structured_outputs.
#pragma once
#include <string>
#include <vector>

#include "api/fields.h"

namespace danlu::api {

struct OutputForm {
  enum class Kind { kFree, kJsonObject, kJsonSchema, kRegex, kChoice };
  Kind kind = Kind::kFree;
  Json schema = {};                       ///< of kJsonSchema
  std::string pattern = {};               ///< of kRegex
  std::vector<std::string> choices = {};  ///< of kChoice, not empty
  std::string param = {};                 ///< the field that asked for it
};

/// Reads the form that response_format, structured_outputs or guided_* (its older names) ask for.
/// Errors: Refusal, also for more than one.
OutputForm read_output_form(Fields& fields);

}  // namespace danlu::api
