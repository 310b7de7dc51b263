#include "cli/absent_commands.h"

#include <algorithm>

#include "base/not_here.h"

namespace danlu::cli {
namespace {

Hint same_flags(const std::string& command) {
  return {"the same flags go to danlu " + command, "请将相同的参数用于 danlu " + command};
}

}  // namespace

const std::vector<AbsentCommand>& absent_commands() {
  static const std::vector<AbsentCommand> list = {
      {{"eval", "evaluate", "evaluation"},
       "benchmarks are not part of this version",
       {"danlu infer --dataset FILE answers the rows of a data set beside their references",
        "danlu infer --dataset 文件 可对数据集逐条作答，并附参考答案"}},
      {{"download", "pull"},
       "Danlu fetches nothing from the net",
       {"fetch models and data with your hub's own tool, then give their directory: --model DIR",
        "请用模型平台自带的工具下载，再用 --model 指定目录"}},
      {{"doctor", "env"},
       "the machine is not examined by a command of its own in this version",
       {"a run's first lines name the device it takes; danlu inspect PATH says what a file is",
        "训练开头会列出所用设备；danlu inspect 路径 可查看文件是什么"}},
      {{"serve", "deploy", "api", "server"},
       "there is no HTTP server in this version",
       {"danlu chat talks in the terminal, danlu infer --dataset FILE answers many questions",
        "可用 danlu chat 在终端对话，或用 danlu infer --dataset 文件 批量作答"}},
      {{"app", "web-ui", "webui", "web-chat", "webchat"},
       "there is no web page in this version",
       {"danlu chat talks in the terminal; every job is one command line or one YAML file",
        "可用 danlu chat 在终端对话；每项任务均为一条命令或一个 YAML 文件"}},
      {{"export"},
       "what it does elsewhere are two commands here",
       {"danlu merge joins adapters with their model; danlu convert writes other formats, GGUF too",
        "合并适配器请用 danlu merge；转换格式（含 GGUF）请用 danlu convert"}},
      {{"rlhf", "dpo", "ppo", "grpo", "kto", "rollout", "rlhf-gpt", "ray-gpt"},
       "training from preferences or rewards is not part of this version",
       {"danlu sft trains on answers", "可用 danlu sft 以回答进行训练"}},
      {{"sample", "distill"},
       "drawing several answers to a question is not part of this version",
       {"danlu infer --dataset FILE draws one answer to each",
        "danlu infer --dataset 文件 可为每个问题生成一个回答"}},
      {{"llava-instruct-2-mllm-demo-format", "pretrain-vlm", "inference-vlm", "pretrain-sora",
        "inference-sora"},
       kNoMultimodal,
       kTextOnlyHint},
      {{"torchrun", "accelerate", "deepspeed", "megatron"},
       "no launcher is needed: a command is one process",
       {"leave it out: danlu train …", "请去掉启动器，直接使用 danlu train …"}},
      {{"preprocess-data"}, "it is called preprocess here", same_flags("preprocess")},
      {{"pretrain-gpt"}, "it is called pretrain here", same_flags("pretrain")},
      {{"posttrain-gpt"}, "it is called posttrain here", same_flags("posttrain")},
      {{"inference", "generate"}, "it is called infer here", same_flags("infer")},
      {{"finetune", "fine-tune"}, "it is called sft here", same_flags("sft")},
  };
  return list;
}

const AbsentCommand* find_absent_command(const std::string& name) {
  std::string wanted = name.ends_with(".py") ? name.substr(0, name.size() - 3) : name;
  std::replace(wanted.begin(), wanted.end(), '_', '-');
  for (const AbsentCommand& absent : absent_commands()) {
    if (std::find(absent.names.begin(), absent.names.end(), wanted) != absent.names.end())
      return &absent;
  }
  return nullptr;
}

}  // namespace danlu::cli
