// text/template_choice.h: which chat template a model's conversations get, and why. Training,
// preprocessing, rendering, inspecting and answering all ask here, so that they agree.
#pragma once
#include <filesystem>
#include <memory>
#include <string>

#include "base/json.h"
#include "text/conversation.h"
#include "text/tokenizer.h"

namespace danlu::text {

struct TemplateRequest {
  /// The name, as ChatEncoder::create takes it; "" or "auto": the user gave none.
  std::string named = {};
  std::filesystem::path templates_file = {};  ///< of the user; may be empty
  /// The directory whose args.json counts (of the model or its adapter); empty: none.
  std::filesystem::path recorded_in = {};
  /// arch::ModelConfig::default_template; "": the family has none, or is not known.
  std::string family_default = {};
};

/// Where a template was named, in the order in which they are asked.
enum class TemplateOrigin { kUser, kRecord, kTokenizer, kFamily, kNone };

struct TemplateChoice {
  TemplateOrigin origin = TemplateOrigin::kNone;
  std::string name = {};                      ///< "" unless origin is kUser, kRecord or kFamily
  std::filesystem::path templates_file = {};  ///< that `name` was looked up in; may be empty
  std::shared_ptr<const ChatEncoder> encoder = {};  ///< nullptr: kNone
  /// "recorded by run/args.json", "the default of the model's family", …; of kNone, what is wrong.
  std::string reason = {};

  /// True if neither the user nor the tokenizer's own files named it: worth telling.
  bool is_news() const {
    return origin == TemplateOrigin::kRecord || origin == TemplateOrigin::kFamily;
  }
  /// Errors: ModelError if there is none, with `reason` and the names to choose from.
  std::shared_ptr<const ChatEncoder> required() const;
};

/// The user's, else the recorded one, else the tokenizer's own, else the family's default if the
/// tokenizer has the tokens it ends turns with.
/// Errors: those of ChatEncoder::create and recorded_template; none because there is no template.
TemplateChoice choose_template(std::shared_ptr<const Tokenizer> tokenizer,
                               const TemplateRequest& request,
                               const Json& template_arguments = nullptr);

/// Says which of these variables the template has no use for: what was asked for does not happen.
void report_idle_arguments(const Tokenizer& tokenizer, const TemplateChoice& choice,
                           const Json& template_arguments);

/// The directory that args.json and config.json of a tokenizer are looked for in: the path itself,
/// or the folder of a tokenizer's file.
std::filesystem::path directory_of_model(const std::filesystem::path& model_or_file);

}  // namespace danlu::text
