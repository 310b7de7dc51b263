#include "eval/needle/needle_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>

#include "base/error.h"

namespace danlu::eval {
namespace {

/// An object of the file, its keys read one by one.
class PlanNode {
 public:
  PlanNode(const Json& node, std::string where, std::initializer_list<std::string_view> keys)
      : node_(node), where_(std::move(where)) {
    if (!node.is_object()) fail(tr("must be an object that is not empty"), node);
    for (const auto& [key, value] : node.items()) {
      if (std::ranges::find(keys, key) == keys.end())
        throw DataError(tr("{}: unknown key \"{}\"", where_, key),
                        tr("known are: {}", fmt::format("{}", fmt::join(keys, ", "))));
    }
  }

  /// Any keys.
  PlanNode(const Json& node, std::string where) : node_(node), where_(std::move(where)) {
    if (!node.is_object() || node.empty()) fail(tr("must be an object that is not empty"), node);
  }

  const Json& at(const std::string& key) const {
    const auto found = node_.find(key);
    if (found == node_.end()) throw DataError(tr("{}: \"{}\" is missing", where_, key));
    return *found;
  }
  std::string text(const std::string& key) const {
    const Json& value = at(key);
    if (!value.is_string()) fail(tr("\"{}\" must be a text", key), value);
    return value.get<std::string>();
  }
  std::string text_with(const std::string& key,
                        std::initializer_list<std::string_view> places) const {
    const std::string value = text(key);
    for (const std::string_view place : places) {
      const size_t first = value.find(place);
      if (first == value.npos || value.find(place, first + 1) != value.npos)
        fail(tr("\"{}\" must hold {} once", key, place), value);
    }
    return value;
  }
  int64_t count(const std::string& key) const { return count_in(at(key), key); }
  double number(const std::string& key, double most) const {
    const Json& value = at(key);
    if (!value.is_number() || !(value.get<double>() >= 0 && value.get<double>() <= most))
      fail(tr("\"{}\" must be a number from 0 to {}", key, most), value);
    return value.get<double>();
  }
  std::vector<int64_t> counts(const std::string& key) const {
    std::vector<int64_t> values;
    for (const Json& value : list(key)) values.push_back(count_in(value, key));
    return values;
  }
  std::vector<std::string> texts(const std::string& key) const {
    std::vector<std::string> values;
    for (const Json& value : list(key)) {
      if (!value.is_string()) fail(tr("\"{}\" must be a list of texts", key), value);
      values.push_back(value.get<std::string>());
    }
    return values;
  }
  std::vector<double> depths() const;
  auto items() const { return node_.items(); }

 private:
  [[noreturn]] void fail(const std::string& rule, const Json& found) const {
    throw DataError(tr("the plan {}: {}, got {}", where_, rule, dump_text(found).substr(0, 80)));
  }
  const Json& list(const std::string& key) const {
    const Json& value = at(key);
    if (!value.is_array() || value.empty())
      fail(tr("\"{}\" must be a list that is not empty", key), value);
    return value;
  }
  int64_t count_in(const Json& value, const std::string& key) const {
    constexpr int64_t kMost = 100'000'000;
    if (!value.is_number_integer() || value.get<int64_t>() < 1 || value.get<int64_t>() > kMost)
      fail(tr("\"{}\" must hold whole numbers from 1 to {}", key, kMost), value);
    return value.get<int64_t>();
  }

