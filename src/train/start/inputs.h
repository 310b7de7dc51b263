// train/start/inputs.h: what a run reads: the model that it begins with, and its data as tokens.
#pragma once
#include "parallel/ranks.h"
#include "train/prepare_data.h"
#include "train/settings.h"
#include "weights/convert/checkpoint_source.h"

namespace danlu::train {

struct OpenedModel {
  TrainConfig config;  ///< as agreed, with what was found where the model lies
  weights::CheckpointSource source;
};

/// Finds what is wrong with the model's config and headers before data are tokenised. Errors: as
/// open_model and refuse_other_format.
OpenedModel open_checked(const TrainConfig& agreed);

struct Inputs {
  TrainConfig config;  ///< the model's, with the template that its rows have
  PreparedText text;
  PreparedData data;
};

/// Tokenises on one rank for each storage; the others open what it has made. Errors: as
/// prepare_text and prepare_data; UsageError where a rank would never see a sample of its own, or
/// nothing is held out to choose the best model by. Collective.
Inputs prepare_inputs(const OpenedModel& model, const Ranks& ranks);

/// Fills in the padding token that transformers finds the end of a text by, which a reward model's
/// config.json must name: the tokenizer's, else the one that ends texts.
void name_padding(const PreparedText& text, arch::ModelConfig& model);

}  // namespace danlu::train
