// The verbs of `danlu`, in help order: one entry per verb, an explicit list.
//
// To add a verb: its option table (and, without tensors, its body) in src/cli/commands/<verb>.cpp,
// declared in commands.h; one entry here; with tensors also src/cli/engine/<verb>.cpp and one entry
// in engine_registry.cpp. Then make its golden help text: tests/cli/README.md.
#include <algorithm>

#include "cli/command.h"
#include "cli/commands/commands.h"

namespace danlu::cli {

const std::vector<Command>& commands() {
  static const std::vector<Command> list = {
      {.name = "tokenize",
       .summary = "turn text into token ids",
       .group = "Data",
       .options = tokenize_options,
       .max_positional = static_cast<size_t>(-1),
       .run = run_tokenize},
      {.name = "detokenize",
       .summary = "turn token ids back into text",
       .group = "Data",
       .options = detokenize_options,
       .max_positional = static_cast<size_t>(-1),
       .run = run_detokenize},
      {.name = "tokenizer",
       .summary = "tokenizer train: make a byte-level BPE tokenizer from text",
       .group = "Data",
       .options = tokenizer_options,
       .accepts_config = true,
       .max_positional = 1,
       .run = run_tokenizer,
       .subcommands = {"train"},
       .makes_files = true},
      {.name = "render",
       .summary = "show the text, ids and training mask a template makes of messages",
       .group = "Data",
       .options = render_options,
       .run = run_render},
      {.name = "preprocess",
       .summary = "tokenise data sets into Megatron's .bin/.idx files",
       .group = "Data",
       .options = preprocess_options,
       .accepts_config = true,
       .run = run_preprocess,
       .makes_files = true},
      {.name = "sft",
       .summary = "fine-tune a model on conversations or instructions",
       .group = "Train",
       .trains = true,
       .options = sft_options,
       .accepts_config = true,
       .makes_files = true},
      {.name = "pretrain",
       .summary = "train a model on plain text or Megatron .bin/.idx data",
       .group = "Train",
       .trains = true,
       .options = pretrain_options,
       .accepts_config = true,
       .aliases = {"pt"},
       .makes_files = true},
      {.name = "train",
       .summary = "train by --stage; without one, as Stanford Alpaca's train.py",
       .group = "Train",
       .trains = true,
       .options = train_options,
       .accepts_config = true,
       .makes_files = true},
      {.name = "posttrain",
       .summary = "post-training by --stage, with MindSpeed-LLM's flags",
       .group = "Train",
       .trains = true,
       .options = posttrain_options,
       .accepts_config = true,
       .makes_files = true},
      {.name = "infer",
       .summary = "answer prompts, files or data sets with a model",
       .group = "Use",
       .options = infer_options,
       .accepts_config = true},
      {.name = "chat",
       .summary = "talk to a model in the terminal",
       .group = "Use",
       .options = chat_options,
       .accepts_config = true},
      {.name = "inspect",
       .summary = "say what a model, weight file, adapter, data set or run is",
       .group = "Weights",
       .options = inspect_options,
       .run = run_inspect},
      {.name = "convert",
       .summary = "convert checkpoints: Hugging Face, Megatron, native, GGUF, PEFT",
       .group = "Weights",
       .options = convert_options,
       .accepts_config = true,
       .run = run_convert,
       .aliases = {"convert-ckpt"},
       .makes_files = true},
      {.name = "mm-convert",
       .summary = "convert multimodal checkpoints (not in this version)",
       .group = "Weights",
       .options = mm_convert_options,
       .max_positional = 2,
       .run = run_mm_convert},
      {.name = "diff",
       .summary = "compare two checkpoints tensor by tensor",
       .group = "Weights",
       .options = diff_options,
       .accepts_config = true,
       .run = run_diff},
      {.name = "init",
       .summary = "make a randomly initialised model from a config.json",
       .group = "Weights",
       .options = init_options,
       .makes_files = true},
      {.name = "merge",
       .summary = "merge LoRA adapters into their base model, checked",
       .group = "Weights",
       .options = merge_options,
       .accepts_config = true,
       .aliases = {"merge-lora"},
       .makes_files = true},
      {.name = "verify",
       .summary = "compare a model with tensors that another implementation dumped",
       .group = "Weights",
       .options = verify_options,
       .accepts_config = true},
      {.name = "completion",
       .summary = "print a completion script for bash or zsh",
       .group = "Tools",
       .options = completion_options,
       .max_positional = 1,
       .run = run_completion},
  };
  return list;
}

const Command* find_command(const std::string& name) {
  std::string wanted = name;
  std::replace(wanted.begin(), wanted.end(), '_', '-');
  for (const Command& command : commands()) {
    if (command.name == wanted) return &command;
    for (const std::string& alias : command.aliases) {
      if (alias == wanted) return &command;
    }
  }
  return nullptr;
}

}  // namespace danlu::cli
