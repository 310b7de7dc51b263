// cli/commands/commands.h: the option tables of all verbs, and the bodies of those without tensors.
// One pair (or one line, for an engine verb) each; keep the order of src/cli/registry.cpp.
#pragma once
#include <string>
#include <vector>

#include "base/options.h"

namespace danlu::cli {

struct Command;

OptionTable tokenize_options();
int run_tokenize(const Options& options);
OptionTable detokenize_options();
int run_detokenize(const Options& options);
OptionTable tokenizer_options();
int run_tokenizer(const Options& options);
OptionTable render_options();
int run_render(const Options& options);
OptionTable preprocess_options();
int run_preprocess(const Options& options);
OptionTable convert_rows_options();
int run_convert_rows(const Options& options);
OptionTable sft_options();
OptionTable pretrain_options();
OptionTable train_options();
OptionTable posttrain_options();
OptionTable rlhf_options();
OptionTable infer_options();
OptionTable rollout_options();
OptionTable sample_options();
OptionTable chat_options();
OptionTable serve_options();
OptionTable eval_options();
OptionTable compare_options();
OptionTable board_options();
int run_board(const Options& options);
OptionTable download_options();
int run_download(const Options& options);
OptionTable inspect_options();
int run_inspect(const Options& options);
OptionTable convert_options();
int run_convert(const Options& options);
OptionTable mm_convert_options();
int run_mm_convert(const Options& options);
OptionTable diff_options();
int run_diff(const Options& options);
OptionTable init_options();
OptionTable merge_options();
OptionTable quantize_options();
OptionTable export_options();
int run_export(const Options& options);
OptionTable verify_options();
OptionTable launch_options();
int run_launch(const Options& options);
/// Runs `command`, its name and its words, in the processes that `options` ask for.
int launch_job(const Options& options, const std::vector<std::string>& command);
OptionTable plan_options();
/// The options of a line that names the training it plans: that command's and those of a plan.
OptionTable plan_options_for(const Command& trains);
int run_plan(const Options& options);
OptionTable devices_options();
int run_devices(const Options& options);
OptionTable bench_options();
/// Keeps the process to so many processors as --threads says, for it and for libraries that are to
/// be loaded. Errors: UsageError if there are not so many.
void choose_bench_processors(const Options& options);
OptionTable doctor_options();
int run_doctor(const Options& options);
OptionTable completion_options();
int run_completion(const Options& options);

}  // namespace danlu::cli
