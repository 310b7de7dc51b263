#include "cli/commands/commands.h"
#include "cli/commands/inference_options.h"
#include "cli/commands/inference_profiles.h"
#include "cli/commands/row_options.h"
#include "settings/ranking_tokens.h"

namespace danlu::cli {

OptionTable infer_options() {
  const std::vector<OptionSpec> own = joined(
      {model_options(),
       {{.name = "prompt",
         .type = OptionType::kString,
         .help = "one prompt",
         .aliases = {"p", "query"},
         .group = "Input"},
        {.name = "dataset",
         .type = OptionType::kList,
         .help = "data sets to answer (any format that training reads; the last answer of a "
                 "row may "
                 "be missing), or text files with one prompt per line, - for standard input",
         .aliases = {"val_dataset", "input", "input_file", "eval_dataset"},
         .group = "Input"},
        {.name = "load_dataset_config",
         .type = OptionType::kBool,
         .default_text = "false",
         .help = "answer the validation rows that the checkpoint's run held out",
         .aliases = {"load_data_args"},
         .group = "Input"},
        {.name = "dataset_dir", .help = "directory with a dataset_info.json", .group = "Input"},
        {.name = "max_samples",
         .type = OptionType::kInt,
         .default_text = "0",
         .help = "answer only the first n rows (0 = all)",
         .aliases = {"val_dataset_sample", "limit"},
         .range = at_least(0).or_value(-1),
         .group = "Input"},
        {.name = "columns",
         .type = OptionType::kJson,
         .help = "column names of the data set",
         .aliases = {"map_keys"},
         .group = "Input"},
        {.name = "handler_name", .help = "row format (default: detected)", .group = "Input"},
        max_dropped_ratio_option("Input"),
        {.name = "raw",
         .type = OptionType::kBool,
         .default_text = "false",
         .help = "complete the text itself, without a chat template",
         .aliases = {"no_chat_template"},
         .group = "Input"},
        {.name = "use_chat_template",
         .type = OptionType::kBool,
         .default_text = "true",
         .help = "false is --raw",
         .group = "Input"},
        {.name = "placeholder_token",
         .default_text = "ки",
         .help = "of models that judge steps: the token behind each step",
         .group = "Input"},
        {.name = "reward_tokens",
         .type = OptionType::kList,
         .help = "judge the steps of rows in place of answering: the tokens that judge, that of "
                 "right steps first (models with a head for steps need none)",
         .group = "Input"},
        {.name = "task_type",
         .help =
             "seq_cls: texts are sorted, by a model whose files do not say what its labels are; "
             "embedding: texts become vectors; reranker, generative_reranker: documents are "
             "ranked, by a head of one score or by two tokens (default: as the files say)",
         .choices = {"causal_lm", "seq_cls", "embedding", "reranker", "generative_reranker"},
         .group = "Input"},
        {.name = "problem_type",
         .help = "of models that sort texts: what their labels are (default: as the files say)",
         .choices = {"single_label_classification", "multi_label_classification", "regression"},
         .group = "Input"},
        {.name = "reranker_use_activation",
         .type = OptionType::kBool,
         .default_text = "true",
         .help = "of models that rank documents: scores go through the sigmoid",
         .group = "Output"},
        {.name = "output",
         .help = "write answers to this .jsonl file, row by row (to FILE.partial until all are "
                 "done); a prompt that cannot be answered, too long say, gets an \"error\"",
         .aliases = {"result_path", "output_file"},
         .group = "Output"},
        {.name = "output_dir",
         .help = "write what LLaMA-Factory's do_predict does into this directory, beside the "
                 "answers: generated_predictions.jsonl and, with BLEU-4, ROUGE-1, -2 and -L, "
                 "predict_results.json",
         .group = "Output"},
        {.name = "metric",
         .help = "compare answers with the rows' own: acc is the part that is equal, rouge gives "
                 "ROUGE-1, -2 and -L and BLEU-4 of words (Chinese characters are words)",
         .choices = {"acc", "rouge"},
         .group = "Output"},
        {.name = "save_result",
         .type = OptionType::kBool,
         .default_text = "true",
         .help = "without --output, keep the answers of a data set in infer_result/ of the run's "
                 "checkpoint (else in result/MODEL/) as well",
         .group = "Output"},
        {.name = "overwrite",
         .type = OptionType::kBool,
         .default_text = "false",
         .help = "replace an existing file",
         .aliases = {"overwrite_output_dir"},
         .group = "Output"},
        {.name = "batch_size",
         .type = OptionType::kInt,
         .default_text = "8",
         .help = "requests answered at a time",
         .aliases = {"max_batch_size", "per_device_eval_batch_size"},
         .range = at_least(1).up_to(65536),
         .group = "Output"},
        {.name = "stream",
         .type = OptionType::kBool,
         .default_text = "true",
         .help = "print a single answer while it is made",
         .group = "Output"},
        {.name = "task",
         .help = "MindSpeed's names of decoding modes",
         .choices = {"greedy", "do_sample", "beam_search", "beam_search_with_sampling", "chat"},
         .group = "Generation"},
        {.name = "history_turns",
         .type = OptionType::kInt,
         .default_text = "0",
         .help = "chat: turns to remember (0 = as many as fit)",
         .range = at_least(0),
         .group = "Generation"}},
       settings::ranking_token_options("Input"),
       prompt_media_options(),
       {{.name = "mm_model",
         .help = "MindSpeed-MM's inference json (inference_qwen2vl_7b.json): prompt, picture, "
                 "tokenizer and generation_config",
         .group = "Input"}},
       sampling_options(),
       answer_rule_options(),
       {speculation_option("Generation")},
       model_parts_options()});
  return with_chat_profiles(OptionTable(
      "infer", "Answer prompts, files or data sets with a model",
      "danlu infer --model DIR [--adapters DIR] (--prompt TEXT | --dataset FILE)   without either: "
      "chat",
      joined({own, foreign_inference_options(own)})));
}

}  // namespace danlu::cli
