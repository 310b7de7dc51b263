#include "cli/engine/trained_prompt.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <vector>

#include "base/log.h"
#include "settings/options/system_message.h"
#include "text/template_record.h"
#include "text/tokenizer/utf8.h"

namespace danlu::cli {
namespace {

constexpr const char* kThinking = "enable_thinking";

bool says_thinking(const Options& options) {
  return options.is_set(kThinking) ||
         (options.has_value("chat_template_kwargs") &&
          options.get_json("chat_template_kwargs").contains(kThinking));
}

/// The beginning of its first line, as it may stand in a line of the log.
std::string shown(const std::string& message) {
  constexpr size_t kMost = 60;
  const std::string line = message.substr(0, message.find_first_of("\r\n"));
  const size_t end = line.size() <= kMost ? line.size() : text::previous_char(line, kMost + 1);
  std::string text;
  for (const char c : line.substr(0, end))
    text += static_cast<unsigned char>(c) < 0x20 || c == 0x7F ? ' ' : c;
  return end < message.size() ? text + "…" : text;
}

}  // namespace

TrainedPrompt trained_prompt(const Options& options, const std::filesystem::path& directory) {
  TrainedPrompt prompt;
  const Json record = text::read_record(directory);
  if (!options.has_value("system")) prompt.system = text::recorded_text(record, "system");
  if (settings::names_a_file(prompt.system)) {
    log::warning(
        "{}: the run took its system message from {}, whose text is not recorded; --system FILE "
        "gives it again",
        (directory / text::kRecordFile).string(), prompt.system);
    prompt.system.clear();
  }
  const auto thinking = record.find(kThinking);
  if (!says_thinking(options) && thinking != record.end() && thinking->is_boolean())
    prompt.variables[kThinking] = *thinking;
  return prompt;
}

void report_trained_prompt(const TrainedPrompt& prompt, const std::filesystem::path& directory) {
  std::vector<std::string> taken;
  if (!prompt.system.empty()) taken.push_back(fmt::format("--system \"{}\"", shown(prompt.system)));
  for (const auto& [name, value] : prompt.variables.items())
    taken.push_back(fmt::format("--{} {}", name, value.dump()));
  if (taken.empty()) return;
  // Not among the notices that a limit hides: answers depend on it.
  const std::string record = (directory / text::kRecordFile).string();
  const std::string all = fmt::format("{}", fmt::join(taken, " "));
  if (prompt.system.empty()) {
    log::info("notice: {}",
              tr("prompts as in training ({}): {}; what is typed counts instead", record, all));
  } else {
    log::info("notice: {}", tr("prompts as in training ({}): {}; what is typed counts instead, "
                               "and --system \"\" leaves the message out",
                               record, all));
  }
}

}  // namespace danlu::cli
