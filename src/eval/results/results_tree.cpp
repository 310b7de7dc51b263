#include "eval/results/results_tree.h"

#include <set>

namespace danlu::eval {
namespace {

class Walk {
 public:
  explicit Walk(const Evaluation& evaluation) : all_(evaluation) {}

  std::vector<TreeRow> rows() {
    std::set<std::string> members;
    for (const Group& group : all_.groups)
      members.insert(group.members.begin(), group.members.end());
    for (const Group& group : all_.groups) {
      if (!members.count(group.name)) add(group.name, 0);
    }
    for (const Group& group : all_.groups) add(group.name, 0);  // those in a ring
    for (const Task& task : all_.tasks) add(task.name, 0);
    return std::move(rows_);
  }

 private:
  void add(const std::string& name, size_t depth) {
    for (size_t i = 0; i < all_.groups.size(); ++i) {
      const Group& group = all_.groups[i];
      if (group.name != name || !seen_.insert(name).second) continue;
      rows_.push_back({depth, nullptr, &group, &all_.group_results.at(i)});
      for (const std::string& member : group.members) add(member, depth + 1);
    }
    for (size_t i = 0; i < all_.tasks.size(); ++i) {
      if (all_.tasks[i].name == name && seen_.insert(name).second)
        rows_.push_back({depth, &all_.tasks[i], nullptr, &all_.results.at(i)});
    }
  }

  const Evaluation& all_;
  std::set<std::string> seen_;
  std::vector<TreeRow> rows_;
};

}  // namespace

std::string TreeRow::alias() const {
  return (depth > 0 ? std::string(depth, ' ') + "- " : "") + result->alias;
}

std::vector<TreeRow> tree_rows(const Evaluation& evaluation) { return Walk(evaluation).rows(); }

}  // namespace danlu::eval
