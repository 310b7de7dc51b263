// cli/engine/engine.h: the bodies of the verbs that need tensors and do not train; one line each.
// Their option tables are in cli/commands/<verb>_options.cpp, so that help and flag errors load no
// libtorch.
#pragma once
#include "base/options.h"

namespace danlu::cli {

int run_infer(const Options& options);
int run_rollout(const Options& options);
int run_chat(const Options& options);
int run_serve(const Options& options);
int run_compare(const Options& options);
int run_init(const Options& options);
int run_merge(const Options& options);
int run_quantize(const Options& options);
int run_verify(const Options& options);
int run_bench(const Options& options);
int run_eval(const Options& options);

}  // namespace danlu::cli
