// tests/train/mesh_cases.h: which models, meshes and schemes are compared with one rank.
#pragma once
#include <vector>

#include "support/pairwise.h"
#include "train/mesh.h"

namespace danlu::train {
namespace mesh_test {

/// Some of each kind.
std::vector<Case> quick_cases();

/// With DANLU_SLOW: every mesh of up to 8 ranks with every scheme for one family, every pair of
/// values of two factors for all, and the quick cases.
std::vector<Case> slow_cases();

/// Every case that there can be: of each family, tuning, mesh, scheme and way to recompute.
std::vector<Case> possible_cases();

/// Its values of family, tuning, tensor axis, data axis, sharding, sequence parallelism, files and
/// recompute.
danlu::test::FactorRow factors_of(const Case& c);

}  // namespace mesh_test
}  // namespace danlu::train
