#include "cli/engine/eval_mindspeed.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string>

#include "base/error.h"
#include "base/log.h"
#include "eval/benchmarks/prompts.h"

namespace danlu::cli {
namespace {

/// The style that a flag of evaluation.py stands for.
struct StyleFlag {
  const char *flag, *style;
};
constexpr StyleFlag kStyleFlags[] = {{"alternative_prompt", "mindspeed-alternative"},
                                     {"chain_of_thought", "mindspeed-cot"}};

constexpr const char *kDirect = "mindspeed", *kChat = "mindspeed-chat";

bool is_mindspeed(const std::string& style) { return style.starts_with("mindspeed"); }

Options with_named_style(const Options& given) {
  Options options = given;
  if (given.get_string_or("eval_backend", "") == "OpenCompass") {
    const std::string named = given.get_string("style");
    if (given.is_given("style") && named != "opencompass") {
      throw UsageError(tr("[{}] asks in the style {}, but {} is named",
                          given.given_as("eval_backend"), "opencompass", named),
                       tr("leave one of them out"));
    }
    options = options.with("style", "opencompass", given.given_as("eval_backend"));
  }
  for (const auto& [flag, style] : kStyleFlags) {
    if (!given.get_bool_or(flag, false)) continue;
    const std::string named = options.get_string("style");
    if (named == style) continue;
    if (named != "mindspeed" && (given.is_given("style") || is_mindspeed(named))) {
      throw UsageError(
          tr("[{}] asks in the style {}, but {} is named", given.given_as(flag), style, named),
          tr("leave one of them out"));
    }
    options = options.with("style", style, given.given_as(flag));
  }
  return options;
}

/// ms-swift asks the model that it serves in conversations: by its template, with examples as
/// turns.
Options with_talks(const Options& given) {
  const bool is_said = given.has_value("apply_chat_template") ||
                       given.get_bool_or("no_chat_template", /*fallback=*/false);
  if (!given.is_given("eval_backend") || is_said) return given;
  const std::string flag = given.given_as("eval_backend");
  log::notice(
      "{}: questions are put into the model's template, examples as turns, as in ms-swift; "
      "--no_chat_template asks plainly",
      flag);
  Options options = given.with("apply_chat_template", "true", flag);
  if (!given.has_value("fewshot_as_multiturn"))
    options = options.with("fewshot_as_multiturn", "true", flag);
  return options;
}

/// Whether a flag of evaluation.py asks for the template of a fine-tuned model.
bool names_template(const Options& options) {
  return options.is_given("prompt_type") || options.get_bool_or("hf_chat_template", false);
}

/// The flag that says no to any template; empty: none does.
std::string refusal_of_templates(const Options& options) {
  if (options.get_bool_or("no_chat_template", false)) return options.given_as("no_chat_template");
  if (options.get_string_or("apply_chat_template", "") == "false")
    return options.given_as("apply_chat_template");
  return "";
}

Options with_chat_style(const Options& options) {
  const std::string style = options.get_string("style"), refusal = refusal_of_templates(options);
  if (style == kDirect && names_template(options) && refusal.empty()) {
    const char* flag = options.is_given("prompt_type") ? "prompt_type" : "hf_chat_template";
    return options.with("style", kChat, options.given_as(flag));
  }
  if (style == kChat && !refusal.empty()) {
    throw UsageError(
        tr("[{}] the style {} asks in a conversation, which needs a template", refusal, kChat),
        tr("--style mindspeed asks plainly"));
  }
  return options;
}

/// Whether the template is one that evaluation.py is given by name.
bool has_named_template(const Options& options) {
  return options.is_given("prompt_type") && options.get_string("prompt_type") != "hf";
}

std::string window_of(const Options& options) {
  const std::string of_all =
      "needlebench_4k_s_rt, needlebench_8k_s_rt, needlebench_32k_s_rt, "
      "needlebench_128k_s_rt";
  if (!options.has_value("max_position_embeddings")) {
    throw UsageError(tr("[needlebench] which window? MindSpeed-LLM takes it from "
                        "--max-position-embeddings, which is not given"),
                     tr("name one of the tasks: {}", of_all));
  }
  const int64_t positions = options.get_int("max_position_embeddings");
  for (const int64_t window : {4, 8, 32, 128}) {
    if (positions / 1024 == window) return fmt::format("needlebench_{}k_s_rt", window);
  }
  throw UsageError(tr("[{}] NeedleBench has no window of {} tokens; it has 4096, 8192, 32768 and "
                      "131072",
                      options.given_as("max_position_embeddings"), positions),
                   tr("name one of the tasks: {}", of_all));
}

Options with_needle_window(const Options& options) {
  std::vector<std::string> names = options.get_list("tasks");
  if (std::ranges::find(names, "needlebench") == names.end()) return options;
  std::string all;
  for (std::string& name : names) {
    if (name == "needlebench") {
      name = window_of(options);
      log::notice("needlebench in the style mindspeed: {}", name);
    }
    all += (all.empty() ? "" : ",") + name;
  }
  return options.with("tasks", all, options.given_as("tasks"));
}

/// "{prompt}" of str.format as a Jinja template.
std::string as_jinja(const Options& options) {
  const std::string text = options.get_string("instruction_template");
  const std::string place = "{prompt}";
  const size_t at = text.find(place);
  std::string rest = text;
  if (at != text.npos) rest.erase(at, place.size());
  if (at == text.npos || rest.find_first_of("{}") != rest.npos) {
    throw UsageError(tr("[{}] must hold {} once and no other braces, got '{}'",
                        options.given_as("instruction_template"), place, text));
  }
  return text.substr(0, at) + "{{prompt}}" + text.substr(at + place.size());
}

const char* scaling_name(arch::RopeScaling scaling) {
  switch (scaling) {
    case arch::RopeScaling::kNone:
      return "default";
    case arch::RopeScaling::kLinear:
      return "linear";
    case arch::RopeScaling::kDynamic:
      return "dynamic";
    case arch::RopeScaling::kLlama3:
      return "llama3";
    case arch::RopeScaling::kYarn:
      return "yarn";
    case arch::RopeScaling::kLongRope:
      return "longrope";
  }
  throw InternalError("[eval] unknown scaling");
}

}  // namespace

Options as_mindspeed_means(const Options& options) {
  const Options styled = with_chat_style(with_named_style(with_talks(options)));
  return is_mindspeed(styled.get_string("style")) ? with_needle_window(styled) : styled;
}

bool mindspeed_asks_by_template(const Options& options) {
  const std::string style = options.get_string("style");
  if (!is_mindspeed(style)) return false;
  if (style == kChat)
    log::notice("questions are asked as MindSpeed-LLM asks tuned models: style {}", kChat);
  if (style == kChat || names_template(options)) return true;
  const bool asks = std::ranges::any_of(options.get_list("tasks"), [](const std::string& name) {
    return name.starts_with("needlebench");
  });
  if (!asks)
    log::notice(
        "questions are asked plainly, as with --no-chat-template; without it MindSpeed-LLM puts "
        "them into the tokenizer's template, if there is one (here: --apply_chat_template)");
  return asks;
}

void take_instruction_template(const Options& options, std::vector<eval::Task>& tasks) {
  if (!options.has_value("instruction_template")) return;
  const std::string jinja = as_jinja(options);
  bool is_used = false;
  for (eval::Task& task : tasks) {
    const bool asks_directly = task.style == kDirect || task.style == kChat;
    if (task.benchmark != "humaneval" || !asks_directly) continue;
    task.doc_to_text = jinja;
    is_used = true;
  }
  if (!is_used)
    log::notice("{} has no effect here: it is of HumanEval in the style mindspeed",
                options.given_as("instruction_template"));
}

void say_language(const Options& options, const std::vector<eval::Task>& tasks) {
  std::set<std::string> framed, in_english;
  for (const eval::Task& task : tasks) {
    if (!eval::reads_eval_language(task)) continue;
    framed.insert(task.benchmark);
    const bool has_chinese_title = std::ranges::any_of(
        task.subject_title, [](char c) { return static_cast<unsigned char>(c) >= 0x80; });
    if (has_chinese_title) in_english.insert(task.benchmark);
  }
  if (options.has_value("eval_language")) {
    if (framed.empty())
      log::notice("{} has no effect here: the words around these questions are in one language",
                  options.given_as("eval_language"));
    return;
  }
  for (const std::string& benchmark : in_english)
    log::notice("{}: the words around questions are English; --eval-language zh has Chinese ones",
                benchmark);
}

void say_template_differences(const Options& options, std::vector<eval::Task>& tasks) {
  const std::string style = options.get_string("style");
  if (!is_mindspeed(style)) return;
  const std::string of_needles =
      tr("MindSpeed-LLM puts a question and a line break into the tokenizer's template, and that "
         "into the one of --prompt-type, if there is one.");
  const std::string of_own_template =
      style == kChat ? tr("The questions of --prompt-type are put into the model's own template; "
                          "MindSpeed-LLM puts them into its named templates alone.")
                     : tr("The model's template is written up to where the answer begins; "
                          "MindSpeed-LLM leaves that last part out where no template is named.");
  for (eval::Task& task : tasks) {
    if (task.benchmark == "needlebench") {
      task.differences.push_back(of_needles);
    } else if (task.chat_frame != eval::ChatFrame::kPlain && !has_named_template(options)) {
      task.differences.push_back(of_own_template);
    }
  }
}

void say_backend_differences(const Options& options, std::vector<eval::Task>& tasks) {
  if (options.get_string_or("eval_backend", "") != "Native") return;
  const std::string of_evalscope =
      tr("Native is EvalScope in ms-swift, whose prompts and rules are its own: there answers are "
         "generated and read. Here prompts, metrics and likelihoods are lm-eval's.");
  log::notice("{}", of_evalscope);
  for (eval::Task& task : tasks) task.differences.push_back(of_evalscope);
}

void check_rope_scaling(const Options& options, const arch::ModelConfig& config) {
  if (!options.has_value("rope_scaling_type")) return;
  const std::string asked = options.get_string("rope_scaling_type");
  const std::string found = scaling_name(config.rope.scaling);
  if (asked == found) return;
  throw UsageError(tr("[{}] {}, but the model's files say {}",
                      options.given_as("rope_scaling_type"), asked, found),
                   tr("write it into the model's config.json, as \"rope_scaling\", or leave the "
                      "flag out"));
}

}  // namespace danlu::cli
