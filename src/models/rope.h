// models/rope.h: rotary frequencies of a model, with every scaling its config may ask for.
#pragma once
#include <cstdint>
#include <vector>

#include "arch/model_config.h"
#include "models/causal_lm.h"
#include "ops/rotary.h"

namespace danlu::models {

/// Frequencies theta^(-2j/D), j < D/2, scaled as config.rope says; D: the dimensions of a head that
/// are rotated. `sequence_length` matters to dynamic scaling and to longrope only (tokens of the
/// sequence so far).
/// Source  Hugging Face's rope_utils for the formulas; linear arXiv:2306.15595, yarn
///         arXiv:2309.00071 §3.2-3.4, longrope arXiv:2402.13753, llama3 Hugging Face's alone.
std::vector<double> rope_frequencies(const arch::ModelConfig& config, int64_t sequence_length = 0);

/// Factor on cosine and sine: yarn's attention temperature, longrope's, else 1.
double rope_attention_factor(const arch::ModelConfig& config, int64_t sequence_length = 0);

/// Table for a packed batch, of positions [N], or [3, N] of a config with mrope_section: then each
/// pair of a head turns by the axis in whose section it is, and where a token's three positions are
/// equal the table has the bits of [N]. Dynamic scaling and longrope look at each segment's own
/// length (its largest position + 1), so that packing changes nothing. Empty table if the model has
/// no rotary embedding. Errors: InternalError for positions of another shape.
ops::RotaryTable rope_table(const arch::ModelConfig& config, const at::Tensor& positions_N,
                            const ForwardInput& input);
/// The same by config.window_rope; empty without it.
ops::RotaryTable window_rope_table(const arch::ModelConfig& config, const at::Tensor& positions_N,
                                   const ForwardInput& input);

}  // namespace danlu::models
