// train/objectives/text_labels.h: what a classifier says of texts.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "data/batch.h"
#include "train/objectives/reference.h"

namespace danlu::train {

/// A batch of a segment for each text, without a target.
data::Batch batch_of_texts(std::span<const std::vector<int32_t>> texts);

/// The numbers that the judge's head gives for each text, read at its last token, from one pass of
/// all: as many as the head has labels. ids: the logits of these tokens instead. REQUIRES: one
/// rank; no text is empty.
std::vector<std::vector<double>> numbers_of_texts(const FrozenModel& judge,
                                                  std::span<const std::vector<int32_t>> texts,
                                                  const std::vector<int64_t>& ids = {});

}  // namespace danlu::train
