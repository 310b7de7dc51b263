// train/objectives/text_vectors.h: vectors of texts, as trainings of embeddings read them.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "train/objectives/reference.h"

namespace danlu::train {

/// The vector of each text, of length one: the hidden state behind the final norm at its last
/// token, from one pass of all. REQUIRES: one rank; no text is empty.
std::vector<std::vector<float>> vectors_of_texts(const FrozenModel& model,
                                                 std::span<const std::vector<int32_t>> texts);

}  // namespace danlu::train
