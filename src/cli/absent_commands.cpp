#include "cli/absent_commands.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>

#include "base/lower_case.h"

namespace danlu::cli {
namespace {

std::string same_flags(const std::string& command) {
  return tr("the same flags go to danlu {}", command);
}

}  // namespace

const std::vector<AbsentCommand>& absent_commands() {
  static const std::vector<AbsentCommand> list = {
      {{"server"}, "it is called serve here", same_flags("serve"), "serve"},
      {{"web-ui", "webui"},
       "the pages of this version are those of danlu serve and danlu board",
       tr("danlu serve --model DIR for a chat in the browser, danlu board DIR for training runs")},
      {{"dpo", "kto", "simpo", "orpo", "cpo", "ppo", "grpo"},
       "it is a kind of danlu rlhf here",
       tr("danlu rlhf --rlhf_type NAME")},
      {{"rlhf-gpt", "ray-gpt"},
       "files of MindSpeed-RL are not read",
       tr("danlu rlhf --rlhf_type grpo, or ppo, draws answers and learns from them")},
      {{"distill"},
       "drawing several answers and keeping the best is called sample here",
       tr("danlu sample --model DIR --dataset FILE --reward_funcs accuracy --n_best_to_keep 1")},
      {{"llava-instruct-2-mllm-demo-format"},
       "it is called convert-rows here",
       tr("danlu convert-rows llava reads and writes the same files"),
       "convert-rows"},
      {{"pretrain-vlm"}, "it is called pretrain here", same_flags("pretrain"), "pretrain"},
      {{"inference-vlm"}, "it is called infer here", same_flags("infer"), "infer"},
      {{"pretrain-sora", "inference-sora"},
       "models that make pictures or videos are not part of this version",
       tr("danlu trains and asks models that read text, pictures and videos")},
      {{"preprocess-data"}, "it is called preprocess here", same_flags("preprocess"), "preprocess"},
      {{"pretrain-gpt"}, "it is called pretrain here", same_flags("pretrain"), "pretrain"},
      {{"posttrain-gpt"}, "it is called posttrain here", same_flags("posttrain"), "posttrain"},
      {{"inference", "generate"}, "it is called infer here", same_flags("infer"), "infer"},
      {{"finetune", "fine-tune"}, "it is called sft here", same_flags("sft"), "sft"},
  };
  return list;
}

std::string command_of_script(const std::string& name) {
  return std::filesystem::path(name).stem().string();
}

const ForeignProgram* find_foreign_program(const std::string& name) {
  constexpr const char *kPython = "it runs no Python",
                       *kShell = "it is no shell; run the script, with danlu in its lines",
                       *kTool = "it does that program's work under names of its own",
                       *kSetUp = "it needs no environment: nothing is to be installed";
  constexpr const char* kLauncher = "one process needs no launcher, several have danlu launch";
  static const std::map<std::string, ForeignProgram> known = {
      {"torchrun", {kLauncher, "", true}},
      {"deepspeed", {kLauncher, "", true}},
      {"accelerate", {kLauncher, "", true}},
      {"megatron", {kTool}},
      {"python", {kPython}},
      {"python3", {kPython}},
      {"bash", {kShell}},
      {"sh", {kShell}},
      {"source", {kShell}},
      {"swift", {kTool}},
      {"llamafactory-cli", {kTool}},
      {"lm_eval", {kTool, "eval"}},
      {"wget", {kTool, "download"}},
      {"curl", {kTool, "download"}},
      {"git", {kTool, "download"}},
      {"huggingface-cli", {kTool, "download"}},
      {"hf", {kTool, "download"}},
      {"modelscope", {kTool, "download"}},
      {"npu-smi", {kTool, "devices"}},
      {"nvidia-smi", {kTool, "devices"}},
      {"pip", {kSetUp, "doctor"}},
      {"pip3", {kSetUp, "doctor"}},
      {"conda", {kSetUp, "doctor"}}};
  const auto found = known.find(std::filesystem::path(name).filename().string());
  return found == known.end() ? nullptr : &found->second;
}

namespace {

/// `-v INFO`: a level of another program's log. More than usual is what -v alone asks for.
void take_log_level(std::vector<std::string>& words) {
  const auto flag = std::find(words.begin(), words.end(), "-v");
  if (flag == words.end() || flag + 1 == words.end()) return;
  const std::string level = lower_case(*(flag + 1));
  constexpr std::array kLevels = {"debug", "info", "warning", "error", "critical"};
  if (std::find(kLevels.begin(), kLevels.end(), level) == kLevels.end()) return;
  words.erase(level == "debug" ? flag + 1 : flag, flag + 2);
}

}  // namespace

std::vector<std::string> eval_words(std::vector<std::string> words) {
  take_log_level(words);
  if (words.empty() || std::filesystem::exists(words.front())) return words;
  const std::string first = words.front();
  if (first == "validate") {
    throw UsageError(tr("[eval] validate: what is wrong with a task is said before it is asked"),
                     "danlu eval --model DIR --tasks NAMES --limit 1 --write_out");
  }
  if (first == "run" && words.size() > 1) words.erase(words.begin());
  if (first != "ls") return words;
  const bool names_kind = words.size() > 1 && !words[1].starts_with('-');
  words.erase(words.begin(), words.begin() + (names_kind ? 2 : 1));
  words.insert(words.begin(), {"--tasks", "list"});
  return words;
}

const AbsentCommand* find_absent_command(const std::string& name) {
  std::string wanted = name.ends_with(".py") ? command_of_script(name) : name;
  std::replace(wanted.begin(), wanted.end(), '_', '-');
  for (const AbsentCommand& absent : absent_commands()) {
    if (std::find(absent.names.begin(), absent.names.end(), wanted) != absent.names.end())
      return &absent;
  }
  return nullptr;
}

}  // namespace danlu::cli
