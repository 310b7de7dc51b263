#include "cli/engine/infer_resume.h"

#include <c10/core/ScalarType.h>

#include <system_error>

#include "base/file.h"
#include "base/json_text.h"
#include "cli/engine/model_files.h"
#include "device/select.h"
#include "models/causal_lm.h"

namespace danlu::cli {
namespace {

/// The outcome in `row` if it is the one of that question.
std::optional<Outcome> outcome_in(const Json& row, const Question& question) {
  const auto text_at = [&](const char* key) {
    const auto found = row.find(key);
    return found != row.end() && found->is_string() ? found->get<std::string>() : std::string();
  };
  const Outcome outcome{.answer = text_at("response"),
                        .finish_reason = text_at("finish_reason"),
                        .error = text_at("error")};
  if (outcome.finish_reason.empty() || outcome.finish_reason == "cancelled") return std::nullopt;
  return row == result_row(question, outcome) ? std::optional(outcome) : std::nullopt;
}

}  // namespace

std::string request_identity(const Options& options, const InferenceModel& loaded) {
  Json flags = options.to_json();
  for (const OptionScope scope : {OptionScope::kMachine, OptionScope::kStart}) {
    for (const std::string& name : options.names(scope)) flags.erase(name);
  }
  for (const char* name : {"output", "overwrite"}) flags.erase(name);
  return dump_text({{"version", DANLU_VERSION},
                    {"flags", flags},
                    {"files", files_of_model(loaded)},
                    {"tokenizer", loaded.tokenizer->content_hash()},
                    {"template", loaded.encoder ? loaded.encoder->content_hash() : 0},
                    {"device", device::name_of(loaded.model->device())},
                    {"dtype", c10::toString(loaded.model->dtype())}}) +
         "\n";
}

fs::path request_file_of(const fs::path& output) { return output.string() + ".partial.request"; }

EarlierAnswers earlier_answers(const fs::path& output, const std::string& identity,
                               const std::vector<Question>& questions) {
  const fs::path partial = partial_of(output), request = request_file_of(output);
  std::error_code ignored;
  if (!fs::is_regular_file(partial, ignored) || !fs::is_regular_file(request, ignored) ||
      read_file(request) != identity)
    return {};
  EarlierAnswers earlier;
  const std::string content = read_file(partial);
  size_t begin = 0;
  while (earlier.outcomes.size() < questions.size()) {
    const size_t end = content.find('\n', begin);
    if (end == std::string::npos) break;  // torn
    const std::string_view line = std::string_view(content).substr(begin, end - begin);
    const std::optional<Json> row = try_parse_json(line);
    auto outcome = row ? outcome_in(*row, questions[earlier.outcomes.size()]) : std::nullopt;
    if (!outcome) break;
    earlier.outcomes.push_back(std::move(*outcome));
    begin = end + 1;
  }
  earlier.text = content.substr(0, begin);
  return earlier;
}

}  // namespace danlu::cli
