#include "cli/engine/infer_resume.h"

#include <c10/core/ScalarType.h>

#include <algorithm>
#include <string_view>
#include <system_error>

#include "base/file.h"
#include "base/json_text.h"
#include "base/rng.h"
#include "base/threads.h"
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

uint64_t content_of_question(const Question& question, const data::MediaSettings& settings) {
  uint64_t hash = 0;
  for (const text::Message& message : question.conversation.messages) {
    for (const text::MediaPlace& place : message.media) {
      for (const text::MediaPiece& piece : place.media.pieces) {
        hash = mix64(hash, piece.bytes ? hash_bytes(*piece.bytes)
                                       : content_of_media(piece.name, settings, question.folder));
      }
    }
  }
  return hash;
}

bool has_media(const Question& question) {
  const auto& messages = question.conversation.messages;
  return std::any_of(messages.begin(), messages.end(),
                     [](const text::Message& message) { return !message.media.empty(); });
}

/// Empty where no question has pictures.
std::string contents_line(const std::vector<Question>& questions, const InferenceModel& loaded) {
  if (!loaded.media || std::none_of(questions.begin(), questions.end(), has_media)) return "";
  std::vector<uint64_t> contents(questions.size());
  parallel_for(questions.size(), default_thread_count(), [&](size_t i) {
    contents[i] = content_of_question(questions[i], loaded.media->settings());
  });
  return dump_text(Json(contents)) + "\n";
}

/// The lines of a request's identity.
struct RequestParts {
  std::string_view request;
  Json contents = Json::array();  ///< of the questions' pictures; empty: there are none
};

RequestParts parts_of(std::string_view identity) {
  const size_t end = std::min(identity.find('\n'), identity.size());
  RequestParts parts{.request = identity.substr(0, end)};
  if (const auto list = try_parse_json(identity.substr(end)); list && list->is_array())
    parts.contents = *list;
  return parts;
}

/// The number of questions whose pictures hold what they held.
size_t num_with_same_contents(const Json& then, const Json& now, size_t num_questions) {
  if (then.empty() && now.empty()) return num_questions;
  size_t same = 0;
  while (same < std::min(then.size(), now.size()) && then[same] == now[same]) ++same;
  return same;
}

}  // namespace

std::string request_identity(const Options& options, const InferenceModel& loaded,
                             const std::vector<Question>& questions) {
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
                    {"media", loaded.media ? loaded.media->settings().answer_json() : Json()},
                    {"dtype", c10::toString(loaded.model->dtype())}}) +
         "\n" + contents_line(questions, loaded);
}

fs::path request_file_of(const fs::path& output) { return output.string() + ".partial.request"; }

EarlierAnswers earlier_answers(const fs::path& output, const std::string& identity,
                               const std::vector<Question>& questions) {
  const fs::path partial = partial_of(output), request = request_file_of(output);
  std::error_code ignored;
  if (!fs::is_regular_file(partial, ignored) || !fs::is_regular_file(request, ignored)) return {};
  const std::string kept = read_file(request);
  const RequestParts then = parts_of(kept), now = parts_of(identity);
  if (then.request != now.request) return {};
  const size_t most = num_with_same_contents(then.contents, now.contents, questions.size());
  EarlierAnswers earlier;
  const std::string content = read_file(partial);
  size_t begin = 0;
  while (earlier.outcomes.size() < std::min(most, questions.size())) {
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
