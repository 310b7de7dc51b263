// cli/commands/inference_profiles.h: how other systems generate where a command line is silent, and
// by which flags their lines are known. Sources: ms-swift 2.4.2 (argument.py), MindSpeed-LLM
// 2.0 (its inference arguments), LLaMA-Factory's hparams/generating_args.py.
#pragma once
#include <utility>
#include <vector>

#include "base/options.h"
#include "cli/commands/train_profiles.h"

namespace danlu::cli {

/// The profiles of infer and chat. MindSpeed-LLM's numbers shape the draws that --task asks for;
/// ms-swift leaves them to the model's generation_config.json, as Danlu does.
inline std::vector<OptionProfile> inference_profiles() {
  return {{.name = "danlu", .system = "Danlu"},
          {.name = "mindspeed",
           .system = mindspeed_profile().system,
           .values = {{"max_new_tokens", "128"},
                      {"temperature", "0.7"},
                      {"top_k", "50"},
                      {"top_p", "0.95"}},
           .marks = mindspeed_profile().marks},
          {.name = "swift24",
           .system = swift24_profile().system,
           .values = {{"max_new_tokens", "2048"}, {"seed", "42"}},
           .marks = {{"ckpt_dir"},
                     {"model_type", "model"},
                     {"model_id_or_path"},
                     {"sft_type"},
                     {"template_type"},
                     {"val_dataset_sample"},
                     {"check_model_is_latest"},
                     {"load_args_from_ckpt_dir"}}}};
}

/// An option table with them.
inline OptionTable with_inference_profiles(OptionTable table) {
  for (OptionProfile& profile : inference_profiles()) table.add_profile(std::move(profile));
  return table;
}

/// The profile of `infer`, `chat` and `serve`, whose other names are LLaMA-Factory's commands: its
/// GeneratingArguments, beside which a model's generation_config.json does not count there.
inline OptionProfile generating_profile() {
  return {
      .name = "llamafactory",
      .system = llamafactory_profile().system,
      .values = {{"do_sample", "true"},
                 {"temperature", "0.95"},
                 {"top_p", "0.7"},
                 {"top_k", "50"},
                 {"min_p", "0"},
                 {"repetition_penalty", "1.0"},
                 {"max_new_tokens", "1024"}},
      .marks = {{"finetuning_type"},
                {.name = "model_name_or_path",
                 .beside = {"template", "infer_backend", "adapter_name_or_path", "infer_dtype"}}}};
}

/// An option table of verbs that talk.
inline OptionTable with_chat_profiles(OptionTable table) {
  for (OptionProfile& profile : inference_profiles()) {
    if (profile.name == "mindspeed") profile.values["history_turns"] = "3";
    table.add_profile(std::move(profile));
  }
  table.add_profile(generating_profile());
  return table;
}

/// An option table of a server.
inline OptionTable with_generating_profile(OptionTable table) {
  table = with_inference_profiles(std::move(table));
  table.add_profile(generating_profile());
  return table;
}

}  // namespace danlu::cli
