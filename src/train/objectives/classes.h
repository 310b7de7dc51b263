// train/objectives/classes.h: a text's label is to be said by a head that gives numbers for a text.
#pragma once
#include <memory>

#include "settings/objective_config.h"
#include "train/objective.h"

namespace danlu::train {

/// Over data::Sample of labelled segments: the loss that settings::ClassesConfig says, of the
/// head's numbers at a segment's last token. It is divided by the number of texts of the whole
/// step. Metrics: of classes accuracy, the share of texts whose likeliest class is the label's, or
/// of several labels the share of labels whose sign is right, with exact_match, the share of texts
/// where all are; of numbers mae, the mean distance. Errors of prepare(): DataError where samples
/// have no labels.
std::shared_ptr<const Objective> classes_objective(const settings::ClassesConfig& config);

}  // namespace danlu::train
