#include "eval/benchmarks/benchmark_tasks.h"

#include <algorithm>
#include <iterator>

#include "base/error.h"
#include "base/nearest_name.h"
#include "eval/benchmarks/prompt_template.h"
#include "eval/scoring/aggregation.h"
#include "eval/scoring/filters.h"
#include "eval/scoring/metrics.h"

namespace danlu::eval {
namespace {

constexpr const char* kTaskKeys[] = {"task",
                                     "task_alias",
                                     "output_type",
                                     "doc_to_text",
                                     "doc_to_target",
                                     "doc_to_choice",
                                     "description",
                                     "gen_prefix",
                                     "target_delimiter",
                                     "fewshot_delimiter",
                                     "test_split",
                                     "validation_split",
                                     "training_split",
                                     "fewshot_split",
                                     "num_fewshot",
                                     "fewshot_config",
                                     "generation_kwargs",
                                     "repeats",
                                     "filter_list",
                                     "metric_list",
                                     "metadata",
                                     "differences",
                                     "chat_frame",
                                     "system_instruction",
                                     "process_docs",
                                     "process_results",
                                     "should_decontaminate",
                                     "doc_to_decontamination_query",
                                     "unsafe_code",
                                     "tag",
                                     "use_prompt",
                                     "doc_to_image",
                                     "doc_to_audio"};

[[noreturn]] void refuse_python(const std::string& where, std::string_view key) {
  throw UsageError(tr("{}: '{}' asks for Python code, which is not run here", where, key),
                   tr("write it as templates, filters and metrics"));
}

/// Errors: UsageError of a name that is not in the list.
void require_known(const std::string& where, const char* what, const std::string& name,
                   const std::vector<std::string>& known) {
  if (std::find(known.begin(), known.end(), name) != known.end()) return;
  const std::optional<std::string> nearest = nearest_name(name, known);
  std::string all;
  for (const std::string& other : known) all += (all.empty() ? "" : ", ") + other;
  throw UsageError(tr("{}: there is no {} '{}'", where, what, name),
                   nearest ? tr("did you mean '{}'?", *nearest) : tr("there are: {}", all));
}

OutputType output_type_of(CheckedObject& keys) {
  const std::string name = keys.text("output_type").value_or("generate_until");
  static const std::pair<const char*, OutputType> kTypes[] = {
      {"multiple_choice", OutputType::kMultipleChoice},
      {"generate_until", OutputType::kGenerateUntil},
      {"loglikelihood", OutputType::kLogLikelihood},
      {"loglikelihood_rolling", OutputType::kRollingLikelihood}};
  std::vector<std::string> known;
  for (const auto& [known_name, type] : kTypes) {
    if (name == known_name) return type;
    known.emplace_back(known_name);
  }
  require_known(keys.where(), "output_type", name, known);
  return OutputType::kGenerateUntil;
}

ChatFrame chat_frame_of(CheckedObject& keys) {
  static const std::pair<const char*, ChatFrame> kFrames[] = {
      {"turns", ChatFrame::kTurns},
      {"one_message", ChatFrame::kOneMessage},
      {"plain", ChatFrame::kPlain}};
  const std::string name = keys.text("chat_frame").value_or("turns");
  std::vector<std::string> known;
  for (const auto& [known_name, frame] : kFrames) {
    if (name == known_name) return frame;
    known.emplace_back(known_name);
  }
  require_known(keys.where(), "chat_frame", name, known);
  return ChatFrame::kTurns;
}

GenerationRules generation_of(CheckedObject& keys, const Task& task) {
  GenerationRules rules;
  const Json& given = keys.at("generation_kwargs");
  if (!given.is_null()) {
    CheckedObject kwargs(given, keys.where() + ": generation_kwargs");
    rules.until = kwargs.texts("until").value_or(std::vector<std::string>());
    // The first has the last word.
    for (const char* name :
         {"max_completion_tokens", "max_tokens", "max_new_tokens", "max_gen_toks"})
      rules.max_tokens = kwargs.integer(name).value_or(rules.max_tokens);
    rules.do_sample = kwargs.boolean("do_sample").value_or(false);
    rules.temperature = kwargs.number("temperature").value_or(rules.temperature);
    rules.top_p = kwargs.number("top_p").value_or(rules.top_p);
    rules.top_k = kwargs.integer("top_k").value_or(rules.top_k);
    rules.num_beams = kwargs.integer("num_beams").value_or(rules.num_beams);
    rules.repetition_penalty =
        kwargs.number("repetition_penalty").value_or(rules.repetition_penalty);
    rules.says_sampling = kwargs.has("do_sample");
    settle_sampling(rules, kwargs.has("temperature"));
    kwargs.refuse_others();
    if (rules.max_tokens < 1) kwargs.fail("max_gen_toks", tr("at least 1"));
    if (rules.num_beams < 1) kwargs.fail("num_beams", tr("at least 1"));
    if (rules.repetition_penalty <= 0) kwargs.fail("repetition_penalty", tr("above 0"));
    if (kwargs.has("until")) return rules;
  }
  rules.until = {task.fewshot_delimiter};
  return rules;
}

std::vector<Filter> filters_of(CheckedObject& keys) {
  const Json& given = keys.at("filter_list");
  if (given.is_null()) return {{.name = "none", .steps = {{.function = "take_first"}}}};
  if (!given.is_array()) keys.fail("filter_list", tr("a list"));
  std::vector<Filter> filters;
  for (const Json& element : given) {
    CheckedObject one(element, keys.where() + ": filter_list");
    Filter filter{.name = one.required_text("name"), .steps = {}};
    const Json& steps = one.at("filter");
    one.refuse_others();
    if (!steps.is_array()) one.fail("filter", tr("a list"));
    for (const Json& step : steps) {
      CheckedObject part(step, keys.where() + ": filter_list: " + filter.name);
      FilterStep made{.function = part.required_text("function"), .arguments = Json::object()};
      if (made.function == "custom") refuse_python(part.where(), "custom");
      require_known(part.where(), "filter", made.function, filter_names());
      made.arguments = part.take_others();
      filter.steps.push_back(std::move(made));
    }
    filters.push_back(std::move(filter));
  }
  return filters;
}

Metric metric_named(const std::string& name) {
  Metric metric{.name = name};
  metric.aggregation = aggregation_of(metric);
  metric.higher_is_better = metric.aggregation == "mean";
  return metric;
}

std::vector<Metric> metrics_of(CheckedObject& keys, OutputType output) {
  const Json& given = keys.at("metric_list");
  std::vector<Metric> metrics;
  if (given.is_null()) {
    if (output == OutputType::kMultipleChoice)
      return {metric_named("acc"), metric_named("acc_norm")};
    if (output == OutputType::kGenerateUntil) return {metric_named("exact_match")};
    if (output == OutputType::kLogLikelihood)
      return {metric_named("perplexity"), metric_named("acc")};
    return {metric_named("word_perplexity"), metric_named("byte_perplexity"),
            metric_named("bits_per_byte")};
  }
  if (!given.is_array() || given.empty()) keys.fail("metric_list", tr("a list"));
  for (const Json& element : given) {
    CheckedObject one(element, keys.where() + ": metric_list");
    Metric metric = metric_named(one.required_text("metric"));
    require_known(one.where(), "metric", metric.name, metric_names());
    metric.aggregation = one.text("aggregation").value_or(metric.aggregation);
    metric.higher_is_better = one.boolean("higher_is_better").value_or(metric.higher_is_better);
    metric.report_as = one.text("report_as").value_or("");
    one.ignore({"weight_by_size"});  // of groups: lm-eval's own files have it here too
    metric.arguments = one.take_others();
    metrics.push_back(std::move(metric));
  }
  return metrics;
}

/// lm-eval's rules for which split shots come from, and when the question itself is left out.
void read_shots(CheckedObject& keys, Task& task) {
  const std::optional<std::string> test = keys.text("test_split");
  const std::optional<std::string> validation = keys.text("validation_split");
  const std::optional<std::string> training = keys.text("training_split");
  std::optional<std::string> split = keys.text("fewshot_split");
  std::string sampler = "default";
  if (const Json& given = keys.at("fewshot_config"); !given.is_null()) {
    CheckedObject config(given, keys.where() + ": fewshot_config");
    if (const auto own = config.text("split")) split = own;
    sampler = config.text("sampler").value_or(sampler);
    task.shot_to_text = config.text("doc_to_text").value_or("");
    task.shot_to_target = config.text("doc_to_target").value_or("");
    task.shot_gen_prefix = config.text("gen_prefix").value_or("");
    const Json& samples = config.at("samples");
    if (!samples.is_null() && !samples.is_array()) config.fail("samples", tr("a list"));
    for (const Json& row : samples) {
      if (!row.is_object()) config.fail("samples", tr("a list of rows"));
      task.fixed_shots.push_back(row);
    }
    config.refuse_others();
  }
  require_known(keys.where() + ": fewshot_config", "sampler", sampler,
                {"default", "first_n", "permutation"});
  task.sampler = sampler == "first_n"       ? FewShotSampler::kFirst
                 : sampler == "permutation" ? FewShotSampler::kPermutation
                                            : FewShotSampler::kRandom;
  task.test_split = test ? *test : validation.value_or("");
  if (task.fixed_shots.empty())
    task.fewshot_split = split ? *split : training ? *training : task.test_split;
  task.leaves_question_out =
      split == test || (task.fixed_shots.empty() && task.fewshot_split == task.test_split);
}

void check_templates(const Task& task, const std::string& origin) {
  const std::pair<const char*, const std::string*> kTemplates[] = {
      {"description", &task.description},
      {"doc_to_text", &task.doc_to_text},
      {"doc_to_target", &task.doc_to_target},
      {"doc_to_choice", &task.doc_to_choice},
      {"gen_prefix", &task.gen_prefix},
      {"fewshot_config: doc_to_text", &task.shot_to_text},
      {"fewshot_config: doc_to_target", &task.shot_to_target},
      {"fewshot_config: gen_prefix", &task.shot_gen_prefix}};
  for (const auto& [key, source] : kTemplates) PromptTemplate(*source, origin + ": " + key);
}

/// A template, or, as lm-eval lets it, a number or list that stands for itself.
std::string template_or_value(CheckedObject& keys, const char* key) {
  const Json& value = keys.at(key);
  if (value.is_null()) return "";
  if (value.is_string()) return value.get<std::string>();
  if (value.is_object()) {  // lm-eval: the values of a map
    if (value.contains("class")) refuse_python(keys.where(), key);
    Json list = Json::array();
    for (const Json& element : value) list.push_back(element);
    return list.dump();
  }
  return value.dump();
}

/// lm-eval: the name of a field, or a list of such.
std::vector<std::string> image_fields_of(CheckedObject& keys, OutputType output) {
  const Json& value = keys.at("doc_to_image");
  std::vector<std::string> fields;
  for (const Json& field : value.is_array() ? value : Json::array({value})) {
    if (value.is_null()) break;
    if (!field.is_string()) keys.fail("doc_to_image", tr("the name of a field, or a list of such"));
    fields.push_back(field.get<std::string>());
  }
  if (!fields.empty() && output == OutputType::kRollingLikelihood)
    keys.fail("doc_to_image", tr("nothing: a perplexity has no pictures"));
  return fields;
}

void refuse_what_is_python(CheckedObject& keys) {
  for (const char* key : {"process_docs", "process_results"}) {
    if (!keys.at(key).is_null()) refuse_python(keys.where(), key);
  }
  for (const char* key : {"use_prompt", "doc_to_audio"}) {
    if (!keys.at(key).is_null())
      throw UsageError(tr("{}: '{}' cannot be done here", keys.where(), key));
  }
}

}  // namespace

bool is_task_key(const std::string& key) {
  return std::any_of(std::begin(kTaskKeys), std::end(kTaskKeys),
                     [&](const char* known) { return key == known; });
}

void ignore_task_keys(CheckedObject& keys) {
  for (const char* key : kTaskKeys) keys.ignore({key});
}

Task parse_task(const Json& json, const std::string& origin) {
  CheckedObject keys(json, origin);
  keys.ignore({"should_decontaminate", "doc_to_decontamination_query", "unsafe_code", "tag"});
  refuse_what_is_python(keys);
  Task task;
  task.name = keys.text("task").value_or("");
  task.alias = keys.text("task_alias").value_or("");
  task.output = output_type_of(keys);
  task.description = keys.text("description").value_or("");
  task.doc_to_text = keys.text("doc_to_text").value_or("");
  task.doc_to_target = template_or_value(keys, "doc_to_target");
  task.doc_to_choice = template_or_value(keys, "doc_to_choice");
  task.image_fields = image_fields_of(keys, task.output);
  task.gen_prefix = keys.text("gen_prefix").value_or("");
  task.target_delimiter = keys.text("target_delimiter").value_or(" ");
  task.fewshot_delimiter = keys.text("fewshot_delimiter").value_or("\n\n");
  task.system_instruction = keys.text("system_instruction").value_or("");
  task.chat_frame = chat_frame_of(keys);
  read_shots(keys, task);
  const std::optional<int64_t> shots = keys.integer("num_fewshot");
  task.num_fewshot = shots.value_or(0);
  if (task.num_fewshot < 0) keys.fail("num_fewshot", tr("at least 0"));
  task.is_num_fewshot_fixed = shots == 0;
  task.generation = generation_of(keys, task);
  task.repeats = keys.integer("repeats").value_or(1);
  if (task.repeats < 1) keys.fail("repeats", tr("at least 1"));
  task.filters = filters_of(keys);
  task.metrics = metrics_of(keys, task.output);
  task.differences = keys.texts("differences").value_or(std::vector<std::string>());
  if (const Json& metadata = keys.at("metadata");
      metadata.is_object() && metadata.contains("version"))
    task.version = metadata["version"];
  keys.refuse_others();
  if (task.test_split.empty()) keys.fail("test_split", tr("the name of a split"));
  if (task.doc_to_target.empty()) keys.fail("doc_to_target", tr("a text"));
  if (task.output == OutputType::kMultipleChoice && task.doc_to_choice.empty())
    keys.fail("doc_to_choice", tr("a list of choices, or a template that gives one"));
  check_templates(task, origin);
  return task;
}

}  // namespace danlu::eval