  const Json& node_;
  std::string where_;
};

std::vector<double> PlanNode::depths() const {
  const Json& value = at("depths");
  std::vector<double> depths;
  if (value.is_number_integer()) {
    const int64_t count = value.get<int64_t>();
    if (count < 2 || count > 101) fail(tr("\"depths\" must be a number from 2 to 101"), value);
    for (int64_t i = 0; i < count; ++i)
      depths.push_back(std::trunc(100 / static_cast<double>(count - 1) * static_cast<double>(i)));
    return depths;
  }
  for (const Json& depth : list("depths")) {
    const bool good = depth.is_number() && depth.get<double>() >= 0 && depth.get<double>() <= 100 &&
                      (depths.empty() || depth.get<double>() > depths.back());
    if (!good) fail(tr("\"depths\" must be percents from 0 to 100, ascending"), value);
    depths.push_back(depth.get<double>());
  }
  return depths;
}

constexpr NeedleKind kNeedleKinds[] = {NeedleKind::kSingleRetrieval, NeedleKind::kMultiReasoning,
                                       NeedleKind::kMultiRetrieval};

/// One number for all windows, or one for each.
std::map<std::string, int64_t> read_window_buffers(const PlanNode& of, const std::string& key,
                                                   const std::string& where,
                                                   const NeedlePlan& plan) {
  std::map<std::string, int64_t> buffers;
  const bool each = of.at(key).is_object();
  for (const NeedlePlan::Window& window : plan.windows) {
    buffers[window.name] =
        each ? PlanNode(of.at(key), where + "." + key).count(window.name) : of.count(key);
  }
  return buffers;
}

std::map<NeedleKind, std::map<std::string, int64_t>> read_buffers(const PlanNode& language,
                                                                  const std::string& where,
                                                                  const NeedlePlan& plan) {
  std::map<NeedleKind, std::map<std::string, int64_t>> buffers;
  for (const NeedleKind kind : kNeedleKinds) {
    const Json& buffer = language.at("buffer");
    buffers[kind] =
        buffer.is_object()
            ? read_window_buffers(PlanNode(buffer, where + ".buffer", {"s_rt", "m_rs", "m_rt"}),
                                  std::string(needle_kind_name(kind)), where + ".buffer", plan)
            : read_window_buffers(language, "buffer", where, plan);
  }
  return buffers;
}

NeedleLanguage read_language(const std::string& name, const Json& node, const std::string& where,
                             const NeedlePlan& plan) {
  const PlanNode of(node, where + ".languages." + name,
                    {"code", "haystack", "reasoning", "buffer", "prompt", "joined_prompt", "format",
                     "guide", "join", "question_mark", "full_stop", "joined_format"});
  return {.name = name,
          .code = of.text("code"),
          .haystack = of.text("haystack"),
          .reasoning = of.text("reasoning"),
          .buffers = read_buffers(of, where + ".languages." + name, plan),
          .prompt = of.text_with("prompt", {"{document}", "{question}"}),
          .joined_prompt = of.text_with("joined_prompt", {"{document}", "{question}"}),
          .format = of.text("format"),
          .guide = of.text("guide"),
          .join = of.text("join"),
          .question_mark = of.text("question_mark"),
          .full_stop = of.text("full_stop"),
          .joined_format = of.text_with("joined_format", {"{format}"})};
}

std::map<NeedleKind, NeedlePlan::Kind> read_kinds(const Json& node, const std::string& where) {
  std::map<NeedleKind, NeedlePlan::Kind> kinds;
  const PlanNode all(node, where + ".kinds", {"s_rt", "m_rs", "m_rt"});
  for (const NeedleKind kind : kNeedleKinds) {
    const std::string name(needle_kind_name(kind));
    const std::string place = where + ".kinds." + name;
    const bool reasons = kind == NeedleKind::kMultiReasoning;
    const PlanNode of =
        reasons
            ? PlanNode(all.at(name), place, {"weight", "repeats", "max_tokens", "needles", "gap"})
            : PlanNode(all.at(name), place, {"weight", "repeats", "max_tokens"});
    NeedlePlan::Kind& to = kinds[kind];
    to.weight = of.number("weight", 1);
    to.repeats = of.count("repeats");
    to.max_tokens = of.count("max_tokens");
    if (!reasons) continue;
    to.needles = of.counts("needles");
    to.gap = of.number("gap", 100);
  }
  return kinds;
}

}  // namespace

std::string_view needle_kind_name(NeedleKind kind) {
  switch (kind) {
    case NeedleKind::kSingleRetrieval:
      return "s_rt";
    case NeedleKind::kMultiReasoning:
      return "m_rs";
    case NeedleKind::kMultiRetrieval:
      return "m_rt";
  }
  throw InternalError("[needle] unknown kind");
}

NeedlePlan parse_needle_plan(const Json& node, const std::string& origin) {
  const std::string where = origin + ": needle";
  const PlanNode of(node, where, {"needles", "counted_with", "windows", "kinds", "languages"});
  NeedlePlan plan;
  plan.needles = of.text("needles");
  plan.counted_with = of.texts("counted_with");
  const PlanNode windows(of.at("windows"), where + ".windows");
  for (const auto& [name, window] : windows.items()) {
    const PlanNode one(window, where + ".windows." + name, {"lengths", "depths"});
    plan.windows.push_back({name, one.counts("lengths"), one.depths()});
  }
  plan.kinds = read_kinds(of.at("kinds"), where);
  for (const auto& [name, language] : PlanNode(of.at("languages"), where + ".languages").items())
    plan.languages.push_back(read_language(name, language, where, plan));
  return plan;
}

std::vector<Task> needle_tasks(const NeedlePlan& plan) {
  std::vector<Task> tasks;
  for (const NeedlePlan::Window& window : plan.windows) {
    for (const auto& [kind, settings] : plan.kinds) {
      Task task;
      task.name = fmt::format("{}_{}_{}", plan.name, window.name, needle_kind_name(kind));
      task.benchmark = plan.name;
      task.alias = fmt::format("{}_{}", window.name, needle_kind_name(kind));
      task.style = "opencompass";
      task.output = OutputType::kGenerateUntil;
      task.is_num_fewshot_fixed = true;
      task.generation.max_tokens = settings.max_tokens;
      task.metrics = {{.name = "needle_score"}};
      tasks.push_back(std::move(task));
    }
  }
  return tasks;
}

std::vector<Group> needle_groups(const NeedlePlan& plan) {
  std::vector<Group> groups;
  Group all{.name = plan.name, .alias = plan.name, .members = {}, .metrics = {"needle_score"}};
  all.weight_by_size = false;
  for (const NeedlePlan::Window& window : plan.windows) {
    Group group = all;
    group.members.clear();
    group.name = fmt::format("{}_{}", plan.name, window.name);
    group.alias = group.name;
    for (const auto& [kind, settings] : plan.kinds) {
      group.members.push_back(fmt::format("{}_{}", group.name, needle_kind_name(kind)));
      group.weights.push_back(settings.weight);
    }
    all.members.push_back(group.name);
    all.weights.push_back(1);
    groups.push_back(std::move(group));
  }
  groups.push_back(std::move(all));
  return groups;
}

std::vector<std::string> needle_differences(const std::string& counted_with) {
  std::vector<std::string> differences = {
      tr("the needles of multi retrieval are chosen by a seed, those of the other program by none"),
      tr("needles stand between sentences, not between any two tokens"),
      tr("a text ends with a whole sentence, so it may be some tokens shorter")};
  if (counted_with.empty()) {
    differences.push_back(
        tr("lengths are counted with the model's own tokenizer, not with cl100k_base"));
  } else if (counted_with != "cl100k_base.tiktoken") {
    differences.push_back(tr("lengths are counted with {}, not with cl100k_base", counted_with));
  }
  return differences;
}

}  // namespace danlu::eval
