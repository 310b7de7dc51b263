// tests/train/mesh_cases.h: which models, meshes and schemes are compared with one rank.
#pragma once
#include <vector>

#include "support/pairwise.h"
#include "support/slow.h"
#include "train/mesh.h"

namespace danlu::train {
namespace mesh_test {

/// What a step does wrong is in the next one's loss.
inline int64_t few_steps() { return danlu::test::is_slow() ? 10 : 5; }

/// The first, the fourth, the seventh … of each kind, so that shapes and schemes take turns; with
/// DANLU_SLOW all. A kind: name, tuning, order of the work, way to share tokens, recompute, files.
std::vector<Case> some_of_each_kind(std::vector<Case> all);

/// Some of each kind.
std::vector<Case> quick_cases();

/// Every mesh of up to 8 ranks, with every order of the work in a pipeline and every scheme, for
/// one family: whole, and with adapters whose B is random. On the tensor and data axes alone also
/// with DoRA, and with state and parameters in files.
std::vector<Case> whole_cases();

/// Every case that there can be: of each family, tuning, mesh, order, scheme and way to recompute.
const std::vector<Case>& possible_cases();

/// Few of them, which hold every pair of values of two factors.
std::vector<Case> covering_cases();

/// The same of one family's meshes in bf16 and fp16, whole and with adapters.
std::vector<Case> narrow_covering_cases();

/// With DANLU_SLOW: all of these but the possible, each once.
const std::vector<Case>& slow_cases();

/// Its values of family, tuning, tensor axis, stages, runs of layers in each, zero bubble, data
/// axis, context axis (none and six ways), sharding, sequence parallelism, files and recompute.
danlu::test::FactorRow factors_of(const Case& c);

}  // namespace mesh_test
}  // namespace danlu::train
