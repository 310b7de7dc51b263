#include "eval/results/samples.h"

#include "eval/scoring/aggregation.h"
#include "eval/scoring/metrics.h"
#include "eval/scoring/python_str.h"

namespace danlu::eval {
namespace {

/// The inner values as Python prints them.
Json printed(const Json& value) {
  if (!value.is_array()) return python_str(value);
  Json all = Json::array();
  for (const Json& element : value) all.push_back(printed(element));
  return all;
}

Json rules_json(const GenerationRules& rules) {
  Json json = {{"until", rules.until},
               {"max_gen_toks", rules.max_tokens},
               {"do_sample", rules.do_sample},
               {"temperature", rules.do_sample ? rules.temperature : 0.0}};
  if (rules.do_sample) json["top_p"] = rules.top_p;
  if (rules.do_sample && rules.top_k > 0) json["top_k"] = rules.top_k;
  if (rules.num_beams > 1) json["num_beams"] = rules.num_beams;
  if (rules.repetition_penalty != 1) json["repetition_penalty"] = rules.repetition_penalty;
  return json;
}

Json argument_json(const Call& call) {
  switch (call.kind) {
    case CallKind::kLikelihood:
      return {{"arg_0", call.context}, {"arg_1", call.continuation}};
    case CallKind::kRolling:
      return {{"arg_0", call.continuation}};
    case CallKind::kGeneration:
      break;
  }
  return {{"arg_0", call.context}, {"arg_1", rules_json(call.rules)}};
}

/// Draws of one context are one request with several answers.
bool is_drawn(const Item& item) {
  return !item.calls.empty() && item.calls[0].kind == CallKind::kGeneration;
}

Json arguments_json(const Item& item) {
  Json arguments = Json::object();
  const size_t count = is_drawn(item) ? 1 : item.calls.size();
  for (size_t i = 0; i < count; ++i)
    arguments["gen_args_" + std::to_string(i)] = argument_json(item.calls[i]);
  return arguments;
}

Json responses_json(const Item& item, const std::vector<Answer>& answers) {
  Json responses = Json::array();
  if (is_drawn(item)) {
    responses.push_back(Json::array());
    for (const Answer& answer : answers) responses[0].push_back(answer.text);
    return responses;
  }
  for (const Answer& answer : answers) {
    // A request has a list of answers: here one, a pair, or of a rolling text a number.
    Json said = answer.log_likelihood;
    if (item.calls[0].kind == CallKind::kLikelihood)
      said = Json::array({answer.log_likelihood, answer.is_greedy});
    responses.push_back(Json::array({said}));
  }
  return printed(responses);
}

}  // namespace

Json sample_record(const Task& task, const Item& item, const std::vector<Answer>& answers,
                   const ItemScore& score) {
  Json names = Json::array();
  int64_t cut = 0;
  for (const Metric& metric : task.metrics) {
    for (const std::string& name : reported_names(metric)) names.push_back(name);
  }
  for (const Answer& answer : answers) cut = std::max(cut, answer.num_cut_tokens);
  const Call& first = item.calls.at(0);
  const std::string target = python_str(item.target);
  Json record = {
      {"doc_id", item.doc_id},
      {"doc", item.doc},
      {"target", target},
      {"arguments", arguments_json(item)},
      {"resps", responses_json(item, answers)},
      {"filtered_resps", printed(score.filtered)},
      {"filter", score.filter},
      {"metrics", names},
      {"doc_hash", sha256_hex(item.doc.dump(2, ' ', false, Json::error_handler_t::replace))},
      {"prompt_hash",
       sha256_hex(first.kind == CallKind::kRolling ? first.continuation : first.context)},
      {"target_hash", sha256_hex(target)}};
  for (const Metric& metric : task.metrics) {
    for (const std::string& name : reported_names(metric)) {
      const auto found = score.values.find(is_measured_elsewhere(metric) ? metric.name : name);
      if (found == score.values.end() || is_short_of_draws(name, found->second)) continue;
      const auto number = item_number(name, found->second);
      record[name] = number ? Json(*number) : found->second;
    }
  }
  record.update(score.notes);
  record["near_tie"] = score.is_near_tie;
  record["cut_tokens"] = cut;
  return record;
}

void TaskHash::add(const Json& record) {
  for (const char* key : {"doc_hash", "prompt_hash", "target_hash"})
    hash_.add(record.at(key).get_ref<const std::string&>());
}

std::string samples_file_name(const std::string& task, const std::string& time_id) {
  return "samples_" + task + "_" + time_id + ".jsonl";
}

SamplesFile::SamplesFile(const fs::path& directory, const std::string& task,
                         const std::string& time_id)
    : path_(directory / samples_file_name(task, time_id)), file_(path_) {}

void SamplesFile::add(const Json& record) { file_.write(dump_text(record) + "\n"); }

}  // namespace danlu::eval
