#include <algorithm>

#include "base/error.h"
#include "base/nearest_name.h"
#include "eval/benchmarks/benchmark.h"
#include "eval/benchmarks/benchmark_tasks.h"
#include "eval/benchmarks/checked_object.h"
#include "eval/benchmarks/prompt_template.h"

namespace danlu::eval {
namespace {

const std::vector<std::string> kFieldTypes = {"text", "integer", "boolean", "texts", "any"};

Layout layout_of(const Json& json, const std::string& where) {
  CheckedObject keys(json, where);
  Layout layout;
  layout.name = keys.text("name").value_or("");
  layout.columns = keys.texts("columns").value_or(std::vector<std::string>());
  layout.records = keys.text("records").value_or("");
  const Json& files = keys.at("files");
  if (!files.is_object() || files.empty()) keys.fail("files", tr("a map of splits to paths"));
  CheckedObject splits(files, where + ": files");
  for (const auto& [split, paths] : files.items()) layout.files[split] = *splits.texts(split);
  if (const Json& fields = keys.at("fields"); !fields.is_null()) {
    CheckedObject templates(fields, where + ": fields");
    for (const auto& [field, source] : fields.items()) {
      layout.fields[field] = templates.required_text(field);
      if (!layout.fields[field].starts_with('='))
        PromptTemplate(layout.fields[field], where + ": fields: " + field);
    }
  }
  keys.refuse_others();
  return layout;
}

/// Where a data set of Hugging Face lies that was fetched as it is.
Layout usual_layout(const std::string& data_set, const std::string& config,
                    const std::vector<std::string>& splits) {
  Layout layout;
  layout.name = data_set.empty() ? tr("files named after their split") : data_set;
  for (const std::string& split : splits) {
    std::vector<std::string>& paths = layout.files[split];
    std::vector<std::string> places = {"", "data/"};
    if (!config.empty()) places.insert(places.begin(), {config + "/", "data/" + config + "/"});
    for (const std::string& place : places) {
      // The first is what an error names.
      for (const char* ending :
           {".jsonl", "-*.parquet", ".parquet", ".jsonl.gz", ".json", ".csv", ".tsv"})
        paths.push_back(place + split + ending);
    }
  }
  return layout;
}

/// lm-eval's `dataset_path: json` with `data_files`.
Layout layout_of_data_files(CheckedObject& kwargs, const std::string& test_split) {
  const Json& given = kwargs.at("data_files");
  Layout layout;
  layout.name = "data_files";
  layout.are_named = true;
  layout.records = kwargs.text("field").value_or("");
  if (given.is_object()) {
    CheckedObject splits(given, kwargs.where() + ": data_files");
    for (const auto& [split, paths] : given.items()) layout.files[split] = *splits.texts(split);
  } else {
    layout.files[test_split] = *kwargs.texts("data_files");
  }
  return layout;
}

void read_data(CheckedObject& keys, Benchmark& benchmark) {
  const std::string data_set = keys.text("dataset_path").value_or("");
  const std::string config = keys.text("dataset_name").value_or("");
  const bool is_loader = data_set == "json" || data_set == "csv" || data_set == "parquet";
  benchmark.where_from = keys.text("where_from")
                             .value_or(data_set.empty() || is_loader
                                           ? ""
                                           : tr("danlu download {} --repo-type dataset", data_set));
  if (!is_loader) benchmark.huggingface = data_set;
  if (const Json& hub = keys.at("hub"); !hub.is_null()) {
    CheckedObject names(hub, keys.where() + ": hub");
    benchmark.huggingface = names.text("huggingface").value_or("");
    benchmark.modelscope = names.text("modelscope").value_or("");
    names.refuse_others();
  }
  if (const Json& data = keys.at("data"); !data.is_null()) {
    if (!data.is_array()) keys.fail("data", tr("a list"));
    for (const Json& layout : data)
      benchmark.layouts.push_back(layout_of(layout, keys.where() + ": data"));
  }
  const Json& kwargs_json = keys.at("dataset_kwargs");
  if (!benchmark.layouts.empty() || benchmark.needle) return;
  std::vector<std::string> splits;
  for (const Style& style : benchmark.styles) {
    for (const std::string& split : {style.task.test_split, style.task.fewshot_split}) {
      if (!split.empty() && std::find(splits.begin(), splits.end(), split) == splits.end())
        splits.push_back(split);
    }
  }
  if (splits.empty()) return;
  if (!kwargs_json.is_null()) {
    CheckedObject kwargs(kwargs_json, keys.where() + ": dataset_kwargs");
    kwargs.ignore({"trust_remote_code"});
    if (kwargs.has("data_files"))
      benchmark.layouts.push_back(layout_of_data_files(kwargs, splits.front()));
    kwargs.refuse_others();
  }
  if (benchmark.layouts.empty())
    benchmark.layouts.push_back(usual_layout(is_loader ? "" : data_set, config, splits));
}

void read_row(CheckedObject& keys, Benchmark& benchmark) {
  const Json& row = keys.at("row");
  if (row.is_null()) return;
  CheckedObject fields(row, keys.where() + ": row");
  for (const auto& [field, type] : row.items()) {
    std::string name = fields.required_text(field);
    if (std::find(kFieldTypes.begin(), kFieldTypes.end(), name.substr(0, name.find('?'))) ==
        kFieldTypes.end()) {
      fields.fail(field, tr("one of {}", "text, integer, boolean, texts, any"));
    }
    benchmark.row.emplace_back(field, std::move(name));
  }
}

void read_subjects(CheckedObject& keys, Benchmark& benchmark) {
  const Json& given = keys.at("subjects");
  const auto add = [&](const std::string& name, const Json& about) {
    Subject subject{.name = name, .title = name, .kind = ""};
    std::replace(subject.title.begin(), subject.title.end(), '_', ' ');
    if (about.is_string()) subject.title = about.get<std::string>();
    if (about.is_object()) {
      CheckedObject object(about, keys.where() + ": subjects: " + name);
      subject.title = object.text("title").value_or(subject.title);
      subject.kind = object.text("kind").value_or("");
      object.refuse_others();
    }
    benchmark.subjects.push_back(std::move(subject));
  };
  if (given.is_object()) {
    for (const auto& [name, about] : given.items()) add(name, about);
  } else if (!given.is_null()) {
    const std::optional<std::vector<std::string>> names = keys.texts("subjects");
    for (const std::string& name : *names) add(name, nullptr);
  }
}

/// What a style says over what its file says.
Json task_keys_over(const Json& below, const Json& above) {
  Json out = below;
  for (const auto& [key, value] : above.items()) {
    if (is_task_key(key)) out[key] = value;
  }
  return out;
}

Style style_of(const std::string& name, const Json& shared, const Json& own,
               const std::string& where) {
  Style style;
  style.name = name;
  const Json merged = task_keys_over(shared, own);
  style.task = parse_task(merged, where);
  CheckedObject keys(own, where);
  ignore_task_keys(keys);
  style.weight_by_size = keys.boolean("weight_by_size").value_or(true);
  style.group_metrics = keys.texts("group_metrics").value_or(std::vector<std::string>());
  if (const Json& kinds = keys.at("kinds"); !kinds.is_null()) {
    CheckedObject all(kinds, where + ": kinds");
    for (const auto& [kind, changes] : kinds.items()) {
      CheckedObject checked(all.at(kind), where + ": kinds: " + kind);
      style.kinds[kind] = parse_task(task_keys_over(merged, changes), where + ": kinds: " + kind);
      ignore_task_keys(checked);
      checked.refuse_others();
    }
  }
  keys.refuse_others();
  if (style.group_metrics.empty()) {
    for (const Metric& metric : style.task.metrics) style.group_metrics.push_back(metric.name);
  }
  return style;
}

void read_styles(CheckedObject& keys, const Json& file, Benchmark& benchmark) {
  const Json shared = task_keys_over(Json::object(), file);
  const Json& styles = keys.at("styles");
  if (styles.is_null()) {
    if (shared.contains("output_type") || shared.contains("doc_to_text") ||
        shared.contains("doc_to_target")) {
      benchmark.styles.push_back(style_of("", shared, Json::object(), benchmark.origin));
    }
    return;
  }
  CheckedObject all(styles, benchmark.origin + ": styles");
  for (const auto& [name, own] : styles.items()) {
    const std::string where = benchmark.origin + ": styles: " + name;
    if (own.is_string()) {
      Style same = benchmark.style(own.get<std::string>(), where);
      same.name = name;
      benchmark.styles.push_back(std::move(same));
    } else {
      benchmark.styles.push_back(style_of(name, shared, own, where));
    }
  }
}

/// "agieval_{subject_}": with the subject's name, or the same with _ for -.
std::string for_subject(std::string text, const std::string& subject) {
  const auto put = [&](const std::string& place, const std::string& name) {
    for (size_t at = text.find(place); at != text.npos; at = text.find(place, at + name.size()))
      text.replace(at, place.size(), name);
  };
  put("{subject}", subject);
  std::string plain = subject;
  std::replace(plain.begin(), plain.end(), '-', '_');
  put("{subject_}", plain);
  return text;
}

void name_tasks(Benchmark& benchmark) {
  for (Style& style : benchmark.styles) {
    const auto complete = [&](Task& task) {
      if (task.name.empty())
        task.name = benchmark.name + (benchmark.subjects.empty() ? "" : "_{subject_}");
      if (task.alias.empty()) task.alias = benchmark.subjects.empty() ? task.name : "{subject_}";
      task.benchmark = benchmark.name;
      task.style = style.name;
    };
    complete(style.task);
    for (auto& [kind, task] : style.kinds) complete(task);
    for (const Subject& subject : benchmark.subjects) {
      if (subject.kind.empty() || style.kinds.contains(subject.kind)) continue;
      if (style.kinds.empty()) continue;  // a style that asks all in one way
      throw UsageError(tr("{}: styles: {}: nothing is said of the kind '{}' of the subject {}",
                          benchmark.origin, style.name, subject.kind, subject.name));
    }
  }
}

std::vector<std::string> leaf_names(const Benchmark& benchmark, const Style& style,
                                    const std::vector<std::string>& subjects,
                                    const std::string& where) {
  std::vector<std::string> known;
  for (const Subject& subject : benchmark.subjects) known.push_back(subject.name);
  std::vector<std::string> out;
  for (const std::string& subject : subjects) {
    if (std::find(known.begin(), known.end(), subject) == known.end()) {
      const std::optional<std::string> nearest = nearest_name(subject, known);
      throw UsageError(tr("{}: there is no subject '{}'", where, subject),
                       nearest ? tr("did you mean '{}'?", *nearest) : "");
    }
    out.push_back(for_subject(style.task.name, subject));
  }
  return out;
}

void read_groups(CheckedObject& keys, Benchmark& benchmark) {
  const Json& given = keys.at("groups");
  if (given.is_null()) return;
  CheckedObject all(given, benchmark.origin + ": groups");
  for (const auto& [name, about] : given.items()) {
    const std::string where = benchmark.origin + ": groups: " + name;
    CheckedObject object(all.at(name), where);
    Group group;
    group.name = name;
    group.alias = object.text("alias").value_or(name);
    if (const auto members = object.texts("tasks")) group.members = *members;
    if (const auto metrics = object.texts("metrics")) group.metrics = *metrics;
    if (const auto subjects = object.texts("subjects")) {
      std::vector<std::string> names = *subjects;
      if (names == std::vector<std::string>{"all"}) {
        names.clear();
        for (const Subject& subject : benchmark.subjects) names.push_back(subject.name);
      }
      const std::vector<std::string> leaves =
          leaf_names(benchmark, benchmark.styles.front(), names, where);
      group.members.insert(group.members.end(), leaves.begin(), leaves.end());
    }
    object.refuse_others();
    if (group.members.empty()) object.fail("tasks", tr("a list of names"));
    benchmark.groups.push_back(std::move(group));
  }
}

void read_generator(CheckedObject& keys, Benchmark& benchmark) {
  const std::optional<std::string> generator = keys.text("generator");
  const Json& needle = keys.at("needle");
  if (!generator) {
    if (!needle.is_null()) keys.fail("generator", "needle");
    return;
  }
  if (*generator != "needle") keys.fail("generator", "needle");
  benchmark.needle = parse_needle_plan(needle, benchmark.origin);
  benchmark.needle->name = benchmark.name;
  benchmark.needle->where_from = keys.text("where_from").value_or("");
  benchmark.groups = needle_groups(*benchmark.needle);
}

/// lm-eval's file of a group: names of tasks that other files define.
bool read_group_file(CheckedObject& keys, const Json& file, Benchmark& benchmark) {
  if (!keys.has("group")) return false;
  Group group;
  group.name = keys.required_text("group");
  group.alias = keys.text("group_alias").value_or(group.name);
  for (const Json& member : file.contains("task") ? file["task"] : Json::array()) {
    if (!member.is_string()) keys.fail("task", tr("a list of names"));
    group.members.push_back(member.get<std::string>());
  }
  if (group.members.empty()) keys.fail("task", tr("a list of names"));
  const Json& written = keys.at("aggregate_metric_list");
  // lm-eval's own files have one metric without a list too.
  for (const Json& element : written.is_object() ? Json::array({written}) : written) {
    CheckedObject metric(element, benchmark.origin + ": aggregate_metric_list");
    group.metrics.push_back(metric.required_text("metric"));
    group.weight_by_size = metric.boolean("weight_by_size").value_or(true);
    metric.ignore({"aggregation", "filter_list"});
    metric.refuse_others();
  }
  if (group.metrics.empty()) group.metrics = {"acc"};
  benchmark.name = group.name;
  benchmark.groups.push_back(std::move(group));
  keys.ignore({"task", "metadata", "tag"});
  keys.refuse_others();
  return true;
}

}  // namespace

std::string python_in_yaml_hint() {
  return tr(
      "Python code of other harnesses (!function) is not run: write it as templates, filters "
      "and metrics");
}

Benchmark parse_benchmark(const Json& file, const std::string& origin) {
  Benchmark benchmark;
  benchmark.origin = origin;
  CheckedObject keys(file, origin);
  if (read_group_file(keys, file, benchmark)) return benchmark;
  keys.ignore({"group", "group_alias", "aggregate_metric_list"});
  ignore_task_keys(keys);
  const std::optional<std::string> name = keys.text("benchmark");
  benchmark.name = name ? *name : CheckedObject(file, origin).required_text("task");
  benchmark.title = keys.text("title").value_or("");
  benchmark.aliases = keys.texts("aliases").value_or(std::vector<std::string>());
  read_row(keys, benchmark);
  read_subjects(keys, benchmark);
  read_styles(keys, file, benchmark);
  name_tasks(benchmark);
  read_groups(keys, benchmark);
  read_generator(keys, benchmark);
  read_data(keys, benchmark);
  keys.refuse_others();
  if (benchmark.styles.empty() && !benchmark.needle)
    CheckedObject(file, origin).fail("doc_to_target", tr("a text"));
  return benchmark;
}

const Style& Benchmark::style(const std::string& style_name, const std::string& asked_by) const {
  std::string known;
  for (const Style& one : styles) {
    if (one.name.empty() || one.name == style_name) return one;
    known += (known.empty() ? "" : ", ") + one.name;
  }
  throw UsageError(tr("[{}] {} has no style '{}'", asked_by, name, style_name),
                   tr("it has: {}", known));
}

std::vector<Task> leaves(const Benchmark& benchmark, const std::string& style_name) {
  if (benchmark.needle) return needle_tasks(*benchmark.needle);
  if (benchmark.styles.empty()) return {};
  const Style& style = benchmark.style(style_name);
  if (benchmark.subjects.empty()) return {style.task};
  std::vector<Task> out;
  for (const Subject& subject : benchmark.subjects) {
    const auto kind = style.kinds.find(subject.kind);
    Task task = kind == style.kinds.end() ? style.task : kind->second;
    task.name = for_subject(task.name, subject.name);
    task.alias = for_subject(task.alias, subject.name);
    task.subject = subject.name;
    task.subject_title = subject.title;
    out.push_back(std::move(task));
  }
  return out;
}

std::vector<Group> groups(const Benchmark& benchmark, const std::string& style_name) {
  std::vector<Group> out = benchmark.groups;
  if (benchmark.styles.empty()) return out;
  const Style& style = benchmark.style(style_name);
  for (Group& group : out) {
    // A group's own are those of one style: others know them not.
    const bool are_known =
        std::all_of(group.metrics.begin(), group.metrics.end(), [&](const std::string& name) {
          return std::any_of(style.task.metrics.begin(), style.task.metrics.end(),
                             [&](const Metric& metric) { return metric.name == name; });
        });
    if (group.metrics.empty() || !are_known) group.metrics = style.group_metrics;
    group.weight_by_size = style.weight_by_size;
  }
  return out;
}

}  // namespace danlu::eval
