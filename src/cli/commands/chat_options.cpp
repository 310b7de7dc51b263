#include "cli/commands/commands.h"
#include "cli/commands/foreign_options.h"
#include "cli/commands/inference_options.h"
#include "cli/commands/inference_profiles.h"

namespace danlu::cli {

OptionTable chat_options() {
  const std::vector<OptionSpec> own =
      joined({model_options(),
              prompt_media_options(),
              sampling_options(),
              answer_rule_options(),
              {speculation_option("Generation")},
              {{.name = "compare",
                .help = "a second model, checkpoint or adapter that answers every message too",
                .group = "Chat"},
               {.name = "history_turns",
                .type = OptionType::kInt,
                .default_text = "0",
                .help = "turns to remember (0 = as many as fit the model's window)",
                .range = at_least(0),
                .group = "Chat"},
               {.name = "stream",
                .type = OptionType::kBool,
                .default_text = "true",
                .help = "print answers while they are made",
                .group = "Chat"},
               ignored({"task"}, "this command chats")},
              model_parts_options()});
  return with_chat_profiles(OptionTable("chat", "Talk to a model at the terminal",
                                        "danlu chat --model DIR [--adapters DIR]",
                                        joined({own, foreign_inference_options(own)})));
}

}  // namespace danlu::cli
