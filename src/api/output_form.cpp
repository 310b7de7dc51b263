#include "api/output_form.h"

#include <fmt/format.h>

#include <utility>

namespace danlu::api {
namespace {

using Kind = OutputForm::Kind;

constexpr std::string_view kWhitespace =
    "where JSON has white space is the model's choice: 'regex' holds an answer to one pattern";

OutputForm schema_form(const Json& schema, const std::string& param) {
  if (schema.is_string())
    return {.kind = Kind::kJsonSchema, .schema = parse_body(schema), .param = param};
  if (!schema.is_object() && !schema.is_boolean())
    throw Refusal(fmt::format("'{}' must be a JSON schema, got {}", param, kind_of(schema)), param);
  return {.kind = Kind::kJsonSchema, .schema = schema, .param = param};
}

/// Further members of response_format are told of as the request's.
OutputForm response_format_of(const Json& json, Fields& request) {
  Fields fields(json, "response_format.");
  const std::string type = fields.text("type").value_or("");
  if (type == "text") return {};
  if (type == "json_object") return {.kind = Kind::kJsonObject, .param = "response_format"};
  if (type != "json_schema") {
    throw Refusal(fmt::format("'response_format.type' must be text, json_object or json_schema, "
                              "got '{}'",
                              type),
                  "response_format.type");
  }
  const Json* named = fields.find("json_schema");
  if (!named) {
    throw Refusal("'response_format.json_schema' is missing", "response_format.json_schema");
  }
  Fields parts(*named, "response_format.json_schema.");
  const Json* schema = parts.find("schema");
  if (!schema) schema = parts.find("json_schema");
  if (!schema) {
    throw Refusal("'response_format.json_schema.schema' is missing",
                  "response_format.json_schema.schema");
  }
  parts.pass({"name", "description", "strict"});
  request.take_unread(fields);
  request.take_unread(parts);
  return schema_form(*schema, "response_format.json_schema.schema");
}

OutputForm choice_form(std::vector<std::string> choices, const std::string& param) {
  if (choices.empty()) throw Refusal(fmt::format("'{}' must name a choice", param), param);
  return {.kind = Kind::kChoice, .choices = std::move(choices), .param = param};
}

/// The forms that `fields` asks for, by the names that they have there.
std::vector<OutputForm> forms_of(Fields& fields, const std::string& prefix) {
  const auto name = [&](const char* what) { return prefix + what; };
  std::vector<OutputForm> forms;
  if (const Json* schema = fields.find(name("json")))
    forms.push_back(schema_form(*schema, fields.path_of(name("json"))));
  if (const auto pattern = fields.text(name("regex"))) {
    forms.push_back(
        {.kind = Kind::kRegex, .pattern = *pattern, .param = fields.path_of(name("regex"))});
  }
  if (auto choices = fields.texts(name("choice")))
    forms.push_back(choice_form(std::move(*choices), fields.path_of(name("choice"))));
  if (fields.boolean_or(name("json_object"), false))
    forms.push_back({.kind = Kind::kJsonObject, .param = fields.path_of(name("json_object"))});
  fields.refuse(name("grammar"), "grammars are not built in: give json, regex or choice");
  return forms;
}

}  // namespace

OutputForm read_output_form(Fields& fields) {
  std::vector<OutputForm> forms = forms_of(fields, "guided_");
  fields.pass({"guided_decoding_backend"});
  fields.refuse("guided_whitespace_pattern", kWhitespace);
  // ms-swift's.
  if (const auto pattern = fields.text("structured_outputs_regex"))
    forms.push_back(
        {.kind = Kind::kRegex, .pattern = *pattern, .param = "structured_outputs_regex"});
  if (const Json* json = fields.find("structured_outputs")) {
    Fields parts(*json, "structured_outputs.");
    std::vector<OutputForm> more = forms_of(parts, "");
    parts.refuse("structural_tag", "structural tags are not built in");
    for (const char* name : {"whitespace_pattern", "disable_any_whitespace"})
      parts.refuse(name, kWhitespace);
    parts.refuse("disable_additional_properties",
                 "say \"additionalProperties\": false in the schema");
    parts.pass({"disable_fallback", "backend", "_backend", "_backend_was_auto"});
    fields.take_unread(parts);
    if (more.size() != 1) {
      throw Refusal(fmt::format("'structured_outputs' must have one of json, regex, choice and "
                                "json_object, got {}",
                                more.size()),
                    "structured_outputs");
    }
    forms.push_back(std::move(more.front()));
  }
  if (const Json* json = fields.find("response_format")) {
    OutputForm form = response_format_of(*json, fields);
    if (form.kind != Kind::kFree) forms.push_back(std::move(form));
  }
  if (forms.size() > 1) {
    throw Refusal(fmt::format("'{}' and '{}' both say what form the answer has", forms[0].param,
                              forms[1].param),
                  forms[1].param);
  }
  return forms.empty() ? OutputForm{} : std::move(forms.front());
}

}  // namespace danlu::api
