// train/settings.h: what a run is told, and who takes part in it, by the names that this room calls
// them.
#pragma once
#include "parallel/ranks.h"
#include "settings/config.h"
#include "settings/run_plan.h"

namespace danlu::train {

using parallel::Ranks, parallel::tell_ranks;
using settings::BatchConfig, settings::DataConfig, settings::OutputConfig, settings::ProfileInForce,
    settings::TrainConfig;
using settings::Interval, settings::Precision, settings::Task, settings::Tuner;
using settings::ModelSource, settings::describe_weights, settings::open_model;
using settings::precision_name, settings::task_name, settings::tuner_name;
using settings::RunPlan, settings::plan_run, settings::samples_of_step;

}  // namespace danlu::train
