// The training verbs' option tables belong to the program; these tests read them without it.
#include "cli/commands/train_options.cpp"
#include "cli/commands/train_options_data.cpp"
#include "cli/commands/train_options_foreign.cpp"
#include "cli/commands/train_options_megatron.cpp"
#include "cli/commands/train_options_model.cpp"
#include "cli/commands/train_options_optimizer.cpp"
#include "cli/commands/train_options_parallel.cpp"
#include "cli/commands/train_options_run.cpp"
